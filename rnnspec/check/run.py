"""The table of properties, and running it over cells."""
from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rnnspec.check.claims import same_as
from rnnspec.check.derivatives import complex_step, differences, dot_product
from rnnspec.check.invariants import batch_independence, padding, split_sequence, strides, thread_independence, untouched, zero_sizes
from rnnspec.check.outcome import Outcome
from rnnspec.check.report import CellReport, Report, Result
from rnnspec.check.sampling import Shapes
from rnnspec.check.subject import Subject, run_kernel, subject, with_kernel
from rnnspec.check.tolerances import REFERENCE
from rnnspec.check.values import against_reference, every_state, examples, named
from rnnspec.errors import RnnspecError, UnsupportedError
from rnnspec.language.load import load, spec_names
from rnnspec.language.spec import Spec

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Property:
    """One row of the table. needs_kernel: checked for every dtype; else once, on the definition."""

    name: str
    check: Callable[[Subject], Outcome]
    needs_kernel: bool


def _compiles(known: Subject) -> Outcome:
    """Machine code is made at the first call of each kind."""
    case = known.draw(Shapes(1, 1, (1,)), "compiles")
    run_kernel(known.compiled(), case)
    known.compiled().infer(case.params, case.inputs)
    return Outcome(detail="forward, backward and infer")


PROPERTIES = (
    Property("schema", named, False),
    Property("examples", examples, False),
    Property("adjoint, complex step", complex_step, False),
    Property("adjoint, dot product", dot_product, False),
    Property("compiles", _compiles, True),
    Property("examples", examples, True),
    Property("against the reference", against_reference, True),
    Property("every state", every_state, True),
    Property("central differences", differences, True),
    Property("split sequence", split_sequence, True),
    Property("batch independence", batch_independence, True),
    Property("thread independence", thread_independence, True),
    Property("padding", padding, True),
    Property("inputs untouched", untouched, True),
    Property("strides", strides, True),
    Property("zero sizes", zero_sizes, True),
    Property("same as", same_as, True),
)


def check_cells(cells: Sequence[str | os.PathLike[str] | Spec] | None = None, progress: Progress | None = None,
                dtypes: Sequence[str] = ("float32", "float64"), seed: int = 0) -> Report:
    """Checks every property of every cell, each option of its choices at least once.

    cells: names, paths or Specs; None: all that come with rnnspec. progress(what, done, total) is told of every property.
    A file that can't be read as a spec gives a failed "schema". The same seed draws the same points.
    """
    loaded = [entry for cell in (spec_names() if cells is None else cells) for entry in _load(cell)]
    per_cell = sum(not p.needs_kernel for p in PROPERTIES) + len(dtypes) * sum(p.needs_kernel for p in PROPERTIES)
    total, done = sum(per_cell for _, spec in loaded if isinstance(spec, Spec)), 0
    reports = []
    for name, spec in loaded:
        if not isinstance(spec, Spec):
            reports.append(CellReport(name, (Result("schema", REFERENCE, False, None, None, str(spec), 0.0),)))
            continue
        results = []
        for what, run in _jobs(spec, dtypes, seed):
            if progress is not None:
                progress(f"{name}: {what}", done, total)
            results.append(run())
            done += 1
        reports.append(CellReport(name, tuple(results)))
    if progress is not None:
        progress("done", total, total)
    return Report(tuple(reports))


def _load(cell: str | os.PathLike[str] | Spec) -> Iterator[tuple[str, Spec | Exception]]:
    """The Specs of a cell, one for each setting of its choices, or why there is none."""
    if isinstance(cell, Spec):
        yield _name(cell, {}), cell
        return
    try:
        spec = load(cell)
        yield spec.name, spec
        for number in range(1, max((len(c.options) for c in spec.choices.values()), default=1)):
            chosen = {n: c.options[min(number, len(c.options) - 1)] for n, c in spec.choices.items()}
            yield _name(spec, chosen), load(cell, **chosen)
    except (RnnspecError, OSError) as error:
        yield Path(cell).stem, error


def _name(spec: Spec, chosen: dict[str, str]) -> str:
    chosen = chosen or {n: c.chosen for n, c in spec.choices.items() if c.chosen != c.options[0]}
    return spec.name + (f" ({', '.join(f'{n}={v}' for n, v in chosen.items())})" if chosen else "")


def _jobs(spec: Spec, dtypes: Sequence[str], seed: int) -> Iterator[tuple[str, Callable[[], Result]]]:
    """What is to be run, the graphs and each kernel made once."""
    made: dict[str, Subject] = {}

    def known(dtype: str) -> Subject:
        if dtype not in made:
            made[dtype] = subject(spec, seed) if dtype == REFERENCE else with_kernel(known(REFERENCE), dtype)
        return made[dtype]

    for dtype in (REFERENCE, *dtypes):
        for row in PROPERTIES:
            if row.needs_kernel == (dtype != REFERENCE):
                yield f"{row.name}, {dtype}", lambda row=row, dtype=dtype: run_property(row, lambda: known(dtype), dtype)  # type: ignore[misc]


def run_property(row: Property, known: Callable[[], Subject], dtype: str) -> Result:
    """The result of one property; an error that it raises is a failure, except that a kernel may not be offered yet."""
    start = time.perf_counter()
    try:
        outcome = row.check(known())
    except UnsupportedError as error:
        outcome = Outcome(skipped=str(error))
    except Exception as error:  # a check reports whatever goes wrong in what it checks
        outcome = Outcome(float("inf"), 0.0, f"{type(error).__name__}: {error}")
    seconds = time.perf_counter() - start
    detail = outcome.skipped or outcome.detail
    return Result(row.name, dtype, outcome.passed, outcome.measured, outcome.tolerance, detail, seconds, bool(outcome.skipped))
