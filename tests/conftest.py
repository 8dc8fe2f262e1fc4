"""One empty cache of compiled kernels for the whole run: it starts cold, and the workers of
pytest-xdist share it.

RNNSPEC_TEST_CACHE=folder keeps the cache there from run to run.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile

import pytest

_made: list[str] = []
CELL_BY_CELL = ("test_cuda_cells.py", "test_cuda_compile.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--random-specs",
        type=int,
        metavar="N",
        help="test_random_specs.py looks at N specs, others each time (25, always the same)",
    )


def pytest_configure(config: pytest.Config) -> None:
    if "slow" not in " ".join(config.getini("markers")):
        config.addinivalue_line("markers", "slow: takes more than some twenty seconds")
    if (
        signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    ):  # as a shell starts what runs in its background; tests interrupt themselves and commands
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(config, "workerinput"):
        return  # the environment is the controller's
    chosen = os.environ.get("RNNSPEC_TEST_CACHE")
    if not chosen:
        chosen = tempfile.mkdtemp(prefix="rnnspec-tests-")
        _made.append(chosen)
    os.environ["RNNSPEC_CACHE_DIR"] = chosen


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """File by file, as --dist loadfile says, but the files that go over all cells cell by cell: one
    worker would have them for many minutes."""
    from xdist.scheduler import LoadFileScheduling

    class ByFileOrCell(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file, _, rest = nodeid.partition("::")
            return f"cell {rest.partition('[')[2]}" if file.endswith(CELL_BY_CELL) else file

    return ByFileOrCell(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_unconfigure(config: pytest.Config) -> None:
    for folder in _made:
        shutil.rmtree(folder, ignore_errors=True)
