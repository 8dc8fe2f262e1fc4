"""Faults planted in the generator, and the property of `rnnspec check` that catches each.

`python tests/helpers/mutations.py` prints the table of all of them (Markdown): the fault, where it
is planted, and every property that fails. Each mutant is one wrong thing: in the table of
functions, in a graph, its adjoint or tangent, in a program, in emitted text or in what calls the
kernels.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from unittest import mock

import numpy as np
from tiny import cell

from rnnspec.backends.cpu.emit.emission import Target
from rnnspec.backends.cpu.emit.kernel import emit
from rnnspec.backends.cpu.emit.texts import text_of
from rnnspec.backends.cpu.launch import rows, segments
from rnnspec.backends.cpu.machine import host
from rnnspec.backends.cpu.processor import VECTORS
from rnnspec.check import subject as subjects
from rnnspec.check.properties import tangents
from rnnspec.check.run import PROPERTIES
from rnnspec.check.shrink import attempt
from rnnspec.check.subject import Subject, subject, with_kernel
from rnnspec.engine import cpu
from rnnspec.engine.cpu import CpuKernel
from rnnspec.language.load import load, loads
from rnnspec.lowering.pipeline import made_together, programs
from rnnspec.lowering.program import Accumulation, Program, Stage, Term
from rnnspec.symbolic.graph import Graph, Node, Pointwise, Product
from rnnspec.symbolic.operations import symbol

TAPS = cell(
    "a[t] = W @ x[t-1] + V @ x[t]\nh[t] = tanh(a[t] + u * h[t-2])",
    name="tapped",
    inputs="{x: D}",
    states="{h: H}",
    parameters="{W: [H, D], V: [H, D], u: [H]}",
)
TWICE = cell(
    "h[t] = tanh(W @ x[t] + U @ h[t-1]) + 0.5 * (U @ h[t-1])",
    name="twice",
    inputs="{x: D}",
    states="{h: H}",
    parameters="{W: [H, D], U: [H, H]}",
)
DTYPE = np.dtype("float64")


@dataclass(frozen=True)
class Mutant:
    """what: the fault in words. make: the Subject that has it. caught: the property that is meant
    to catch it."""

    what: str
    where: str
    cell: str
    caught: str
    make: Callable[[], Subject]
    around: Callable[[], Any] = ExitStack  # a context in which the properties run

    def failures(self, first_only: bool = False) -> list[str]:
        """The properties that fail."""
        found = []
        with self.around():
            known = self.make()
            for row in PROPERTIES:
                if row.needs_kernel == (known.kernel is not None) and (not first_only or row.name == self.caught):
                    outcome = attempt(lambda row=row: row.check(known))  # type: ignore[misc]
                    raised = " raised" * bool(
                        RAISED.match(outcome.detail)
                    )  # a mutant that can't run shows nothing of what a property compares
                    found += [f"{row.name}{raised}"] if not outcome.passed and not outcome.skipped else []
        return found


RAISED = re.compile(r"\w+(Error|Exception|Interrupt): ")


def spec_of(name: str) -> Any:
    return loads(name) if "\n" in name else load(name)


@cache
def right(name: str) -> Subject:
    return subject(spec_of(name))


@cache
def right_kernel(name: str) -> Subject:
    return with_kernel(right(name), "float64")


# --- the mathematics: a wrong graph; no kernel is needed to catch it ---


def graph_mutant(what: str, name: str, caught: str, change: Callable[[Graph], Graph], part: str = "reverse") -> Mutant:
    where = {"reverse": "adjoint", "graph": "graph", "forward_mode": "tangent"}[part]
    return Mutant(
        what,
        where,
        "a cell with taps" if name == TAPS else "a matrix used twice" if name == TWICE else name,
        caught,
        lambda: replace(right(name), **{part: change(getattr(right(name), part))}),
    )


def node(name: str, change: Callable[[Any], Node]) -> Callable[[Graph], Graph]:
    return lambda graph: replace(graph, nodes={n: change(m) if n == name else m for n, m in graph.nodes.items()})


def summed(parameter: str, change: Callable[[tuple[str, ...]], tuple[str, ...]]) -> Callable[[Graph], Graph]:
    def changed(graph: Graph) -> Graph:
        assert change(graph.sums[parameter]) != graph.sums[parameter]
        return replace(graph, sums={**graph.sums, parameter: change(graph.sums[parameter])})

    return changed


@contextmanager
def derivative(function: str, text: Callable[[Any], Any]) -> Iterator[None]:
    """Another derivative of a function of the table, in all that is built meanwhile."""
    import sympy

    from rnnspec.symbolic.expressions import FUNCTION_CLASSES

    sympy.core.cache.clear_cache()
    with mock.patch.object(FUNCTION_CLASSES[function], "fdiff", lambda self, argindex=1: text(self)):
        yield
    sympy.core.cache.clear_cache()


def without_tap(graph: Graph) -> Graph:
    """The gradient that flows to x one step back is lost."""
    state = next(s for s in graph.states if s.startswith("x"))
    shape, zero = graph.shapes[graph.states[state]], Pointwise(symbol(next(iter(graph.nodes))) * 0)
    return replace(
        graph,
        nodes={**graph.nodes, "nothing": zero},
        shapes={**graph.shapes, "nothing": shape},
        states={**graph.states, state: "nothing"},
    )


MATHEMATICS = (
    graph_mutant(
        "a term of a sum dropped", "lstm", "adjoint, complex step", node("d_c", lambda n: Pointwise(n.expr.args[0]))
    ),
    graph_mutant("a sign swapped", "lstm", "adjoint, complex step", node("d_o", lambda n: Pointwise(-n.expr))),
    graph_mutant(
        "a constant off by 1e-9",
        "lstm",
        "adjoint, complex step",
        node("d_a_f", lambda n: Pointwise(n.expr * (1 + 1e-9))),
    ),
    graph_mutant(
        "a transpose forgotten",
        "lstm",
        "adjoint, complex step",
        node("U_f_d_U_f_h_prev", lambda n: Product(n.matrix, n.vector, False)),
    ),
    graph_mutant(
        "the matrix of another gate",
        "lstm",
        "adjoint, complex step",
        node("U_f_d_U_f_h_prev", lambda n: Product("U_i", n.vector, True)),
    ),
    graph_mutant(
        "the new state for the old",
        "lstm",
        "adjoint, complex step",
        node("d_f", lambda n: Pointwise(symbol("c") * symbol("d_c"))),
    ),
    graph_mutant(
        "the gradient of the bias of another gate",
        "lstm",
        "adjoint, complex step",
        summed("b_i", lambda old: ("d_a_f",)),
    ),
    graph_mutant(
        "one of two uses of a matrix left out of its gradient",
        TWICE,
        "adjoint, complex step",
        summed("U", lambda old: old[:-1]),
    ),
    graph_mutant("the gradient through a tap lost", TAPS, "adjoint, complex step", without_tap),
    graph_mutant(
        "gates i and f exchanged",
        "lstm",
        "examples",
        node(
            "c",
            lambda n: Pointwise(n.expr.subs({symbol("i"): symbol("f"), symbol("f"): symbol("i")}, simultaneous=True)),
        ),
        "graph",
    ),
    graph_mutant(
        "the tangent of a gate doubled",
        "gru",
        "adjoint, dot product",
        node("dot_n", lambda n: Pointwise(2 * n.expr)),
        "forward_mode",
    ),
    graph_mutant(
        "the direction of a matrix left out",
        "lstm",
        "tangent, complex step",
        node("dot_a_f", lambda n: Pointwise(n.expr.func(*(a for a in n.expr.args if str(a) != "U_f_h_prev_part_")))),
        "forward_mode",
    ),
    Mutant(
        "a wrong row of the table: tanh' = 1 - y",
        "table of functions",
        "rnn",
        "adjoint, complex step",
        lambda: subject(load("rnn")),
        lambda: derivative("tanh", lambda y: 1 - y),
    ),
    Mutant(
        "a wrong row of the table: sigmoid' = y",
        "table of functions",
        "gru",
        "adjoint, complex step",
        lambda: subject(load("gru")),
        lambda: derivative("sigmoid", lambda y: y),
    ),
)

# --- the program: right graphs, executed wrongly ---


class Emitted(CpuKernel):
    """A kernel of other texts; modes that are not changed run the code that is there."""

    changed: dict[str, str] = {}

    def source(self, mode: str = "forward") -> str:
        return self.changed.get(mode) or text_of(self.spec, self.dtype.name, mode)


def with_texts(name: str, changed: dict[str, str]) -> Subject:
    known = right_kernel(name)
    kernel = type("Emitted", (Emitted,), {"changed": changed})(known.spec, DTYPE, None)
    return replace(known, kernel=kernel)


def program_mutant(
    what: str,
    name: str,
    caught: str,
    change: Callable[[Program], Program],
    modes: tuple[str, ...] = ("forward", "infer"),
) -> Mutant:
    def make() -> Subject:
        made = programs(spec_of(name), made_together(modes[0]))
        target = Target(DTYPE.name, host().lanes[DTYPE.name], VECTORS)
        changed = {m: emit(change(made[m]), target, "mutant") for m in modes}
        for mode, text in changed.items():
            assert text != emit(made[mode], target, "mutant"), f"{what}: nothing changed in {mode}"
        return with_texts(name, changed)

    return Mutant(what, "program", name, caught, make)


def over_stages(change: Callable[[Stage], Stage]) -> Callable[[Program], Program]:
    return lambda p: replace(
        p, before=tuple(map(change, p.before)), loop=tuple(map(change, p.loop)), after=tuple(map(change, p.after))
    )


def over_accumulations(change: Callable[[Accumulation], Accumulation]) -> Callable[[Program], Program]:
    return over_stages(
        lambda s: replace(
            s, panels=tuple(replace(p, accumulations=tuple(map(change, p.accumulations))) for p in s.panels)
        )
    )


def of_value(name: str, change: Callable[[Accumulation], Accumulation]) -> Callable[[Program], Program]:
    return over_accumulations(lambda a: change(a) if a.value == name else a)


def exchanged(p: Program) -> Program:
    """The rows of two gates of a packed panel, one for the other."""
    other = {"a_i": "a_f", "a_f": "a_i"}
    return over_accumulations(lambda a: replace(a, value=other.get(a.value, a.value)))(p)


def turned(a: Accumulation) -> Accumulation:
    return replace(a, terms=tuple(Term(t.matrix, t.operand, not t.transposed) for t in a.terms))


def of_outer(parameter: str, **changes: str) -> Callable[[Program], Program]:
    return lambda p: replace(
        p, outers=tuple(replace(o, **changes) if o.parameter == parameter else o for o in p.outers)
    )


def of_place(value: str, shift: int) -> Callable[[Program], Program]:
    return lambda p: replace(p, places={**p.places, value: replace(p.places[value], shift=shift)})


def sums_exchanged(p: Program) -> Program:
    def changed(stage: Stage) -> Stage:
        values = [v for _, v in stage.sums]
        return replace(stage, sums=tuple((n, v) for (n, _), v in zip(stage.sums, values[1:] + values[:1])))

    return over_stages(changed)(p)


PROGRAMS = (
    program_mutant("two gates of a packed panel exchanged", "lstm", "against the reference", exchanged),
    program_mutant("a bias left out", "rnn", "examples", over_accumulations(lambda a: replace(a, biases=()))),
    program_mutant(
        "the input's part overwritten by the recurrent one",
        "rnn",
        "against the reference",
        over_accumulations(lambda a: replace(a, first=True)),
    ),
    program_mutant(
        "a product transposed", "rnn", "against the reference", of_value("U_d_U_h_prev", turned), ("backward",)
    ),
    program_mutant(
        "a weight gradient from another gate",
        "lstm",
        "central differences",
        of_outer("U_i", left="d_a_f"),
        ("backward",),
    ),
    program_mutant(
        "a weight gradient with the state after the step",
        "rnn",
        "central differences",
        of_outer("U", right="h"),
        ("backward",),
    ),
    program_mutant(
        "tape off by one: the state before the step for the one after it",
        "rnn",
        "against the reference",
        of_place("h", 0),
        ("backward",),
    ),
    program_mutant(
        "the input's part of a direction overwritten by the recurrent one",
        "rnn",
        "directions",
        of_value("dot_a_h_sum", lambda a: replace(a, first=True)),
        ("jvp",),
    ),
    program_mutant(
        "half of the second derivative by a matrix, twice",
        "rnn",
        "Hessian",
        of_outer("tangent of U", left="d_a_h", right="dot_h_prev"),
        ("hvp",),
    ),
    program_mutant(
        "the direction of a matrix not transposed on the way back",
        "rnn",
        "Hessian",
        of_value(
            "dot_U_d_U_h_prev",
            lambda a: replace(a, terms=tuple(replace(t, transposed=t.matrix != "dot_U") for t in a.terms)),
        ),
        ("hvp",),
    ),
    program_mutant("bias gradients dealt out wrongly", "lstm", "central differences", sums_exchanged, ("backward",)),
)

# --- emitted text ---


def text_mutant(what: str, name: str, caught: str, mode: str, old: str, new: str, count: int = -1) -> Mutant:
    def make() -> Subject:
        text = text_of(spec_of(name), DTYPE.name, mode)
        assert old in text, f"{what}: {old!r} does not stand in the text"
        return with_texts(name, {mode: text.replace(old, new, count)})

    return Mutant(what, f"text of {mode}", name, caught, make)


WAIT = "            if owners > 1:\n                wait(barrier, parts, yielding)\n"
TEXTS = (
    text_mutant("a missing barrier between the steps", "rnn", "thread independence", "forward", WAIT, ""),
    text_mutant(
        "a missing barrier between two stages", "gru_reset_before", "thread independence", "backward", WAIT, "", 2
    ),
    text_mutant(
        "a row of a step that no thread takes",
        "rnn",
        "thread independence",
        "forward",
        "low, high = n * part // parts, n * (part + 1) // parts",
        "low, high = n * part // parts, n * (part + 1) // parts - part",
    ),
    text_mutant("the padding of inputs read", "rnn", "padding", "forward", "n, active, D, D_row)", "n, 0, D, D_row)"),
    text_mutant(
        "the final state of a short row taken at the last step",
        "rnn",
        "lengths",
        "forward",
        "end = steps if lengths == 0 else min(steps, get(pointer_int(lengths), k) - t0)",
        "end = steps",
    ),
    text_mutant(
        "the gradient of a short row's final state put in at the last step",
        "rnn",
        "lengths",
        "backward",
        "end = steps if lengths == 0 else min(steps, get(pointer_int(lengths), k) - t0)",
        "end = steps",
    ),
    text_mutant(
        "the mask of ended rows dropped",
        "rnn",
        "lengths",
        "backward",
        "store(d_a_h_rows, k, number(0.0))",
        "store(d_a_h_rows, k, number(1.0))",
    ),
    text_mutant(
        "chunks of the backward pass from the first to the last",
        "rnn",
        "split sequence",
        "backward",
        "6 * (chunks - 1 - chunk)",
        "6 * chunk",
    ),
    text_mutant(
        "steps of the backward pass from the first to the last",
        "rnn",
        "central differences",
        "backward",
        "for s in range(steps - 1, -1, -1):",
        "for s in range(steps):",
    ),
    text_mutant(
        "the new state written over the old",
        "rnn",
        "against the reference",
        "forward",
        "store(h_history_next_rows, offset, h)",
        "store(h_history_rows, offset, h)",
    ),
    text_mutant(
        "the initial state ignored",
        "rnn",
        "split sequence",
        "forward",
        "store(h_history_rows, k * H_row + p, load(pointer(get(table, 41)), k * H_row + p))",
        "store(h_history_rows, k * H_row + p, number(0.0))",
    ),
    text_mutant(
        "two buffers exchanged",
        "gru_reset_before",
        "against the reference",
        "backward",
        "z = load(z_rows, offset)",
        "z = load(r_rows, offset)",
    ),
    text_mutant(
        "a sum over rows that keeps the last row only",
        "rnn",
        "central differences",
        "backward",
        "d_b_sum = d_b_sum + d_a_h",
        "d_b_sum = d_a_h",
    ),
    text_mutant(
        "the gradient of the output forgotten",
        "rnn",
        "examples",
        "backward",
        "d_h = d_h_next + d_h_out",
        "d_h = d_h_next + number(0.0) * d_h_out",
    ),
    text_mutant(
        "the gradient from the next step subtracted",
        "rnn",
        "examples",
        "backward",
        "d_h = d_h_next + d_h_out",
        "d_h = d_h_out - d_h_next",
    ),
    text_mutant(
        "a constant in single precision",
        "rnn",
        "against the reference",
        "backward",
        "number(1.0) - ",
        "number(1.0000001) - ",
    ),
    text_mutant(
        "the last vector of units left out",
        "rnn",
        "against the reference",
        "forward",
        "min(H_row, (group + 1) * ",  # how many vectors a group has depends on the machine
        "min(H_row - lanes, (group + 1) * ",
    ),
    text_mutant(
        "inference wrong where training is right",
        "rnn",
        "against the reference",
        "infer",
        "a_h = load(a_h_rows, offset)",
        "a_h = load(a_h_rows, 0)",
    ),
    text_mutant(
        "the columns of an input one for another",
        "rnn",
        "directions",
        "jvp",
        " + column * D_row * item + s_first",
        " + (columns - 1 - column) * D_row * item + s_first",
    ),
    text_mutant(
        "the directions of a bias from the first column",
        "rnn",
        "directions",
        "jvp",
        "load(tangent_of_b_vector, column * H_row + p)",
        "load(tangent_of_b_vector, p)",
    ),
    text_mutant(
        "the final direction of a short row taken at the last step",
        "rnn",
        "directions",
        "jvp",
        "((end * n + k) * columns + column)",
        "((steps * n + k) * columns + column)",
    ),
    text_mutant(
        "the tape of directions read from its first column",
        "rnn",
        "Hessian",
        "hvp",
        "dot_h = load(tangent_of_h_history_next_rows, at_column)",
        "dot_h = load(tangent_of_h_history_next_rows, row * columns * H_row + p)",
    ),
    text_mutant(
        "the sums of a bias's directions all in the first column",
        "rnn",
        "Hessian",
        "hvp",
        "(d_tangent_of_b_total, column * H_row + p",
        "(d_tangent_of_b_total, p",
    ),
    text_mutant(
        "the gradient of each column summed with the first column's input",
        "rnn",
        "Gauss-Newton",
        "vjp",
        "dot_d_a_h_address + column * H_row * item + first",
        "dot_d_a_h_address + first",
    ),
    text_mutant(
        "a column of a Jacobian in the place of the one before it",
        "rnn",
        "Jacobians",
        "jvp_states",
        "at_column = (row * columns + column)",
        "at_column = (row * columns + max(0, column - 1))",
    ),
    text_mutant(
        "a state that is not handed on",
        "rnn",
        "step by step",
        "infer",
        "(end * n + k) * H_row + p)",
        "(end * n + k) * H_row * 0 + p)",
    ),
)

# --- what calls the kernels ---


def patched(target: Any, name: str, make: Callable[[Any], Any]) -> Callable[[], Any]:
    return lambda: mock.patch.object(target, name, make(getattr(target, name)))


def kernel_of(name: str) -> Callable[[], Subject]:
    return lambda: with_kernel(right(name), "float64")


def unsorted(plain: Any) -> Any:
    """Rows in the order of the batch, where kernels count on the longest first."""

    def split_rows(count: int, steps: int, lengths: Any, *rest: Any) -> Any:
        blocks = plain(count, steps, lengths, *rest)
        return blocks if lengths is None else tuple(replace(b, order=np.sort(b.order)) for b in blocks)

    return split_rows


def later_start(plain: Any) -> Any:
    def _recall(self: Any, segment: int) -> None:
        plain(self, max(0, segment - 1))

    return _recall


def one_sided(plain: Any) -> Any:
    """The tangent of an adjoint without what the direction of a state adds to a gradient."""

    def second(*args: Any) -> Any:
        ahead, reverse = plain(*args)
        return ahead, node("dot_d_a_h", lambda n: Pointwise(n.expr.args[0]))(reverse)

    return second


def overlapping(plain: Any) -> Any:
    """The last row of each thread's rows is the first of the next thread's, and one row is
    nobody's."""

    def split_rows(count: int, steps: int, lengths: Any, blocks: int, *rest: Any) -> Any:
        made = plain(count, steps, lengths, blocks, *rest)
        return (
            made
            if blocks == 1
            else tuple(replace(b, order=np.maximum(b.order - (n > 0), 0)) for n, b in enumerate(made))
        )

    return split_rows


