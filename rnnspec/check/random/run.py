"""The whole line from text to machine code over random specs: what `rnnspec check --random` does.

Each spec is loaded, built, differentiated (reverse and forward), scheduled and emitted, and every
representation verifies itself. The adjoint is compared with the tangent (dot product) and with a
complex step of the reference along one random direction of everything, the graph with a walk over
the syntax trees. Some are compiled too, and compared with the reference and with that walk.
"""

from __future__ import annotations

import ast
import random
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import numpy as np

from rnnspec.check.outcome import Sized
from rnnspec.check.properties.by_row import gradients_by_row, weights_by_row
from rnnspec.check.properties.derivatives import (
    agree,
    complex_derivative,
    directions,
    forward_derivative,
    reverse_derivative,
)
from rnnspec.check.properties.invariants import lengths
from rnnspec.check.properties.second import against_complex_step, gauss_newton, hessian_of_kernel, symmetry
from rnnspec.check.properties.tangents import claimed_structure, directions_of_kernel
from rnnspec.check.properties.values import against_reference
from rnnspec.check.properties.written import kept_as_written, run_is_as_written
from rnnspec.check.random.specs import random_spec
from rnnspec.check.sampling import Case, NoSampleError, Shapes, draw
from rnnspec.check.stopped import with_stopped
from rnnspec.check.subject import Subject, run_reference, with_kernel
from rnnspec.check.tolerances import COMPLEX_STEP, DOT_PRODUCT, LEAST
from rnnspec.errors import UnsupportedError
from rnnspec.language.load import loads
from rnnspec.lowering.pipeline import HVP, JVP, MODES, programs, stages
from rnnspec.lowering.program import Program
from rnnspec.symbolic.tangent import tangent

DTYPES = ("float32", "float64")
# what more kernels are compiled for: one of these for each spec whose kernels are
OTHERS: tuple[tuple[Sized, ...], ...] = (
    (directions_of_kernel,),
    (hessian_of_kernel, gauss_newton),
    (gradients_by_row, weights_by_row),
    (),
)
SMALL = (Shapes(3, 2, (3, 2, 4)), Shapes(4, 3, (1, 4, 2), ragged=True))


class Unchecked(Enum):
    """What was not checked. The value is what its notes begin with in a report."""

    KERNELS = "kernels: "


class Note(NamedTuple):
    """What was not checked, and why."""

    kind: Unchecked
    text: str

    def __str__(self) -> str:
        return f"{self.kind.value}{self.text}"


@dataclass
class RandomReport:
    """checked: how many specs; compiled: of how many the kernels ran and were right; notes: how
    often something was not checked, and why; failures: seed, what, and the text."""

    checked: int = 0
    compiled: int = 0
    seconds: float = 0.0
    notes: Counter[Note] = field(default_factory=Counter)
    failures: list[tuple[int, str, str]] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.failures

    def to_text(self) -> str:
        lines = [
            f"{self.checked} random specs, {self.compiled} of them compiled, {len(self.failures)} failed, in"
            f" {self.seconds:.0f} s"
        ]
        lines += [f"  {count} times: {note}" for note, count in self.notes.most_common()]
        lines += [f"FAILED seed {seed}: {what}\n{text}" for seed, what, text in self.failures]
        return "\n".join(lines)


