"""The language: what a text means, where things stand, what is derived. Messages are in
test_messages.py."""

from __future__ import annotations

import subprocess
import sys
import time
from fractions import Fraction

import numpy as np
import pytest
from cells import CORE
from tiny import cell, h_of, run

from rnnspec.errors import SpecError
from rnnspec.language.functions import FUNCTIONS
from rnnspec.language.load import digest, load, loads, spec_names
from rnnspec.language.sizes import SizeError, canonical_size, evaluate_size, full_shape, sizes_in
from rnnspec.language.syntax.parse import MAX_EQUATIONS, decimal, parse_equations, parse_expression
from rnnspec.language.syntax.tree import Call, Number, Ref, to_text, walk

CELLS = CORE  # tiny.run knows no more of the language than these need; tests/cpu/test_plain_cells.py has the others


def vectors(equations: str, parameters: str, **sections: str) -> str:
    """A cell whose x is [D] and whose h is [H]."""
    return cell(equations, **{"inputs": "{x: D}", "states": "{h: H}", "parameters": f"{{{parameters}}}"} | sections)


# --- the cells that come with rnnspec ---


def test_the_cells_are_there():
    assert set(CORE) <= set(spec_names()) and len(spec_names()) >= 90


@pytest.mark.parametrize("name", spec_names())
def test_a_cell_says_what_it_is(name):
    spec = load(name)
    assert spec.name == name and spec.title and spec.source and spec.outputs


@pytest.mark.parametrize("name", CELLS)
def test_a_cell_is_whole(name):
    spec = load(name)
    assert spec.name == name and spec.title and spec.source and spec.examples
    assert set(spec.shapes) == {*spec.inputs, *spec.states, *spec.parameters, *(e.target for e in spec.equations)}
    assert set(spec.states) <= {e.target for e in spec.equations}
    above = set()
    for equation in spec.equations:
        nodes = list(walk(equation.value))
        assert {n.name for n in nodes if isinstance(n, Ref) and n.time == 0} <= above | set(spec.inputs)
        assert {n.function for n in nodes if isinstance(n, Call)} <= {*FUNCTIONS, "where"}
        assert {n.name for n in nodes if isinstance(n, Ref)} <= {*spec.shapes, "t"}
        above.add(equation.target)


@pytest.mark.parametrize("name", CELLS)
def test_examples_hold(name):
    spec = load(name)
    for case in spec.examples:
        found = run(spec, dict(case.parameters), dict(case.inputs), dict(case.states))
        for key, values in case.outputs.items():
            np.testing.assert_allclose(found[key], values, rtol=1e-12)
        for key, values in case.final.items():
            np.testing.assert_allclose(found[key][-1], values, rtol=1e-12)


@pytest.mark.parametrize("name", CELLS)
def test_gradients_of_examples_hold(name):
    """Central differences of the sum of outputs."""
    spec = load(name)
    for case in spec.examples:
        groups = {
            k: {n: np.array(v, float) for n, v in getattr(case, k).items()} for k in ("parameters", "inputs", "states")
        }

        def total(groups=groups):
            found = run(spec, groups["parameters"], groups["inputs"], groups["states"])
            return sum(found[key].sum() for key in spec.outputs)

        arrays = {n: a for group in groups.values() for n, a in group.items()}
        assert set(case.gradients) == set(arrays)
        for key, expected in case.gradients.items():
            estimate = np.zeros_like(arrays[key])
            for at in np.ndindex(arrays[key].shape):
                before, ends = arrays[key][at], []
                for step in (1e-5, -1e-5):
                    arrays[key][at] = before + step
                    ends.append(total())
                arrays[key][at] = before
                estimate[at] = (ends[0] - ends[1]) / 2e-5
            np.testing.assert_allclose(estimate, expected, atol=1e-8)


