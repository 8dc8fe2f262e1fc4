"""The table of properties, and running it over cells."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path

from rnnspec.check.outcome import Outcome, Sized
from rnnspec.check.properties.by_row import gradients_by_row, weights_by_row
from rnnspec.check.properties.claims import same_as
from rnnspec.check.properties.constraints import constraints_kept
from rnnspec.check.properties.derivatives import complex_step, differences, dot_product
from rnnspec.check.properties.invariants import (
    lengths,
    nan_row,
    padding,
    permutation,
    reversed_time,
    rows_alone,
    split_sequence,
    thread_independence,
)
from rnnspec.check.properties.online import online_gradients
from rnnspec.check.properties.second import (
    gauss_newton,
    hessian_complex_step,
    hessian_differences,
    hessian_of_kernel,
    hessian_symmetry,
)
from rnnspec.check.properties.tangents import (
    claimed_structure,
    directions_of_kernel,
    jacobians,
    tangent_complex_step,
)
from rnnspec.check.properties.usage import (
    low_memory,
    saturation,
    second_run,
    step_by_step,
    strides,
    untouched,
    zero_sizes,
)
from rnnspec.check.properties.values import against_reference, every_state, examples, named, on_a_gpu
from rnnspec.check.properties.written import kept_as_written, run_is_as_written
from rnnspec.check.report import CellReport, Report, Result
from rnnspec.check.sampling import Shapes
from rnnspec.check.shrink import attempt, smallest, snippet
from rnnspec.check.subject import Origin, Subject, run_kernel, subject, with_kernel
from rnnspec.check.tolerances import REFERENCE
from rnnspec.errors import RnnspecError
from rnnspec.language.load import load, spec_names
from rnnspec.language.spec import Spec
from rnnspec.language.syntax.faults import did_you_mean

Progress = Callable[[str, int, int], None]
DTYPES = ("float32", "float64")


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
    known.compiled().infer(case.params, case.inputs, case.states, **case.extent)
    return Outcome(detail="forward, backward and infer")


PROPERTIES = (
    Property("schema", named, False),
    Property("examples", examples, False),
    Property("adjoint, complex step", complex_step, False),
    Property("adjoint, dot product", dot_product, False),
    Property("tangent, complex step", tangent_complex_step, False),
    Property("Hessian, symmetry", hessian_symmetry, False),
    Property("Hessian, complex step", hessian_complex_step, False),
    Property("Hessian, 50 digits", hessian_differences, False),
    Property("structure", claimed_structure, False),
    Property("as written", kept_as_written, False),
    Property("constraints", constraints_kept, False),
    Property("compiles", _compiles, True),
    Property("examples", examples, True),
    Property("against the reference", against_reference, True),
    Property("as written", run_is_as_written, True),
    Property("every state", every_state, True),
    Property("central differences", differences, True),
    Property("gradients by row", gradients_by_row, True),
    Property("weights by row", weights_by_row, True),
    Property("directions", directions_of_kernel, True),
    Property("Jacobians", jacobians, True),
    Property("Hessian", hessian_of_kernel, True),
    Property("Gauss-Newton", gauss_newton, True),
    Property("split sequence", split_sequence, True),
    Property("rows alone", rows_alone, True),
    Property("batch permutation", permutation, True),
    Property("row of NaN", nan_row, True),
    Property("padding", padding, True),
    Property("lengths", lengths, True),
    Property("reversed time", reversed_time, True),
    Property("thread independence", thread_independence, True),
    Property("strides", strides, True),
    Property("inputs untouched", untouched, True),
    Property("second run", second_run, True),
    Property("saturation", saturation, True),
    Property("zero sizes", zero_sizes, True),
    Property("low memory", low_memory, True),
    Property("step by step", step_by_step, True),
    Property("online", online_gradients, True),
    Property("same as", same_as, True),
    Property("on a GPU", on_a_gpu, True),
)


def check_cells(
    cells: Sequence[str | os.PathLike[str] | Spec] | None = None,
    progress: Progress | None = None,
    dtypes: Sequence[str] = DTYPES,
    seed: int = 0,
    *,
    properties: Sequence[str] = (),
    settings: Mapping[str, object] | None = None,
) -> Report:
    """Checks every property of every cell, each option of its choices at least once.

    cells: names, paths or Specs; None: all that come with rnnspec. progress(what, done, total) is
    told of every property. dtypes: of the kernels; none: the definition alone. properties: the
    names of those that are checked; none: all. settings: choices and constants of the cells, which
    are then checked with these alone. A file that can't be read as a spec gives a failed "schema".
    The same seed draws the same points. Raises UnknownProperty.
    """
    each = check_each(cells, progress, dtypes, seed, properties=properties, settings=settings)
    return Report(
        tuple(
            CellReport(variant.name, tuple(r for _, results in those for r in results))
            for variant, those in groupby(each, lambda found: found[0])
        )
    )


def check_each(
    cells: Sequence[str | os.PathLike[str] | Spec] | None = None,
    progress: Progress | None = None,
    dtypes: Sequence[str] = DTYPES,
    seed: int = 0,
    *,
    properties: Sequence[str] = (),
    settings: Mapping[str, object] | None = None,
) -> Iterator[tuple[Variant, tuple[Result, ...]]]:
    """As `check_cells`, one property after the other as it is found: the cell with its choices, and
    the property's results, one for each dtype."""
    table = table_of(dtypes, properties)
    loaded = [entry for cell in (spec_names() if cells is None else cells) for entry in variants(cell, settings)]
    total, done = sum(len(table) for v in loaded if isinstance(v.spec, Spec)), 0
    for variant in loaded:
        if not isinstance(variant.spec, Spec):
            yield variant, (Result("schema", REFERENCE, False, None, None, str(variant.spec), 0.0),)
            continue
        subjects = Subjects(variant, seed)
        for row, group in groupby(table, lambda entry: entry[0]):
            results = []
            for _, dtype in group:
                if progress is not None:
                    progress(f"{variant.name}: {row.name}, {dtype}", done, total)
                results.append(run_property(row, partial(subjects, dtype), dtype))
                done += 1
            yield variant, tuple(results)
    if progress is not None:
        progress("done", total, total)


