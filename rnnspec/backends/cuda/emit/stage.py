"""Program stage -> text of a kernel that does the stage's pointwise or row by row work over many
rows, whatever their size.

Rows lie one after another in global memory, n (one for each row of the batch) to a step. Products
were done before (products.py). Rows that have ended (`lengths`) are neither read nor written. What
is summed over rows is summed in parts, one for each thread that shares a unit's rows; `add_parts`
(moves.py) adds those in a fixed order.
"""

from __future__ import annotations

from dataclasses import dataclass

from rnnspec.backends.cuda.compile.source import Source
from rnnspec.backends.cuda.emit.rowwise import Group, first_phase, second_phase, waiting
from rnnspec.backends.cuda.emit.text import CudaText
from rnnspec.lowering.program import Program, Stage
from rnnspec.lowering.signature import gradient_sums
from rnnspec.symbolic.graph import size_of

THREADS = 128
ROW_THREADS = 64  # of a row, where whole rows are needed


def has_work(stage: Stage) -> bool:
    """Whether a stage does anything beside its products."""
    return bool(stage.nodes or stage.stores or stage.sums or stage.rowwise)


def stage_source(program: Program, stage: Stage, dtype: str, digest: str = "") -> Source:
    """The module of a stage's kernel."""
    work = CudaText(program, dtype)
    work.line("thread = uint64(cuda.threadIdx.x)")
    work.line("block = uint64(cuda.blockIdx.x)")
    if stage.rowwise:
        _rowwise(work, stage)
    else:
        _pointwise(work, stage)
    threads = ROW_THREADS if stage.rowwise else THREADS
    return work.source(
        "a stage over rows", digest, threads, ROW_THREADS * len(waiting(stage, work.graph)), size=stage.size
    )


def _pointwise(work: CudaText, stage: Stage) -> None:
    """A thread owns one unit, and of a chunk of rows every down-th."""
    work.header("lengths", "first", "count", "t0", "n", "chunk", "across")
    size, one = work.size(stage.size), work.u(1)
    work.line(f"down = {work.u(THREADS)} // across")
    work.line(f"part = block // (({size} + across - {one}) // across)")
    work.line(f"u = block % (({size} + across - {one}) // across) * across + thread % across")
    work.line("k = part * chunk + thread // across")
    work.line("end = part * chunk + chunk if part * chunk + chunk < count else count")
    with work.block(f"if u < {size}:"):
        for name in stage.reads(work.graph):
            if not work.program.is_read(name, "step") and (text := work.fixed(name, "u", "")):
                work.line(f"{work.value(name)} = {text}")
        totals = {
            number: work.name(f"sum {number}", f"d_{parameter}_sum")
            for number, (parameter, _) in enumerate(gradient_sums(work.graph, stage))
        }
        for total in totals.values():
            work.line(f"{total} = real(0.0)")
        work.line("b = k % n")
        work.line("t = t0 + k // n")
        with work.block("while k < end:"):
            with work.block("if t < lengths[b]:"):
                _row(work, stage, totals)
            work.line("k += down")
            work.line("b += down")
            with work.block("while b >= n:"):
                work.line("b -= n")
                work.line(f"t += {one}")
        for number, (parameter, _) in enumerate(gradient_sums(work.graph, stage)):
            parts = work.argument(f"parts {number}", f"d_{parameter}_parts")
            work.line(f"{parts}[(part * down + thread // across) * {size} + u] = {totals[number]}")


def _row(work: CudaText, stage: Stage, totals: dict[int, str]) -> None:
    work.line("row = first + k")
    work.line(f"at = row * {work.size(stage.size)} + u")
    for name in stage.reads(work.graph):
        if work.program.is_read(name, "step"):
            work.line(f"{work.value(name)} = {work.fixed(name, 'u', 'b')}")
        elif not work.fixed(name, "u", "b"):
            work.line(
                f"{work.value(name)} ="
                f" {work.pointer(work.program.places[name])}[{'row' if work.is_number(name, stage) else 'at'}]"
            )
    work.compute(stage.nodes)
    for value, place in dict.fromkeys(stage.stores):
        work.line(f"{work.pointer(place)}[at] = {work.value(value)}")
    for number, (_, value) in enumerate(gradient_sums(work.graph, stage)):
        work.line(f"{totals[number]} = {totals[number]} + {work.value(value)}")


@dataclass(frozen=True)
class _StageRows:
    """Elements of the row `row` in global memory."""

    work: CudaText
    stage: Stage

    def read(self, name: str, index: str) -> str:
        work = self.work
        return (
            work.fixed(name, index, "item % n")
            or f"{work.pointer(work.program.places[name])}[row * {work.size(size_of(work.graph, name))} + {index}]"
        )

    def write(self, name: str, index: str, text: str) -> None:
        work = self.work
        for place in dict.fromkeys([work.program.places[name], *(p for v, p in self.stage.stores if v == name)]):
            work.line(f"{work.pointer(place)}[row * {work.size(size_of(work.graph, name))} + {index}] = {text}")


def _rowwise(work: CudaText, stage: Stage) -> None:
    """A block works on one row at a time."""
    work.header("lengths", "first", "count", "t0", "n")
    access, group = _StageRows(work, stage), Group(work.u(ROW_THREADS), "thread", 0, ROW_THREADS)
    waits = waiting(stage, work.graph)
    if waits:
        work.line("sh = cuda.shared.array(0, real, alignment=16)")
    work.line("item = block")
    with work.block("while item < count:"):
        work.line("row = first + item")
        work.line("t = t0 + item // n")
        with work.block("if t < lengths[item % n]:  # the same for all threads"):
            first_phase(work, stage, access, group)
            if waits:
                work.line("cuda.syncthreads()")
            second_phase(work, stage, access, group)
        if waits:
            work.line("cuda.syncthreads()  # before the next row's parts")
        work.line("item += uint64(cuda.gridDim.x)")
