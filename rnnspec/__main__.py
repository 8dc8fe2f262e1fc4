"""`python -m rnnspec` is the command `rnnspec`."""

import sys

from rnnspec.cli import main

sys.exit(main())