def test_loading_needs_neither_sympy_nor_numba_nor_numpy():
    code = (
        "import sys; from rnnspec.language.load import load; load('lstm'); import rnnspec.language.layouts; "
        "print(sorted({'sympy', 'numba', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


# --- expressions ---


@pytest.mark.parametrize(
    "text",
    [
        *("a + b - c", "a - (b - c)", "a / (b / c)", "a * b @ c", "(a + b) * c", "-a * b", "-(a * b)"),
        *("(-a) ** 2", "-a ** 2", "a ** -2", "a ** b ** c", "(a ** b) ** c"),
        *("not a < b and c >= d", "not (a and b)", "(a or b) and c", "(a < b) == c"),
        *("f(a, g(b + 1))", "x[t] + x[t-1]"),
        *("1 / 3", "0.1", "1e-20", "123456789012345678901234567890"),
    ],
)
def test_text_and_tree_go_to_and_fro(text):
    tree = parse_expression(text)
    assert parse_expression(to_text(tree)) == tree


def test_every_row_of_the_function_table_can_be_read():
    for row in FUNCTIONS.values():
        for text in (*row.derivatives, *([] if row.value is None else [row.value])):
            names = {n.name for n in walk(parse_expression(text)) if isinstance(n, Ref)}
            assert names <= {*row.args, "y"}


def test_chained_comparisons_are_joined():
    assert parse_expression("a < b < c") == parse_expression("a < b and b < c")


@pytest.mark.parametrize("text", ["0.1", "1e-3", "1E3", "5.", ".5", "3", "0e999999999999", "1e308", "4.9e-324"])
def test_decimals_are_exact(text):
    assert parse_expression(text) == Number(Fraction(0) if text.startswith("0e") else Fraction(text))


@pytest.mark.parametrize("text", ["1e309", "1e999999999", "1e-999999999", "9" * 400])
def test_numbers_out_of_range_cost_nothing(text):
    start = time.process_time()
    assert decimal(text) is None
    with pytest.raises(SpecError):
        parse_expression(text)
    assert time.process_time() - start < 0.1


def test_equations_have_exact_places():
    text = "# first\n  a[t] = (x[t] +   # why\n     tanh(  b))\nc[t]=a[t-1]*2"
    (first, second), problems = parse_equations(text, 10, 5, "f.yaml")
    assert not problems and first.text == "a[t] = (x[t] + tanh(  b))"
    places = {to_text(n): (n.at.line, n.at.column, n.at.width) for n in walk(first.value)}
    assert places["x[t]"] == (11, 15, 4) and places["tanh(b)"] == (12, 10, 4) and places["b"] == (12, 17, 1)
    assert (first.at.line, first.at.column, second.at.line, second.at.column) == (11, 7, 13, 5)
    assert [(n.at.line, n.at.column) for n in walk(second.value)] == [(13, 16), (13, 10), (13, 17)]


STYLES = {
    "literal": "equations: |\n    h[t] = x[t] + rr\n",
    "literal, deep": "equations: |2-\n    h[t] = x[t] + rr\n",
    "literal, blank lines": "equations: | # these\n\n\n    # a\n    h[t] = x[t] + rr\n",
    "literal, tabs": "equations: |\n    h[t]\t=\tx[t] + rr\n",
    "folded": "equations: >\n    h[t] =\n    (x[t]\n    + rr)\n",
    "plain": "equations: h[t] = x[t] + rr\n",
    "plain, two lines": "equations: h[t] =\n     x[t] + rr\n",
    "single quotes": "equations: 'h[t] = x[t] + rr'\n",
    "double quotes": 'equations: "h[t] = x[t] + rr"\n',
    "double quotes, escapes": 'equations: "\\n\\n  h[t] = x[t] + rr"\n',
    "windows": "equations: |\r\n    h[t] = x[t] + rr\r\n",
}


@pytest.mark.parametrize("style", STYLES)
def test_places_are_those_of_the_file_in_every_style(style):
    text = "rnnspec: 1\nname: a\nnotes: ünï\U0001f600\ninputs: {x: []}\nstates: {h: []}\noutputs: [h]\n" + STYLES[style]
    with pytest.raises(SpecError) as caught:
        loads(text)
    (problem,) = caught.value.errors
    lines = text.replace("\r", "").split("\n")
    assert lines[problem.line - 1][problem.column - 1 :].startswith("rr")
    assert problem.source_line == lines[problem.line - 1]


@pytest.mark.parametrize(
    ("equations", "x", "h"),
    [
        ("h[t] = where(x[t] > 1 and not x[t] > 5, 2, 3)", 3.0, 2.0),
        ("h[t] = where(1 < x[t] < 2, 2, 3)", 3.0, 3.0),
        ("h[t] = 2 * t + x[t]", 3.0, 3.0),
        ("h[t] = (x[t]\n  + 1  # one\n)", 3.0, 4.0),
        ("h[t] = x[t] ** 2 ** 2", 3.0, 81.0),
        ("h[t] = +x[t] - -x[t]", 3.0, 6.0),
    ],
)
def test_values(equations, x, h):
    assert h_of(equations, x) == h


# --- names put in ---


def test_constants_choices_and_functions_are_put_in():
    sections = {
        "constants": "{a: 0.2}",
        "choices": "{phi: [tanh, squash]}",
        "functions": "\n  squash(v): a * tanh(2 * v / 3)\n  twice(v, w): squash(v) + w",
    }
    text = cell("h[t] = phi(x[t]) + twice(x[t], a)", **sections)
    spec = loads(text)
    assert to_text(spec.equations[0].value) == "tanh(x[t]) + (0.2 * tanh(2 * x[t] / 3) + 0.2)"
    assert spec.choices["phi"].chosen == "tanh" and spec.choices["phi"].options == ("tanh", "squash")
    spec = loads(text, phi="squash", a=0.5)
    assert to_text(spec.equations[0].value).startswith("0.5 * tanh(2 * x[t] / 3)")
    assert spec.constants == {"a": Fraction(1, 2)} and spec.choices["phi"].chosen == "squash"


@pytest.mark.parametrize(
    ("given", "exact"),
    [
        (0.1, Fraction(1, 10)),
        (2, 2),
        (Fraction(1, 3), Fraction(1, 3)),
        (np.float64(0.1), Fraction(1, 10)),
        (np.int32(3), 3),
    ],
)
def test_constants_are_what_was_written(given, exact):
    assert loads(cell("h[t] = a * x[t]", constants="{a: 1}"), a=given).constants["a"] == exact


def test_a_cell_of_other_options_has_no_examples_and_only_the_layers_that_say_so():
    default, relu, identity = load("rnn"), load("rnn", phi="relu"), load("rnn", phi="identity")
    assert default.examples and not relu.examples
    assert load("rnn", phi="tanh") == default
    assert relu.same_as["torch.nn.RNN"] == {"nonlinearity": "relu"} and relu.same_as["onnx.RNN"] == {
        "activations": ("Relu",)
    }
    assert set(identity.same_as) == {"keras.layers.SimpleRNN"}
    text = cell("h[t] = phi(x[t])", choices="{phi: [tanh, relu]}", same_as="{library.Layer: {size: 2, fast: true}}")
    assert loads(text).same_as == {"library.Layer": {"size": 2, "fast": True}} and not loads(text, phi="relu").same_as


def test_exponents_are_numbers_after_loading():
    spec = loads(cell("h[t] = x[t] ** (-e / 2) + x[t] ** -1", constants="{e: 3}"))
    exponents = [n.right for n in walk(spec.equations[0].value) if getattr(n, "op", "") == "**"]
    assert exponents == [Number(Fraction(-3, 2)), Number(Fraction(-1))]


def test_factors_of_a_matrix_are_pulled_out():
    text = vectors(
        "h[t] = a * W @ x[t] - -U / 2 @ h[t-1] + x[t] @ (V * a)", "W: [H, D], U: [H, H], V: [D, H]", constants="{a: 3}"
    )
    assert to_text(loads(text).equations[0].value) == "3 * (W @ x[t]) - -(U @ h[t-1]) / 2 + 3 * (x[t] @ V)"


def test_doubling_functions_are_refused_quickly():
    chain = "".join(f"\n  f{k}(a): f{k + 1}(a) + f{k + 1}(a)" for k in range(40)) + "\n  f40(a): a"
    dropped = "".join(f"\n  f{k}(a): g(f{k + 1}(a)) + g(f{k + 1}(a))" for k in range(40)) + "\n  f40(a): a\n  g(a): 1"
    square = "".join(f"\n  f{k}(a): f{k + 1}(a * a)" for k in range(40)) + "\n  f40(a): a"
    for functions in (chain, dropped, square):
        start = time.process_time()
        with pytest.raises(SpecError, match=r"larger than 8000|nested deeper"):
            loads(cell("h[t] = f0(x[t]) ** 2", functions=functions))
        assert time.process_time() - start < 1


@pytest.mark.parametrize(
    "power",
    ["x[t] ** 65", "((x[t]**64)**64)**64", "(x[t]**8 * 2)**9", "x[t] ** 1e300", "sq(sq(sq(x[t])))", "x[t] ** -65"],
)
def test_powers_over_64_are_refused(power):
    with pytest.raises(SpecError, match="over 64"):
        loads(cell(f"h[t] = {power}", functions="\n  sq(a): a ** 5" if "sq" in power else ""))
    loads(cell("h[t] = (x[t] ** 8) ** 8 + x[t] ** -64 + (x[t] ** 0.5) ** 64"))


def test_limits():
    many = "\n".join(f"a{k}[t] = x[t]" for k in range(MAX_EQUATIONS))
    with pytest.raises(SpecError, match="over 500 equations"):
        loads(cell(many + "\nh[t] = x[t]"))
    with pytest.raises(SpecError, match="over 64 KiB"):
        loads(cell("h[t] = x[t]") + "#" * 65536)
    loads(cell("h[t] = x[t]" + " + x[t]" * 90))
    loads(cell("h[t] = " + "(" * 95 + "x[t]" + ")" * 95))


# --- shapes, sizes, order ---


def test_shapes_of_intermediates_follow():
    equations = (
        "a[t] = W @ x[t]\nb[t] = 2 * t\nc[t] = b[t] * a[t]\nd[t] = where(x[t-1] > 0, 1, 0)\nh[t] = c[t] + h[t-1] +"
        " d[t] @ V"
    )
    spec = loads(vectors(equations, "W: [H, D], V: [D, H]"))
    assert [spec.shapes[n] for n in "abcd"] == [("H",), (), ("H",), ("D",)]


def test_shapes_go_round_through_earlier_steps():
    spec = loads(
        cell("h[t] = a[t-1]\na[t] = b[t-1] * 0.5\nb[t] = 0.5 * b[t-1] + x[t]", inputs="{x: H}", states="{h: H}")
    )
    assert spec.shapes["a"] == spec.shapes["b"] == ("H",)


def test_every_size_expression_has_one_form():
    assert canonical_size("H + D") == canonical_size("D+H") == "D + H"
    assert (
        canonical_size("(D + H) * 4") == "4*D + 4*H"
        and canonical_size("H*4*D") == "4*D*H"
        and canonical_size("1 + D") == "D + 1"
    )
    assert evaluate_size("4*D + H*D + 3", {"D": 2, "H": 5}) == 21
    assert full_shape(("H", "D + H"), {"D": 2, "H": 5}) == (5, 7) and full_shape((), {}) == ()
    assert list(sizes_in([("H", "D + K"), (), ("P", "2*H")])) == ["H", "D", "K", "P"]
    with pytest.raises(SizeError, match="needs H"):
        evaluate_size("D + H", {"D": 2})
    for wrong in (
        "D - H",
        "D / 2",
        "2.5",
        "D[t]",
        "f(D)",
        "",
        "D H",
        "-1",
        "(a+b+c+d+e+f+g)*(a+b+c+d+e+f+g)*(a+b+c+d+e+f+g)*(a+b+c+d+e+f+g)",
    ):
        with pytest.raises(SizeError):
            canonical_size(wrong)
    text = vectors(
        "h[t] = W @ h[t-1] + V @ x[t] + U @ y[t]",
        "W: [H + D, D + H], V: [D + H, D], U: [H + D, H]",
        inputs="{x: D, y: H}",
        states="{h: D + H}",
    )
    assert loads(text).shapes["h"] == ("D + H",)


def test_defaults_and_meanings_of_sizes():
    sizes = "\n  D: features of x\n  P: H\n  K: {meaning: steps, default: 3}\n  H: units"
    spec = loads(
        vectors("h[t] = W @ x[t] + U @ (V @ h[t-1])", "W: [H, D], U: [H, P + 1*K], V: [K + P, H]", sizes=sizes)
    )
    assert (
        spec.sizes["D"].meaning == "features of x" and spec.sizes["P"].default == "H" and spec.sizes["P"].meaning == ""
    )
    assert (spec.sizes["K"].meaning, spec.sizes["K"].default) == ("steps", "3")


def test_order_is_that_of_the_file_where_nothing_else_decides():
    spec = loads(cell("c[t] = x[t]\nh[t] = a[t] + c[t]\nb[t] = x[t]\na[t] = b[t]"))
    assert [e.target for e in spec.equations] == ["c", "b", "a", "h"]


def test_the_digest_follows_the_computation_only():
    text = cell("a[t] = w * x[t]\nh[t] = a[t] + 1", parameters="{w: []}")
    same = [
        text + "notes: other\ntitle: other\ninit: {w: zeros}\n",
        text.replace("h[t] =", "h[t]   =").replace("\n  a", "\n  # comment\n  a"),
    ]
    other = [
        text.replace("+ 1", "+ 2"),
        text.replace("w", "v"),
        text.replace("[h]", "[h, a]"),
        text + "no_gradient: [x]\n",
        text.replace("tested", "tested2"),
    ]
    assert {digest(loads(t)) for t in same} == {digest(loads(text))}
    assert len({digest(loads(t)) for t in [text, *other]}) == len(other) + 1
    assert digest(load("rnn")) != digest(load("rnn", phi="relu"))


def test_initialisers():
    spec = loads(
        cell(
            "h[t] = w1 * x[t] + w2 + b1 + b2 + c",
            parameters="{w1: [], w2: [], b1: [], b2: [], c: []}",
            init='{"w*": "uniform(-1, 0.5)", w2: glorot_uniform, "b*": zeros, b2: 1.5, "*1": ones}',
        )
    )
    assert {n: (i.kind, i.args) for n, i in spec.init.items()} == {
        "w1": ("uniform", (-1.0, 0.5)),
        "w2": ("glorot_uniform", ()),
        "b1": ("constant", (0.0,)),
        "b2": ("constant", (1.5,)),
    }