def check_random(
    count: int, compiled: int = 0, first: int = 0, progress: Callable[[str, int, int], None] | None = None
) -> RandomReport:
    """Checks the random specs of the seeds `first`, `first + 1`, ...; `compiled` of them, evenly
    spread, by running their kernels."""
    report = RandomReport()
    start = time.perf_counter()
    every, tried = max(1, count // compiled) if compiled else 0, 0
    for seed in range(first, first + count):
        text = random_spec(random.Random(seed), f"random_{seed}")
        kernels = bool(every) and (seed - first) % every == 0 and tried < compiled
        tried += kernels
        try:
            notes = check_text(text, seed, kernel=kernels)
            report.notes.update(notes)
            report.compiled += kernels and not any(note.kind is Unchecked.KERNELS for note in notes)
        except Exception as error:  # whatever goes wrong in what is checked
            place = traceback.extract_tb(error.__traceback__)[-1]
            report.failures.append(
                (seed, f"{type(error).__name__}: {error} ({place.filename.rpartition('/')[2]}:{place.lineno})", text)
            )
        report.checked += 1
        report.seconds = time.perf_counter() - start
        if progress is not None:
            progress(f"{len(report.failures)} failed", report.checked, count)
    return report


def check_text(text: str, seed: int = 0, *, kernel: bool = False) -> list[Note]:
    """Checks one spec; raises AssertionError or whatever the engine raises. Returns what was not
    checked, and why.

    kernel: whether its kernels are compiled and compared with the reference. The text decides for
    which dtype, which of the kernels are emitted where none is compiled, whether rows have lengths,
    and which of those with directions or by row are compiled too: a run over many specs has all of
    them.
    """
    spec, chance = loads(text), zlib.crc32(text.encode())
    dtype, mode = DTYPES[chance % 2], MODES[chance // 2 % 3]
    made = stages(spec)
    known = Subject(spec, made.graph, made.adjoint, tangent(made.graph, spec.no_gradient), seed=seed)
    for graph in (made.graph, made.adjoint, made.once, known.forward_mode):
        graph.verify()
    for program in (made.forward, made.backward, made.infer):
        program.verify()
    written = kept_as_written.at(known, Shapes(2, 16, (1,)))
    assert written.passed, f"as written: {written.detail}: {written.measured:.1e}"
    notes: list[Note] = []
    _derivatives(known, SMALL[chance // 6 % 2])
    claimed = claimed_structure.at(known, Shapes(2, 2, (3, 2, 4)))
    assert claimed.passed, f"structure: {claimed.detail}: {claimed.measured}"
    try:
        _emit(getattr(made, mode), dtype)
        along = tuple(JVP)[chance // 12 % 4]
        _emit(programs(spec, (along,))[along], dtype)
        taped = tuple(HVP)[chance // 12 % 4]
        for program in programs(spec, taped).values():
            _emit(program, dtype)
        if kernel:
            _kernels(known, dtype)
            _others(known, dtype, OTHERS[chance // 48 % len(OTHERS)])
    except (UnsupportedError, NoSampleError) as error:
        reason = str(error).split(": ", 1)[-1]  # without the cell's name, so that equal reasons are counted as one
        notes.append(Note(Unchecked.KERNELS, " ".join(reason.split())[:90]))
    return notes


def _derivatives(known: Subject, shapes: Shapes) -> None:
    """The adjoint against the tangent and against a complex step, along one direction of all."""
    case = draw(known.spec, known.graph, shapes, known.seed)
    along = directions(known, case, np.random.default_rng(known.seed))
    reverse, size = reverse_derivative(run_reference(known, case), along)
    ahead, _ = forward_derivative(known, case, along)
    checked = [
        agree(reverse, ahead, max(size, LEAST), DOT_PRODUCT, f"dot product: tangent {ahead!r}, adjoint {reverse!r}")
    ]
    _second(known, case)
    step = complex_derivative(with_stopped(known.graph, case), case, along)
    checked.append(agree(reverse, step, max(size, LEAST), COMPLEX_STEP, f"complex step {step!r}, adjoint {reverse!r}"))
    for outcome in checked:
        assert outcome.passed, outcome.detail


def _second(known: Subject, case: Case) -> None:
    """The tangent of the adjoint: u'Hv = v'Hu, and against a complex step of the adjoint."""
    for outcome in (symmetry(known, case, LEAST), against_complex_step(known, case, LEAST)):
        assert outcome.passed, f"Hessian: {outcome.detail}: {outcome.measured:.1e}"


def _emit(program: Program, dtype: str) -> None:
    from rnnspec.backends.cpu.emit.emission import Target
    from rnnspec.backends.cpu.emit.kernel import emit
    from rnnspec.backends.cpu.machine import host
    from rnnspec.backends.cpu.processor import VECTORS

    program.verify()
    ast.parse(emit(program, Target(dtype, host().lanes[dtype], VECTORS), "random"))


def _kernels(known: Subject, dtype: str) -> None:
    """The properties of the battery that cost no further compiling, at sizes of which one is
    ragged."""
    made = with_kernel(known, dtype)
    lanes = made.lanes()
    ragged = Shapes(5, 4, (lanes, lanes - 1, 2 * lanes + 1), ragged=True, number=1)
    for check, shapes in (
        (against_reference, Shapes(4, 3, (5, lanes + 1, 2))),
        (against_reference, ragged),
        (lengths, ragged),
        (run_is_as_written, Shapes(3, 3, (2, 3, 2))),
    ):
        outcome = check.at(made, shapes)
        assert outcome.passed, f"{dtype} kernel: {outcome.detail}: {outcome.measured:.1e}"


def _others(known: Subject, dtype: str, properties: tuple[Sized, ...]) -> None:
    """Properties that more kernels are compiled for."""
    made = with_kernel(known, dtype)
    for check in properties:
        outcome = check.at(made, Shapes(4, 4, (5, made.lanes() + 1, 2), ragged=True, number=1))
        assert outcome.passed, f"{dtype} kernel: {outcome.detail}: {outcome.measured:.1e}"
