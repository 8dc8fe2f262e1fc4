"""A plugin for pytest: `pytest --rnnspec path/to/specs` collects YAML files, one test for each
property and dtype of a cell.

    pytest --rnnspec specs/leaky.yaml
    pytest --rnnspec specs -k "reference and float64" -n 2 --junitxml report.xml

Does nothing, and imports nothing, unless asked for. A YAML file is a spec if it is named on the
command line or has the key `rnnspec`; what can't be loaded fails with its errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rnnspec.check.report import Result
    from rnnspec.check.run import Property, Subjects

KEY = re.compile(rb"^[\"']?rnnspec[\"']?[ \t]*:", re.MULTILINE)
READ = 64 * 1024  # the largest spec


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("rnnspec", "recurrent cells in YAML files")
    group.addoption(
        "--rnnspec",
        action="store_true",
        help="collect YAML files of cells: a test for each property that `rnnspec check` checks",
    )
    group.addoption(
        "--rnnspec-dtype",
        action="append",
        choices=("float32", "float64"),
        help="dtype of the kernels; may be repeated (both)",
    )


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if not parent.config.getoption("--rnnspec") or file_path.suffix not in (".yaml", ".yml"):
        return None
    if parent.session.isinitpath(file_path) or _has_key(file_path):
        return SpecFile.from_parent(parent, path=file_path)
    return None


def _has_key(path: Path) -> bool:
    with open(path, "rb") as file:
        return KEY.search(file.read(READ)) is not None


class SpecFile(pytest.File):
    """The cells of one file: one, or one for each setting of its choices."""

    def collect(self) -> Iterator[pytest.Item]:
        from rnnspec.check.run import DTYPES, Subjects, table_of, variants

        dtypes = self.config.getoption("--rnnspec-dtype") or DTYPES
        for variant in variants(self.path):
            if isinstance(variant.spec, Exception):
                yield PropertyItem.from_parent(self, name="schema[reference]", problem=variant.spec)
                continue
            subjects, choices = Subjects(variant, 0), variant.name.removeprefix(variant.spec.name).strip(" ()")
            for row, dtype in table_of(dtypes):
                name = f"{row.name}[{', '.join(filter(None, [dtype, choices]))}]"
                yield PropertyItem.from_parent(self, name=name, row=row, dtype=dtype, subjects=subjects)


class PropertyItem(pytest.Item):
    """One property of one cell in one dtype."""

    def __init__(
        self,
        *,
        row: Property | None = None,
        dtype: str = "",
        subjects: Subjects | None = None,
        problem: Exception | None = None,
        **rest: Any,
    ):
        super().__init__(**rest)
        self.row, self.dtype, self.subjects, self.problem = row, dtype, subjects, problem

    def runtest(self) -> None:
        from rnnspec.check.run import run_property

        if self.problem is not None:
            raise self.problem
        assert self.row is not None and self.subjects is not None
        result = run_property(self.row, partial(self.subjects, self.dtype), self.dtype)
        if result.skipped:
            pytest.skip(result.detail)
        if not result.passed:
            raise PropertyFailed(result)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        from rnnspec.errors import visible

        if isinstance(excinfo.value, PropertyFailed) or excinfo.value is self.problem:
            return visible(str(excinfo.value))
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, f"{self.path.name}: {self.name}"


class PropertyFailed(Exception):
    """A property that does not hold: what was found, and how to repeat it."""

    def __init__(self, result: Result):
        from rnnspec.check.report import numbers

        error = numbers(result)
        super().__init__(
            "\n".join(
                filter(
                    None, [result.detail, error and f"error: {error} allowed", result.repeat and f"\n{result.repeat}"]
                )
            )
        )
