"""Proof that a cell and its kernels are right: `check_cells`, the engine of `rnnspec check`.

report = check_cells(["lstm", "my/cell.yaml"])
assert report.passed, report.to_text()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rnnspec.storage.locks import making

if TYPE_CHECKING:
    from rnnspec.check.report import CellReport, Report, Result
    from rnnspec.check.run import PROPERTIES, check_cells, check_property

_HOME = {
    "check_cells": "run",
    "check_property": "run",
    "PROPERTIES": "run",
    "Report": "report",
    "CellReport": "report",
    "Result": "report",
}
__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'rnnspec.check' has no attribute {name!r}")
    with making:
        return getattr(import_module(f"rnnspec.check.{_HOME[name]}"), name)
