"""A device for the CUDA tests: a stand-in for libcuda that runs the kernels' own PTX in the
interpreter (tests/helpers/ptx)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any
from unittest import mock

import pytest
from ptx.driver import FakeLibrary

from rnnspec.backends.cuda.compile.build import build
from rnnspec.backends.cuda.compile.source import Source
from rnnspec.backends.cuda.emit.moves import runtime_source
from rnnspec.backends.cuda.launch import driver, launcher
from rnnspec.errors import BackendUnavailable


@cache
def missing() -> str:
    """Why CUDA kernels can't be compiled here; empty if they can."""
    try:
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
    with mock.patch.object(driver, "load_library", lambda: library):
        yield library


def plant(monkeypatch: pytest.MonkeyPatch, argument: str, before: str, after: str) -> None:
    """From now on the kernels that have this argument are built with a fault. LookupError where the
    text to be changed isn't there, which no test expects."""

    def planted(source: Source, target: tuple[int, int]) -> tuple[bytes, str]:
        if argument in source.arguments:
            if before not in source.text:
                raise LookupError(f"no {before} in {source.text}")
            source = replace(source, text=source.text.replace(before, after))
        return build(source, target)

    monkeypatch.setattr(launcher, "build", planted)


def assert_clean(library: FakeLibrary) -> None:
    """No race and no uninitialised read in any launch."""
    assert library.reports, "nothing was launched"
    for report in library.reports:
        assert report.clean, f"{report.kernel}: races {report.races}, uninitialised {report.uninitialised}"
