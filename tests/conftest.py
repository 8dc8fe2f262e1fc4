"""One empty cache of compiled kernels for the whole run: it starts cold, and the workers of pytest-xdist share it.

RNNSPEC_TEST_CACHE=folder keeps the cache there from run to run.
"""
from __future__ import annotations

import os
import shutil
import tempfile

import pytest

_made: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--random-specs", type=int, metavar="N", help="test_random_specs.py looks at N specs, others each time (25, always the same)")


def pytest_configure(config: pytest.Config) -> None:
    if "slow" not in " ".join(config.getini("markers")):
        config.addinivalue_line("markers", "slow: takes more than some twenty seconds")
    if hasattr(config, "workerinput"):
        return  # the environment is the controller's
    chosen = os.environ.get("RNNSPEC_TEST_CACHE")
    if not chosen:
        chosen = tempfile.mkdtemp(prefix="rnnspec-tests-")
        _made.append(chosen)
    os.environ["RNNSPEC_CACHE_DIR"] = chosen


def pytest_unconfigure(config: pytest.Config) -> None:
    for folder in _made:
        shutil.rmtree(folder, ignore_errors=True)
