"""`python -m rnnspec` is the command `rnnspec`."""

import sys

from rnnspec.commands.cli import main

sys.exit(main())
