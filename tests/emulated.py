"""A device for the CUDA tests: a stand-in for libcuda that runs the kernels' own PTX in the interpreter (tests/ptx)."""
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from ptx.driver import FakeLibrary

from rnnspec.backends.cuda.driver import open_device, standing_in
from rnnspec.backends.cuda.runtime import runtime_source
from rnnspec.errors import BackendUnavailable


@cache
def missing() -> str:
    """Why CUDA kernels can't be compiled here; empty if they can."""
    try:
        from rnnspec.backends.cuda.build import build

        build(runtime_source("move", "float32"), (9, 0))
    except BackendUnavailable as error:
        return str(error)
    return ""


def needs_compiler() -> None:
    """For the top of a test module: skips it, with the reason, where there is no compiler."""
    if reason := missing():
        pytest.skip(f"the extra cuda-test is not installed: {reason}", allow_module_level=True)


@contextlib.contextmanager
def gpu(**options: Any) -> Iterator[FakeLibrary]:
    """In here `backend="cuda"` finds this device. options: as of FakeLibrary."""
    library = FakeLibrary(**options)
    with standing_in(open_device(library)):
        yield library


def assert_clean(library: FakeLibrary) -> None:
    """No race and no uninitialised read in any launch."""
    assert library.reports, "nothing was launched"
    for report in library.reports:
        assert report.clean, f"{report.kernel}: races {report.races}, uninitialised {report.uninitialised}"
