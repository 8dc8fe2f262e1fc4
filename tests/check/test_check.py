"""`rnnspec check`: cells that are right pass, and every kind of mutant is caught by the property
that is meant to catch it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from xml.etree import ElementTree

import numpy as np
import pytest
from cells import CORE
from tiny import cell

from rnnspec.backends import reference
from rnnspec.backends.cpu.emit.texts import texts
from rnnspec.check import PROPERTIES, check_cells, check_property
from rnnspec.check.properties.derivatives import complex_step
from rnnspec.check.report import WIDTH, CellReport, Report, Result, cell_line, cell_lines
from rnnspec.check.run import Property, UnknownProperty, check_each, run_property, table_of
from rnnspec.check.sampling import Shapes
from rnnspec.check.stopped import with_stopped
from rnnspec.check.subject import Subject, subject, with_kernel
from rnnspec.engine.cpu import CpuKernel
from rnnspec.engine.kernel import Kernel
from rnnspec.engine.results import Gradients, Run
from rnnspec.language.load import load, loads, spec_names
from rnnspec.symbolic.graph import Graph, Pointwise, Product
from rnnspec.symbolic.operations import symbol, total
from rnnspec.transform import layer_norm

DTYPES = ("float32", "float64")


def assert_passed(report):
    assert report.passed, report.to_text()


def row(name: str, needs_kernel: bool) -> Property:
    return next(p for p in PROPERTIES if p.name == name and p.needs_kernel == needs_kernel)


def caught(known: Subject, name: str, *, raises: bool = False) -> str:
    """Asserts that a property fails by what it compares (raises: by an error); its detail."""
    result = run_property(row(name, known.kernel is not None), lambda: known, known.dtype)
    assert not result.passed and not result.skipped, result
    assert raises or not re.match(r"\w+(Error|Exception|Interrupt): ", result.detail), (
        f"nothing was compared: {result.detail}"
    )
    return result.detail


def passes(known: Subject, name: str) -> bool:
    return run_property(row(name, known.kernel is not None), lambda: known, known.dtype).passed


# --- cells that are right ---


@pytest.mark.parametrize("name", ["indrnn", "rnn"])
def test_a_cell_passes_in_both_dtypes(name):
    report = check_cells([load(name)], dtypes=DTYPES)
    assert_passed(report)
    assert len(report.cells[0].results) == sum(1 + p.needs_kernel for p in PROPERTIES)


def test_an_odd_cell_passes():
    """Numbers as parameters, a number as a state, an input and a product read one step late, an
    input without a gradient, a constant size, a kink."""
    spec = loads(
        cell(
            "y[t] = B @ h[t-1] + c\na[t] = k * (W @ x[t-1] + V @ y[t-1]) * m[t]\ns[t] = relu(s[t-1] + q)\nh[t] ="
            " tanh(a[t]) + s[t] * h[t-1] / 2",
            inputs="{x: L, m: []}",
            states="{h: H, s: []}",
            no_gradient="[m]",
            sizes="{L: 3, P: another size}",
            outputs="[h, a]",
            parameters="{W: [H, L], B: [P, H], V: [H, P], c: [P], k: [], q: []}",
        )
    )
    assert_passed(check_cells([spec], dtypes=("float64",)))


@pytest.mark.slow
@pytest.mark.parametrize("name", CORE)
def test_every_cell_passes(name):
    assert_passed(check_cells([name], dtypes=("float64",)))


@pytest.mark.parametrize("name", [n if n in CORE else pytest.param(n, marks=pytest.mark.slow) for n in spec_names()])
def test_every_definition_passes(name):
    assert_passed(check_cells([name], dtypes=()))


def test_every_option_is_checked():
    report = check_cells(["rnn", "lstm_1997"], dtypes=())
    assert [c.name for c in report.cells] == [
        "rnn",
        "rnn (phi=relu)",
        "rnn (phi=identity)",
        "lstm_1997",
        "lstm_1997 (phi_g=scaled_2, phi_h=scaled_1)",
    ]


def test_results_come_one_property_after_the_other():
    """What is asked for first is known before the rest is looked at."""
    each = check_each(["gru", "gru"], dtypes=("float32", "float64"), properties=["schema", "on a GPU"])
    first, results = next(each)
    assert first.name == "gru" and [r.property for r in results] == ["schema"]
    second, results = next(each)
    assert second is first and [r.dtype for r in results] == ["float32", "float64"]
    third, results = next(each)
    assert third is not first and [r.property for r in results] == ["schema"]


def test_a_choice_of_properties_and_of_settings():
    report = check_cells(["rnn"], dtypes=(), properties=["adjoint, dot product"], settings={"phi": "relu"})
    assert [(c.name, [r.property for r in c.results]) for c in report.cells] == [
        ("rnn (phi=relu)", ["adjoint, dot product"])
    ]
    report = check_cells(["ctrnn"], dtypes=(), settings={"alpha": 0.3})
    assert report.passed and report.cells[0].name.endswith("(alpha=0.3)")
    with pytest.raises(UnknownProperty, match="There are: 'schema', 'examples', 'adjoint, complex step'"):
        check_cells(["rnn"], properties=["nothing like it"])


def test_every_line_of_a_report_fits_80_columns():
    """Failures and long names included; what failed stands before the counts, which stand last."""
    results = [
        Result(p.name, dtype, False, 0.123, 1e-9, "gradient of W " * 30, 1.0, repeat="x = 1") for p, dtype in table_of()
    ]
    skipped = [replace(r, passed=True, skipped=True, detail="not offered here " * 20) for r in results]
    report = Report((CellReport("a" * 70, tuple(results[:9])), CellReport("b", tuple(skipped))), complete=False)
    for one in report.cells:
        assert all(len(line) <= WIDTH for line in cell_lines(one) + cell_line(one))
    lines = report.summary().splitlines()
    assert lines[0].startswith("FAILED") and lines[-1].startswith("0 passed, 9 failed")
    assert lines[-1].endswith("stopped before all was checked") and report.to_dict()["complete"] is False
    assert all(len(line) <= WIDTH for line in lines if not line.startswith("FAILED"))


def test_progress_is_told():
    told: list[tuple[str, int, int]] = []
    check_cells(["gru"], lambda *now: told.append(now), dtypes=())
    assert [d for _, d, _ in told] == list(range(len(told))) and told[-1][1] == told[-1][2] == len(told) - 1
    assert "gru: adjoint, complex step, reference" in [what for what, _, _ in told]


def test_a_file_with_an_error_fails_its_schema(tmp_path):
    path = tmp_path / "broken.yaml"
    path.write_text(cell("h[t] = tahn(x[t]) + h[t-1]", name="broken"))
    report = check_cells([path, "gru", tmp_path / "absent.yaml"], dtypes=())
    assert [c.passed for c in report.cells] == [False, True, False]
    assert "tanh" in report.cells[0].results[0].detail and report.cells[0].results[0].property == "schema"
    assert "FAILED broken, schema" in report.to_text()


def test_reports_are_texts_json_and_tables():
    report = check_cells(["gru"], dtypes=())
    assert json.loads(report.to_json()) == json.loads(json.dumps(report.to_dict()))
    assert report.to_dict()["cells"][0]["results"][0]["property"] == "schema"
    assert "10 passed, 0 failed, 1 skipped" in report.to_text()
    assert len(cell_lines(report.cells[0])) == 12


def test_what_is_skipped_says_why():
    report = check_cells(["rnn"], dtypes=("float32",), properties=["examples", "central differences", "on a GPU"])
    skipped = [r for c in report.cells for r in c.results if r.skipped]
    assert {r.property for r in skipped} >= {"examples", "central differences"}
    assert all(r.passed and r.detail for r in skipped) and "differences need float64" in report.to_text()


STOPPED = {
    "stop_gradient": "h[t] = stop_gradient(w * x[t]) * tanh(u * h[t-1])",
    "of a state, and twice": "h[t] = tanh(stop_gradient(u * h[t-1] + stop_gradient(x[t])) + w * x[t] * h[t-1])",
    "in a condition": "h[t] = where(stop_gradient(u * h[t-1]) > 0, tanh(w * x[t]), h[t-1] / 2)",
    "straight_through": "h[t] = straight_through(sign(u * h[t-1] + w * x[t]), tanh(u * h[t-1] + w * x[t]))",
    "one in the other": "h[t] = straight_through(sign(h[t-1]), stop_gradient(w) * tanh(u * h[t-1] + x[t]))",
    "computed once": "a = stop_gradient(w) * u\nh[t] = a * tanh(u * h[t-1] + w * x[t])",
}


@pytest.mark.parametrize("equations", STOPPED.values(), ids=list(STOPPED))
def test_gradients_that_are_stopped_are_proved_too(equations):
    """With what is stopped as inputs: the adjoint is right, and one that let the stopped part
    through is found."""
    spec = loads(cell(equations, parameters="{w: [], u: []}"))
    known = subject(spec)
    found = run_property(row("adjoint, complex step", False), lambda: known, "reference")
    assert found.passed and not found.skipped and found.measured is not None and found.measured < 1e-12
    if "straight_through" not in equations and "where" not in equations:
        through = loads(cell(equations.replace("stop_gradient", "identity"), parameters="{w: [], u: []}"))
        wrong = replace(known, reverse=subject(through).reverse)
        assert not run_property(row("adjoint, complex step", False), lambda: wrong, "reference").passed


def test_what_is_stopped_keeps_the_value_exactly():
    """At the point itself the definition with inputs gives what the definition gives."""
    spec = loads(cell(STOPPED["straight_through"], parameters="{w: [], u: []}"))
    known = subject(spec)
    case = known.draw(Shapes(4, 3, (), ragged=True), "stopped")
    graph, held = with_stopped(known.graph, case)
    given = (case.params, case.inputs, case.states, case.lengths)
    plain = reference.forward(known.graph, *given, sizes=case.sizes, lead=case.lead)
    frozen = reference.forward(graph, given[0], case.inputs | held, *given[2:], sizes=case.sizes, lead=case.lead)
    assert len(held) == 2 and np.array_equal(plain.outputs["h"], frozen.outputs["h"])
    assert with_stopped(subject(load("rnn")).graph, case)[1] == {}


def test_a_size_without_a_meaning_is_told():
    spec = loads(
        cell(
            "y[t] = W @ x[t]\nh[t] = h[t-1]", inputs="{x: P}", parameters="{W: [P, P]}", sizes="{P: ''}", outputs="[y]"
        )
    )
    assert "P" in caught(subject(spec), "schema")


# --- mutants of the mathematics ---


def changed(graph: Graph, node: str, change: Callable) -> Graph:
    return replace(graph, nodes={n: change(m) if n == node else m for n, m in graph.nodes.items()})


def drop_term(node: Pointwise) -> Pointwise:
    assert isinstance(node.expr, total)
    return Pointwise(node.expr.args[0])


MUTANTS = {
    "a term dropped": ("d_c", drop_term),
    "a sign swapped": ("d_o", lambda n: Pointwise(-n.expr)),
    "a factor wrong": ("d_a_g", lambda n: Pointwise(n.expr * (1 + symbol("g")) / 2)),
    "a constant off by 1e-9": ("d_a_f", lambda n: Pointwise(n.expr * (1 + 1e-9))),
    "a transpose forgotten": ("U_f_d_U_f_h_prev", lambda n: Product(n.matrix, n.vector, False)),
    "another matrix": ("U_f_d_U_f_h_prev", lambda n: Product("U_i", n.vector, True)),
    "the cell after the step": ("d_f", lambda n: Pointwise(symbol("c") * symbol("d_c"))),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_wrong_adjoint_is_caught(mutant):
    known = subject(load("lstm"))
    node, change = MUTANTS[mutant]
    bad = replace(known, reverse=changed(known.reverse, node, change))
    assert "gradient of" in caught(bad, "adjoint, complex step")
    caught(bad, "adjoint, dot product")
    assert passes(bad, "schema") and passes(known, "adjoint, complex step")


def test_a_wrong_tangent_is_caught():
    known = subject(load("gru"))
    bad = replace(known, forward_mode=changed(known.forward_mode, "dot_n", lambda n: Pointwise(2 * n.expr)))
    caught(bad, "adjoint, dot product")


def test_a_wrong_definition_fails_its_example():
    known = subject(load("lstm"))
    assert "the example says" in caught(
        replace(known, graph=changed(known.graph, "g", lambda n: Pointwise(2 * n.expr))), "examples"
    )


@pytest.mark.parametrize(
    "group, name", [("outputs", "h"), ("final", "c"), ("gradients", "U_f"), ("gradients", "x"), ("gradients", "h")]
)
def test_a_wrong_example_is_caught(group, name):
    spec = load("lstm")
    values = np.asarray(getattr(spec.examples[0], group)[name]) * (1 + 1e-9)
    wrong = replace(spec.examples[0], **{group: {**getattr(spec.examples[0], group), name: values}})
    detail = caught(replace(subject(spec), spec=replace(spec, examples=(wrong,))), "examples")
    assert name in detail and "one unit, two steps" in detail


# --- mutants of the kernel ---


@cache
def right() -> Subject:
    return with_kernel(subject(load("rnn")), "float64")


class Edited(CpuKernel):
    """A kernel whose emitted text is not what it should be."""

    edits: dict[str, tuple[str, str]] = {}

    def source(self, mode: str = "forward") -> str:
        text = texts(self.spec, self.dtype.name)[mode]
        if mode not in self.edits:
            return text
        old, new = self.edits[mode]
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {mode}"
        return text.replace(old, new)


def edited(mode: str, old: str, new: str) -> Subject:
    kernel = type("Edited", (Edited,), {"edits": {mode: (old, new)}})(right().spec, np.dtype("float64"), None)
    return replace(right(), kernel=kernel)


def test_a_wrong_constant_in_the_text_is_caught():
    bad = edited("backward", "number(1.0) - ", "number(1.0000001) - ")
    assert "gradient of" in caught(bad, "against the reference")
    assert passes(bad, "inputs untouched")


def test_a_wrong_sign_in_the_text_is_caught():
    bad = edited("backward", "d_h = d_h_next + d_h_out", "d_h = d_h_out - d_h_next")
    caught(bad, "against the reference")
    caught(bad, "central differences")


def test_threads_are_used_when_their_independence_is_checked(monkeypatch):
    """A run too small for its threads would prove nothing."""
    from rnnspec.backends.cpu.launch import rows

    counts = []
    plain = rows.block_count

    def counted(*args):
        counts.append(plain(*args))
        return counts[-1]

    monkeypatch.setattr(rows, "block_count", counted)
    assert passes(right(), "thread independence")
    assert {1, 2, 3} <= set(counts)


class Wrong(CpuKernel):
    """The right machine code, its results tampered with."""

    def forward(self, params, inputs, states=None, lengths=None, **given) -> Run:
        run = super().forward(params, inputs, states, lengths, **given)
        self.tamper(run, inputs)
        return run

    def backward(self, run, outputs=None, *, final=None) -> Gradients:
        return self.after(super().backward(run, outputs, final=final), run)

    def tamper(self, run, inputs) -> None:
        pass

    def after(self, grad, run) -> Gradients:
        return grad


class RowsMix(Wrong):
    def tamper(self, run, inputs) -> None:
        run.outputs["h"] += 1e-15 * run.outputs["h"].sum(axis=1, keepdims=True)


class ThreadsCount(Wrong):
    def tamper(self, run, inputs) -> None:
        run.outputs["h"] += 1e-16 * self.threads


class Remembers(Wrong):
    calls = 0

    def tamper(self, run, inputs) -> None:
        self.calls += 1
        run.outputs["h"] += self.calls * 1e-15


class Writes(Wrong):
    def tamper(self, run, inputs) -> None:
        inputs["x"][...] = 0


class Strided(Wrong):
    def tamper(self, run, inputs) -> None:
        run.outputs["h"] += 0 if inputs["x"].flags.c_contiguous else 1e-12


class Padded(Wrong):
    def after(self, grad, run) -> Gradients:
        grad.inputs["x"][:] += 1.0
        return grad


class NoPassThrough(Wrong):
    def after(self, grad, run) -> Gradients:
        return replace(grad, states={n: 2 * a for n, a in grad.states.items()})


class Numbered(Wrong):
    def tamper(self, run, inputs) -> None:
        run.outputs["h"] += 1e-15 * np.arange(run.rows)[:, None]


class SlightlyOff(Wrong):
    def after(self, grad, run) -> Gradients:
        grad.params["U"] *= 1 + 1e-4
        return grad


class Saturated(Wrong):
    def tamper(self, run, inputs) -> None:
        run.outputs["h"] *= np.where(np.abs(inputs["x"]).max(initial=0) > 1e3, np.inf, 1)


class Forgetful(Wrong):
    def tamper(self, run, inputs) -> None:
        run.outputs["h"] += 1e-15 * (self.memory == "low")


class Streamed(Wrong):
    def infer(self, params, inputs, states=None, lengths=None, **given):
        run = super().infer(params, inputs, states, lengths, **given)
        run.outputs["h"][1:] += 1e-15
        return run


@pytest.mark.parametrize(
    "mutant, name",
    [
        (RowsMix, "rows alone"),
        (RowsMix, "row of NaN"),
        (RowsMix, "lengths"),
        (ThreadsCount, "thread independence"),
        (Remembers, "second run"),
        (Writes, "inputs untouched"),
        (Strided, "strides"),
        (Strided, "reversed time"),
        (Padded, "padding"),
        (NoPassThrough, "zero sizes"),
        (NoPassThrough, "split sequence"),
        (Padded, "central differences"),
        (SlightlyOff, "central differences"),
        (Numbered, "batch permutation"),
        (Saturated, "saturation"),
        (Forgetful, "low memory"),
        (Streamed, "step by step"),
    ],
    ids=lambda m: m if isinstance(m, str) else m.__name__,
)
def test_a_kernel_that_misbehaves_is_caught(mutant, name):
    kernel = mutant(right().spec, np.dtype("float64"), None)
    caught(replace(right(), kernel=kernel), name, raises=mutant is Writes)  # into arrays that are read-only


def test_an_error_in_a_kernel_is_a_failure():
    class Raises(CpuKernel):
        def forward(self, *args, **kwargs):
            raise ZeroDivisionError("lost")

    known = replace(right(), kernel=Raises(right().spec, np.dtype("float64"), None))
    assert caught(known, "against the reference", raises=True) == "ZeroDivisionError: lost"


@pytest.mark.parametrize("name", ["thread independence", "against the reference"])
def test_a_cell_without_finite_values_fails_and_nothing_is_raised(name):
    spec = loads(cell("h[t] = log(-1 - x[t] * x[t]) + h[t-1]", inputs="{x: H}", states="{h: H}"))
    result = check_property(spec, name, "float64")
    assert not result.passed and result.detail == "NoSampleError: no point found in 40 draws: its values are not finite"


def test_gradients_that_vanish_are_no_error_of_differences():
    """Of a chain of saturating tanh: 1e-15, of values near 1 whose differences are rounding."""
    equations = (
        "s[t, 0] = w * x[t] + h[t-1]\nfor k in 1..40:\n  s[t, k] = tanh(1.5 * s[t, k-1] + 0.01)\nh[t] = s[t, 40]"
    )
    spec = loads(cell(equations, inputs="{x: H}", states="{h: H}", parameters="{w: [H]}"))
    result = check_property(spec, "central differences", "float64")
    assert result.passed and not result.skipped, result.detail


def test_a_failure_is_shrunk_and_its_snippet_repeats_it(monkeypatch):
    """Wrong from the second step on, for two or more units: that is the smallest case, and nothing
    of rows or inputs is needed for it."""

    def breaks(self, params, inputs, states=None, lengths=None, **given):
        run = plain(self, params, inputs, states, lengths, **given)
        run.outputs["h"][1:, ..., 1:] += 1e-3
        return run

    plain = Kernel.forward
    monkeypatch.setattr(Kernel, "forward", breaks)
    result = check_property("rnn", "against the reference", "float64")
    assert not result.passed and result.detail.startswith("output h") and "T = 2, B = 1, D = 1, H = 2" in result.detail
    with pytest.raises(AssertionError, match="output h"):
        exec(result.repeat, {})
    monkeypatch.undo()
    exec(result.repeat, {})  # what is mended passes


def test_the_snippet_of_a_choice_has_the_choice(monkeypatch):
    monkeypatch.setattr("rnnspec.check.tolerances.COMPLEX_STEP", 0)
    monkeypatch.setattr("rnnspec.check.properties.derivatives.COMPLEX_STEP", 0)
    result = check_cells(["rnn"], dtypes=()).cells[1].results[2]
    assert result.repeat.splitlines()[2].startswith(
        "result = check_property('rnn', 'adjoint, complex step', 'reference', steps="
    )
    assert result.repeat.splitlines()[2].endswith("phi='relu')")
    with pytest.raises(AssertionError):
        exec(result.repeat, {})


def test_a_property_that_there_is_not():
    with pytest.raises(ValueError, match=r"no property 'paddin'\. Did you mean 'padding'\?"):
        check_property("rnn", "paddin", "float64")


def test_junit():
    spec = loads(cell("h[t] = stop_gradient(x[t]) * h[t-1]"))
    known = replace(subject(spec), reverse=subject(load("rnn")).graph)
    failed = run_property(row("adjoint, dot product", False), lambda: known, "reference")
    report = check_cells([spec], dtypes=())
    report = replace(
        report,
        cells=(replace(report.cells[0], results=(*report.cells[0].results, replace(failed, detail="a\0b < c"))),),
    )
    suite = ElementTree.fromstring(report.to_junit())[0]
    assert suite.attrib["name"] == "tested" and (
        suite.attrib["tests"],
        suite.attrib["failures"],
        suite.attrib["skipped"],
    ) == ("12", "1", "2")
    assert [c.attrib["name"] for c in suite][:2] == ["schema[reference]", "examples[reference]"]
    assert (
        suite[-1][0].tag == "failure"
        and suite[-1][0].attrib["message"] == "a?b < c"
        and "check_property(spec" in suite[-1][0].text
    )


def test_a_complex_step_where_terms_cancel():
    """A GRU of two units with layer normalisation: the difference of two numbers, over their root
    mean square. 2.4e-12 of 1e-12."""
    known = subject(layer_norm(load("gru")))
    assert complex_step(known).passed
    bad = replace(known, reverse=changed(known.reverse, "d_z", lambda n: Pointwise(n.expr * (1 + 1e-9))))
    assert not complex_step(bad).passed


def test_directions_of_parameters_that_are_all_fixed():
    """There are none, and so nothing to compare."""
    told = {"steps": 1, "rows": 1, "sizes": {"D": 1, "H": 1}, "number": 1}
    result = check_property("leaky_esn", "directions", "float64", **told)
    assert result.passed, result.detail
