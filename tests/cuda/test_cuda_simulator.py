"""A smoke run of the kernels' text, launched by the backend's own code, in Numba's simulator of
CUDA (tests/helpers/simulated.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from emulated import needs_compiler
from tolerances import CUDA

needs_compiler()


@pytest.mark.parametrize("tier", [1, 3])
def test_the_simulator_agrees(tier):
    here = Path(__file__).resolve().parents[1] / "helpers"
    paths = [str(here), str(here.parents[1]), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, here / "simulated.py", "lstm", str(tier)],
        capture_output=True,
        text=True,
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )
    assert done.returncode == 0, done.stderr
    difference, launches = done.stdout.split()
    assert float(difference) <= CUDA["float32"] and int(launches) > 5