def all_diagonal(plain: Any) -> Any:
    """A structure that claims zeros which are not there."""

    def structure(graph: Graph) -> Any:
        return {
            after: {b: replace(told, axes=frozenset({(0, 0)}), rank="") for b, told in row.items()}
            for after, row in plain(graph).items()
        }

    return structure


def first_column(plain: Any) -> Any:
    """One direction in place of all."""

    def parameter_directions(*args: Any) -> Any:
        return {n: np.repeat(a[:1], len(a), axis=0) for n, a in plain(*args).items()}

    return parameter_directions


def without_a_step(plain: Any) -> Any:
    """The last step of the first row does not count."""

    def row_sums(*args: Any) -> Any:
        made = plain(*args)
        return replace(made, ends=made.ends - (np.arange(len(made.ends)) == 0))

    return row_sums


def exchanged_weights(plain: Any) -> Any:
    """The rows of each group have the weights of another."""

    def split_groups(*args: Any) -> Any:
        blocks, groups = plain(*args)
        return blocks[::-1], groups

    return split_groups


CALLS = (
    Mutant(
        "the weights of another group",
        "weights by row",
        "rnn",
        "weights by row",
        kernel_of("rnn"),
        patched(rows, "split_groups", exchanged_weights),
    ),
    Mutant(
        "a step of a row left out of its gradients",
        "gradients by row",
        "rnn",
        "gradients by row",
        kernel_of("rnn"),
        patched(cpu, "row_sums", without_a_step),
    ),
    Mutant(
        "zeros of a Jacobian claimed that are not there",
        "structure",
        "rnn",
        "structure",
        lambda: right("rnn"),
        patched(tangents, "structure", all_diagonal),
    ),
    Mutant(
        "a term of the direction of a gradient left out",
        "second",
        "rnn",
        "Hessian, complex step",
        lambda: replace(right("rnn")),
        patched(subjects, "second", one_sided),
    ),
    Mutant(
        "the directions of a parameter all the first",
        "directions",
        "rnn",
        "directions",
        kernel_of("rnn"),
        patched(cpu, "parameter_directions", first_column),
    ),
    Mutant(
        "rows with lengths not put back in order",
        "dealing out of rows",
        "rnn",
        "lengths",
        kernel_of("rnn"),
        patched(rows, "split_rows", unsorted),
    ),
    Mutant(
        "a segment run again from the wrong start",
        'memory="low"',
        "rnn",
        "low memory",
        kernel_of("rnn"),
        patched(segments.Segments, "_recall", later_start),
    ),
    Mutant(
        "threads that share a row",
        "dealing out of rows",
        "rnn",
        "thread independence",
        kernel_of("rnn"),
        patched(rows, "split_rows", overlapping),
    ),
)

MUTANTS = (*MATHEMATICS, *PROGRAMS, *TEXTS, *CALLS)
QUICK = (
    "a sign swapped",
    "a wrong row of the table: tanh' = 1 - y",
    "a product transposed",
    "the mask of ended rows dropped",
    "a segment run again from the wrong start",
    "zeros of a Jacobian claimed that are not there",
    "the direction of a matrix left out",
    "a term of the direction of a gradient left out",
)


def table() -> Iterator[str]:
    yield "| fault | planted in | cell | caught by |\n|---|---|---|---|"
    for mutant in MUTANTS:
        found = mutant.failures()
        name = mutant.cell.splitlines()[1].removeprefix("name: ") if "\n" in mutant.cell else mutant.cell
        yield (
            f"| {mutant.what} | {mutant.where} | {name} |"
            f" {', '.join(found) or '**nothing**'}{'' if mutant.caught in found else ' (**not as meant**)'} |"
        )


if __name__ == "__main__":
    for line in table():
        print(line)
        sys.stdout.flush()