def check_property(
    cell: str | os.PathLike[str] | Spec,
    name: str,
    dtype: str,
    *,
    steps: int | None = None,
    rows: int = 1,
    sizes: Mapping[str, int] | None = None,
    ragged: bool = False,
    number: int = 0,
    seed: int = 0,
    **settings: object,
) -> Result:
    """Checks one property of one cell, where `steps` is given at those sizes only: what a failed
    check prints to be repeated.

    cell: a name, a path or a Spec. name, dtype: as in the report, dtype "reference" for what needs
    no kernel. steps, rows, sizes: those of the case. ragged: rows have lengths. number: which of
    the property's points. seed: of all that is drawn. settings: choices and constants of the cell.
    Raises ValueError for a property that there is not.
    """
    row = next((row for row, of in table_of((dtype,), (name,)) if of == dtype), None)
    if row is None:
        raise UnknownProperty(f"there is no property {name!r} for {dtype}.")
    spec = cell if isinstance(cell, Spec) else load(cell, **settings)
    origin = None if isinstance(cell, Spec) else (str(cell), settings)
    known, check = partial(Subjects(Variant(spec.name, spec, origin), seed), dtype), row.check
    if steps is None or not isinstance(check, Sized):
        return run_property(row, known, dtype)
    shapes = Shapes(steps, rows, dict(sizes or {}), ragged, number)
    return run_property(replace(row, check=lambda subject: check.at(subject, shapes)), known, dtype)


@dataclass(frozen=True, eq=False)
class Variant:
    """A cell with one setting of its choices, or why there is none. origin: the arguments for
    `load` that make it."""

    name: str
    spec: Spec | Exception
    origin: Origin | None = None


def variants(cell: str | os.PathLike[str] | Spec, settings: Mapping[str, object] | None = None) -> Iterator[Variant]:
    """The Specs of a cell, one for each setting of its choices, so that every option is there once,
    or why there is none. settings: choices and constants; then there is one Spec, with these."""
    if isinstance(cell, Spec):
        yield Variant(_name(cell, {}), cell)
        return
    try:
        if settings:
            spec = load(cell, **settings)
            yield Variant(_name(spec, settings), spec, (str(cell), settings))
            return
        spec = load(cell)
        yield Variant(spec.name, spec, (str(cell), {}))
        for number in range(1, max((len(c.options) for c in spec.choices.values()), default=1)):
            chosen = {n: c.options[min(number, len(c.options) - 1)] for n, c in spec.choices.items()}
            yield Variant(_name(spec, chosen), load(cell, **chosen), (str(cell), chosen))
    except (RnnspecError, OSError) as error:
        yield Variant(Path(cell).stem, error)


def _name(spec: Spec, chosen: Mapping[str, object]) -> str:
    chosen = chosen or spec.settings
    return spec.name + (f" ({', '.join(f'{n}={v}' for n, v in chosen.items())})" if chosen else "")


class Subjects:
    """Gives the Subject of a variant for each dtype; the graphs and each kernel are made once."""

    def __init__(self, variant: Variant, seed: int):
        self.variant, self.seed = variant, seed
        self.by_dtype: dict[str, Subject] = {}

    def __call__(self, dtype: str) -> Subject:
        if dtype not in self.by_dtype:
            assert isinstance(self.variant.spec, Spec)
            reference = dtype == REFERENCE
            self.by_dtype[dtype] = (
                subject(self.variant.spec, self.seed, self.variant.origin)
                if reference
                else with_kernel(self(REFERENCE), dtype)
            )
        return self.by_dtype[dtype]


class UnknownProperty(RnnspecError, ValueError):
    """A property that there is not; the message has the names of those that there are."""


def table_of(dtypes: Sequence[str] = DTYPES, properties: Sequence[str] = ()) -> list[tuple[Property, str]]:
    """The properties in the order in which they are checked, each with its dtype; all, or those of
    some names. Raises UnknownProperty."""
    names = [p.name for p in PROPERTIES]
    for name in properties:
        if name not in names:
            known = ", ".join(f"'{n}'" for n in dict.fromkeys(names))
            raise UnknownProperty(f"there is no property '{name}'.{did_you_mean(name, names)} There are: {known}.")
    chosen = [p for p in PROPERTIES if not properties or p.name in properties]
    return [(row, dtype) for row in chosen for dtype in (dtypes if row.needs_kernel else (REFERENCE,))]


def run_property(row: Property, known: Callable[[], Subject], dtype: str) -> Result:
    """The result of one property; an error that it raises is a failure, except that a kernel may
    not be offered yet. What fails is shrunk to a small case, and the Python that repeats it goes
    with the result."""
    start = time.perf_counter()
    repeat = ""
    outcome = attempt(lambda: row.check(known()))
    if not outcome.passed and (failing := attempt_subject(known)) is not None:
        if isinstance(row.check, Sized):
            outcome = smallest(row.check, failing, outcome)
        repeat = snippet(row.name, failing, outcome)
    seconds = time.perf_counter() - start
    detail = outcome.skipped or outcome.detail
    return Result(
        row.name,
        dtype,
        outcome.passed,
        outcome.measured,
        outcome.tolerance,
        detail,
        seconds,
        bool(outcome.skipped),
        repeat,
    )


def attempt_subject(known: Callable[[], Subject]) -> Subject | None:
    """None where the graphs can't even be built: there is nothing to shrink then."""
    try:
        return known()
    except Exception:  # what went wrong stands in the outcome already
        return None
