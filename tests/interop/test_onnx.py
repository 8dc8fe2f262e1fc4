"""ONNX's RNN, GRU and LSTM nodes through our kernels: ONNX's own node tests, the operators' text in
plain NumPy, ONNX Runtime."""

from __future__ import annotations

import itertools
import random
import warnings
from typing import Any

import numpy as np
import pytest
from cells import reference_run
from tolerances import HAND, ONNX_RUNTIME, REFERENCE, SIX_DIGITS, assert_close, assert_same

import rnnspec
from rnnspec import DtypeError, ShapeError, UnsupportedError

onnx = pytest.importorskip("onnx")
from onnx_text import ALPHA, BETA, FUNCTIONS, GATES, draw, evaluate, node_of  # noqa: E402

from rnnspec.check import peers  # noqa: E402
from rnnspec.engine.results import Inference  # noqa: E402
from rnnspec.engine.spans import Pieces  # noqa: E402
from rnnspec.interop import onnx_nodes as interop  # noqa: E402
from rnnspec.interop.onnx import NodeError, cells, run  # noqa: E402
from rnnspec.interop.onnx_cells import ACTIVATIONS, OPERATORS, Form  # noqa: E402

FLAG = {"GRU": "linear_before_reset", "LSTM": "input_forget"}
LENGTHS = ([4, 2, 1], [2, 0, 4], None)


def with_activations(names: list[str]) -> dict[str, Any]:
    """The attributes for these activations, a different alpha and beta for each that reads one, no
    alpha equal to a beta."""
    made: dict[str, Any] = {"activations": names}
    for key, known, first in (("alpha", ALPHA, 0.3), ("beta", BETA, 0.65)):
        if values := [first + 0.1 * k for k, _ in enumerate(n for n in names if n in known)]:
            made[f"activation_{key}"] = values
    return made


def node_tests() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        return [c for c in load_model_tests(kind="node") if any(n.op_type in GATES for n in c.model.graph.node)]


NODE_TESTS = node_tests()


def test_all_node_tests_of_onnx_are_found():
    assert len(NODE_TESTS) >= 18
    assert all(len(c.model.graph.node) == 1 for c in NODE_TESTS)


@pytest.mark.parametrize("case", NODE_TESTS, ids=lambda c: c.name)
def test_node_tests_of_onnx(case):
    """The official backend tests; ours are nearer than the tolerance that they come with."""
    node = case.model.graph.node[0]
    for inputs, outputs in case.data_sets:
        found = run(node, inputs)
        assert list(found) == [o for o in node.output if o] and len(found) == len(outputs)
        for array, right in zip(found.values(), outputs):
            np.testing.assert_allclose(array, right, rtol=case.rtol, atol=case.atol)
            assert_close(array, right, REFERENCE["float32"])


# which kernels run against the text: every cell of the table, and activations that between them are
# all there are
KERNELS = [
    ("RNN", {}, "rnn"),
    ("GRU", {"linear_before_reset": 0}, "gru_reset_before"),
    ("GRU", {"linear_before_reset": 1}, "gru"),
    ("LSTM", {}, "lstm"),
    ("LSTM", {"P": True}, "lstm_peephole"),
    ("LSTM", {"input_forget": 1}, "lstm_cifg"),
    ("LSTM", {"input_forget": 1, "P": True}, "lstm_cifg_peephole"),
    ("LSTM", {"P": True, "clip": 0.5} | with_activations(["HardSigmoid", "LeakyRelu", "ScaledTanh"]), "onnx_lstm"),
    ("LSTM", {"clip": 2.0} | with_activations(["Softplus", "ThresholdedRelu", "Affine"]), "onnx_lstm"),
    ("GRU", {"clip": 0.5, "linear_before_reset": 1} | with_activations(["Softsign", "Elu"]), "onnx_gru"),
    ("GRU", {} | with_activations(["HardSigmoid", "Relu"]), "onnx_gru"),
    ("RNN", {"clip": 0.5}, "onnx_rnn"),
]


def prepared(op: str, attributes: dict[str, Any], **more: Any) -> Any:
    known = attributes | more
    names = tuple(
        n for n in ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c") if op == "LSTM" or n != "initial_c"
    )
    return node_of(op, (*names, *(("P",) if known.pop("P", False) else ())), **known)


def both_ways(attributes: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a bidirectional node with the same activations in both directions."""
    return {k: list(v) * 2 if k.startswith("activation") else v for k, v in attributes.items()} | {
        "direction": "bidirectional"
    }


@pytest.mark.parametrize(("op", "attributes", "cell"), KERNELS, ids=lambda v: str(v).replace(" ", ""))
def test_kernels_are_the_operators_text(op, attributes, cell):
    node = prepared(op, attributes)
    assert [s.name for s in cells(node)] == [cell]
    for direction, layout, (steps, rows, d, h) in (
        ("forward", 0, (4, 3, 2, 5)),
        ("reverse", 1, (7, 5, 3, 4)),
        ("bidirectional", 1, (4, 4, 1, 9)),
        ("bidirectional", 0, (1, 1, 1, 1)),
        ("reverse", 0, (3, 0, 2, 3)),
        ("bidirectional", 0, (0, 2, 2, 3)),
    ):
        known = both_ways(attributes) if direction == "bidirectional" else attributes | {"direction": direction}
        node = prepared(op, known, layout=layout, hidden_size=h)
        arrays = draw(node, steps, rows, d, h, seed=steps)
        assert_close(run(node, arrays), evaluate(node, arrays), REFERENCE["float64"], f"{direction}, layout {layout}")


ACTIVATED = {
    "RNN": [[n] for n in FUNCTIONS],
    "GRU": [
        None,
        ["HardSigmoid", "Relu"],
        ["Softplus", "ScaledTanh"],
        ["Affine", "Elu"],
        ["ThresholdedRelu", "Sigmoid"],
    ],
    "LSTM": [
        None,
        ["Relu", "Softsign", "Elu"],
        ["HardSigmoid", "LeakyRelu", "ScaledTanh"],
        ["Softplus", "ThresholdedRelu", "Affine"],
    ],
}


def combinations(op: str) -> list[tuple[Any, ...]]:
    """Activations, direction, clip, layout, the operator's own flag and lengths, in an order that
    is mixed but always the same."""
    found = list(
        itertools.product(
            ACTIVATED[op],
            ("forward", "reverse", "bidirectional"),
            (None, 0.5),
            (0, 1),
            (0, 1) if op in FLAG else (0,),
            LENGTHS,
        )
    )
    random.Random(0).shuffle(found)
    return found


@pytest.mark.parametrize(
    ("op", "part"),
    [*((op, slice(50)) for op in GATES), *(pytest.param(op, slice(50, None), marks=pytest.mark.slow) for op in GATES)],
)
def test_every_attribute_is_the_operators_text(op, part, monkeypatch):
    """The same, for combinations of all there is, the cells that the nodes are made into run by the
    reference instead of kernels."""
    monkeypatch.setattr(interop, "form_kernel", lambda form, dtype, threads: ByReference(form))
    for names, direction, clip, layout, flag, lengths in combinations(op)[part]:
        more = with_activations(names * (2 if direction == "bidirectional" else 1)) if names else {}
        more |= {FLAG[op]: flag} if op in FLAG else {}
        more |= {} if clip is None else {"clip": clip}
        node = prepared(op, more, P=flag == 0 and op == "LSTM", direction=direction, layout=layout)
        arrays = draw(node, 4, 3, 2, 3, lengths=lengths, scale=0.7)
        assert_close(
            run(node, arrays),
            evaluate(node, arrays),
            HAND["float64"],
            f"{names} {direction} clip {clip} layout {layout} {flag} {lengths}",
        )


class ByReference:
    """A kernel's `infer`, by the definition in float64."""

    def __init__(self, form: Form):
        self.spec = form.spec()

    def infer(self, params: Any, inputs: Any, states: Any, lengths: Any = None, pieces: Pieces | None = None) -> Any:
        if pieces is None:
            return reference_run(self.spec, params, inputs, states, lengths)
        assert pieces.reverse and pieces.row.tolist() == list(
            range(inputs["x"].shape[1])
        )  # one piece a row: nothing restarts
        found = reference_run(self.spec, params, {"x": turned(inputs["x"], pieces.length)}, states, pieces.length)
        return Inference({"h": turned(found.outputs["h"], pieces.length)}, found.final)


def turned(array: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Each row from its last step to its first; what lies behind its end stays there."""
    made = array.copy()
    for row, n in enumerate(lengths):
        made[:n, row] = array[:n, row][::-1]
    return made


def test_the_two_directions_may_have_different_activations():
    node = prepared(
        "LSTM",
        with_activations(["Sigmoid", "Tanh", "Tanh", "HardSigmoid", "LeakyRelu", "ScaledTanh"])
        | {
            "clip": 0.5,
            "P": True,
        },
        direction="bidirectional",
    )
    forward, reverse = cells(node)
    assert "onnx_f(v)" not in rnnspec.transform.to_yaml(forward) and forward.equations != reverse.equations
    arrays = draw(node, 4, 3, 2, 3)
    assert_close(run(node, arrays), evaluate(node, arrays), REFERENCE["float64"])


def test_inputs_and_outputs_left_out():
    """No biases, lengths or states; only some outputs, under the node's own names."""
    node = onnx.helper.make_node(
        "LSTM", ["in", "weights", "recurrent", "", "", "", "start"], ["", "", "cell"], hidden_size=3
    )
    plain = node_of("LSTM", ("X", "W", "R", "initial_c"))
    arrays = draw(plain, 4, 2, 2, 3)
    named = dict(zip(("in", "weights", "recurrent", "start"), (arrays[n] for n in ("X", "W", "R", "initial_c"))))
    found = run(node, named)
    assert list(found) == ["cell"]
    assert_close(found["cell"], evaluate(plain, arrays)["Y_c"], REFERENCE["float64"])
    assert_same(run(node, list(named.values())), found)
    for names in (("X", "W", "R", "initial_h", "P"), ("X", "W", "R", "B"), ("X", "W", "R", "sequence_lens")):
        node = node_of("LSTM", names)
        arrays = draw(node, 4, 2, 2, 3)
        assert_close(run(node, arrays), evaluate(node, arrays), REFERENCE["float64"], str(names))


def test_the_example_of_the_readme():
    node = onnx.helper.make_node(
        "LSTM", ["X", "W", "R"], ["Y", "", "Y_c"], hidden_size=5, direction="bidirectional", clip=3.0
    )
    draw = np.random.default_rng(0).standard_normal
    outputs = run(node, {"X": draw((7, 2, 3)), "W": draw((2, 20, 3)), "R": draw((2, 20, 5))})
    assert outputs["Y"].shape == (7, 2, 2, 5) and outputs["Y_c"].shape == (2, 2, 5) and list(outputs) == ["Y", "Y_c"]
    forward, reverse = cells(node)
    assert forward == reverse and forward.name == "onnx_lstm" and "clip" in rnnspec.transform.to_yaml(forward)


def test_the_table_of_cells_is_what_the_specs_say():
    """Each cell of the table claims the operator with those attributes, and has its layout, with P
    where the node has it."""
    for op, own in OPERATORS.items():
        for key, cell in own.cells.items():
            spec = rnnspec.load(cell)
            attributes = {n: v for n, v in key if n != "P"}
            claimed = {n: v for n, v in spec.same_as[f"onnx.{op}"].items() if n != "activations"}
            assert {n: int(claimed.get(n, 0)) for n in attributes} == attributes and set(claimed) <= set(attributes), (
                cell
            )
            assert ("P" in spec.layouts[f"onnx.{op}"]) == bool(dict(key).get("P", 0)), cell


def test_activations_are_those_of_the_schema():
    text = onnx.defs.get_schema("LSTM").doc
    named = {
        line.split("(")[0].removeprefix("* ").strip()
        for line in text.splitlines()
        if line.startswith("* ") and "(x)" in line
    }
    assert named == set(ACTIVATIONS) == set(FUNCTIONS)
    for op, own in OPERATORS.items():
        schema = onnx.defs.get_schema(op)
        assert set(schema.attributes) == set(interop_attributes(op))
        assert [i.name for i in schema.inputs] == [*interop.COMMON_INPUTS, *own.more_inputs]
        assert [o.name for o in schema.outputs] == ["Y", *(f"Y_{letter}" for letter in own.states.values())]


def interop_attributes(op: str) -> dict[str, str]:
    from rnnspec.interop.onnx_cells import attribute_kinds

    return attribute_kinds(OPERATORS[op])


# --- what is refused ---


@pytest.mark.parametrize(
    ("op", "attributes", "words"),
    [
        ("LSTM", {"output_sequence": 1}, "no attribute 'output_sequence'"),
        ("LSTM", {"input_forgets": 1}, "Did you mean 'input_forget'"),
        ("LSTM", {"linear_before_reset": 1}, "no attribute 'linear_before_reset'"),
        (
            "GRU",
            {"direction": "backward"},
            "'direction' of GRU must be forward, reverse, bidirectional, not 'backward'",
        ),
        ("GRU", {"layout": 2}, "'layout' of GRU must be 0, 1, not 2"),
        ("LSTM", {"input_forget": 2}, "'input_forget' of LSTM must be 0, 1, not 2"),
        ("LSTM", {"clip": -1.0}, "'clip' of LSTM must be a number from 0, not -1"),
        ("LSTM", {"clip": float("nan")}, "'clip' of LSTM must be a number from 0"),
        ("LSTM", {"clip": 1}, "'clip' of LSTM must be float, and is int"),
        ("RNN", {"activations": ["tanh"]}, "no activation 'tanh'. Did you mean 'Tanh'"),
        ("LSTM", {"activations": ["Sigmoid", "Tanh"]}, "'activations' must have 3 names, not 2"),
        (
            "LSTM",
            {"activations": ["Sigmoid", "Tanh", "Tanh"], "direction": "bidirectional"},
            "must have 6 names, not 3",
        ),
        ("LSTM", {"activations": ["Sigmoid", "Tanh", "Tanh", "Relu", "Tanh", "Tanh"]}, "must have 3 names, not 6"),
        ("RNN", {"activations": ["Affine"]}, "Affine of RNN needs a number in 'activation_alpha': it has no default"),
        (
            "RNN",
            {"activations": ["ScaledTanh"], "activation_alpha": [1.0]},
            "ScaledTanh of RNN needs a number in 'activation_beta'",
        ),
        (
            "RNN",
            {"activations": ["LeakyRelu"], "activation_alpha": [float("inf")]},
            "LeakyRelu of RNN needs a number in 'activation_alpha', not inf",
        ),
        ("RNN", {"activation_alpha": [0.5]}, "'activation_alpha' of RNN has 1 values more"),
        (
            "LSTM",
            {"activations": ["HardSigmoid", "Tanh", "Tanh"], "activation_beta": [0.5, 0.5]},
            "'activation_beta' of LSTM has 1 values more",
        ),
    ],
)
def test_attributes_that_the_text_does_not_allow(op, attributes, words):
    node = node_of(op, ("X", "W", "R"), **attributes)
    with pytest.raises(NodeError) as caught:
        run(node, draw(node_of(op, ("X", "W", "R")), 2, 2, 2, 3))
    assert words in str(caught.value)


def test_other_operators_and_forms_of_nodes():
    with pytest.raises(UnsupportedError, match=r"'Loop' is no recurrent operator of ONNX: run takes RNN, GRU, LSTM"):
        run(onnx.helper.make_node("Loop", ["a"], ["b"]), {})
    with pytest.raises(UnsupportedError, match=r"'com\.microsoft\.LSTM'"):
        run(onnx.helper.make_node("LSTM", ["X", "W", "R"], ["Y"], domain="com.microsoft"), {})
    with pytest.raises(NodeError, match=r"needs the inputs X, W and R; the node lacks R"):
        run(onnx.helper.make_node("GRU", ["X", "W"], ["Y"]), {})
    with pytest.raises(NodeError, match=r"RNN has 6 inputs .* names 8"):
        run(onnx.helper.make_node("RNN", list("abcdefgh"), ["Y"]), {})
    with pytest.raises(NodeError, match=r"asks for none of the outputs Y, Y_h"):
        run(onnx.helper.make_node("RNN", ["X", "W", "R"], [""]), {})
    with pytest.raises(NodeError, match=r"two outputs of the node have one name: a, a"):
        run(onnx.helper.make_node("RNN", ["X", "W", "R"], ["a", "a"]), {})
    with pytest.raises(NodeError, match=r"'direction' of RNN is no text"):
        run(onnx.helper.make_node("RNN", ["X", "W", "R"], ["Y"], direction=b"\xff"), {})
    node = node_of("RNN", ("X", "W", "R"), clip=1.0)
    node.attribute.append(onnx.helper.make_attribute("clip", 2.0))
    with pytest.raises(NodeError, match=r"'clip' of RNN is given twice"):
        run(node, {})
    node = node_of("RNN", ("X", "W", "R"))
    node.attribute.append(onnx.AttributeProto(name="clip", ref_attr_name="outer", type=onnx.AttributeProto.FLOAT))
    with pytest.raises(NodeError, match=r"'clip' of RNN stands for 'outer'"):
        run(node, {})


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"W": np.zeros((1, 12, 5))}, ShapeError, "'W' (W) has the shape (1, 12, 5), expected (1, 12, 2)"),
        ({"B": np.zeros((1, 12))}, ShapeError, "'B' (B) has the shape (1, 12), expected (1, 24)"),
        ({"P": np.zeros((2, 9))}, ShapeError, "'P' (P) has the shape (2, 9), expected (1, 9)"),
        (
            {"initial_c": np.zeros((2, 1, 3))},
            ShapeError,
            "'initial_c' (initial_c) has the shape (2, 1, 3), expected (1, 2, 3)",
        ),
        ({"X": np.zeros((4, 2))}, ShapeError, "'X' (X) must have 3 axes"),
        (
            {"X": np.zeros((4, 2, 2), np.float16)},
            DtypeError,
            "dtype float16, and kernels are made for float32 and float64",
        ),
        ({"R": np.zeros((1, 12, 3), np.float32)}, DtypeError, "'R' (R) has dtype float32, the kernel float64"),
        (
            {"sequence_lens": np.array([5, 1], np.int32)},
            ValueError,
            "lengths[0] is 5, but a row takes between 0 and 4 steps",
        ),
        ({"sequence_lens": np.array([2.5, 1])}, ValueError, "lengths must be integers"),
        ({"Z": np.zeros(1)}, ShapeError, "'Z' is no input of the node"),
        ({"R": None}, ShapeError, "'R' is missing"),
    ],
)
def test_arrays_that_do_not_fit(change, error, words):
    node = node_of("LSTM", hidden_size=3)
    arrays = {n: a for n, a in (draw(node, 4, 2, 2, 3) | change).items() if a is not None}
    with pytest.raises(error) as caught:
        run(node, arrays)
    assert words in str(caught.value)


def test_hidden_size_and_the_number_of_arrays_are_checked():
    arrays = draw(node_of("LSTM"), 4, 2, 2, 3)
    with pytest.raises(ShapeError, match=r"hidden_size is 5, and the last axis of R has 3"):
        run(node_of("LSTM", hidden_size=5), arrays)
    with pytest.raises(ShapeError, match=r"the node has 8 inputs .*; got 2 arrays"):
        run(node_of("LSTM"), [arrays["X"], arrays["W"]])


# --- the known faults ---


def one_unit(op: str, steps: int = 1, x: float = 0.0, dtype: str = "float64", **given: Any) -> dict[str, np.ndarray]:
    """A node of one unit, one feature and one row, everything 0 that is not given (a list for the
    last axis); other keywords are attributes."""
    names = {n: given.pop(n) for n in ("W", "R", "B", "P", "initial_h", "initial_c") if n in given}
    g, dirs = GATES[op], 2 if given.get("direction") == "bidirectional" else 1
    shapes = {
        "W": (dirs, g, 1),
        "R": (dirs, g, 1),
        "B": (dirs, 2 * g),
        "P": (dirs, 3),
        "initial_h": (dirs, 1, 1),
        "initial_c": (dirs, 1, 1),
    }
    arrays = {
        n: np.broadcast_to(
            np.reshape(
                np.asarray(names.get(n, np.zeros(shapes[n][1] if n in "WR" else shapes[n][-1])), dtype),
                shapes[n][1:] if n in "WR" else (1,) * (len(shapes[n]) - 1) + shapes[n][-1:],
            ),
            shapes[n],
        )
        for n in shapes
        if n in ("W", "R") or n in names
    }
    node = node_of(op, ("X", *arrays), **given)
    found = run(node, {"X": np.full((steps, 1, 1), x, dtype)} | {n: np.ascontiguousarray(a) for n, a in arrays.items()})
    return {n: np.asarray(a) for n, a in found.items()}


@pytest.mark.parametrize(("flag", "h"), [(1, 0.880797), (0, 0.952574)])
def test_H04_linear_before_reset_moves_the_reset_gate(flag, h):
    found = one_unit("GRU", R=[0, 0, 1], B=[0, 0, 0, 0, 0, 1], initial_h=[1], linear_before_reset=flag)
    assert_close(found["Y_h"].item(), h, SIX_DIGITS)


def test_H05_gates_come_as_i_o_f_c():
    found = one_unit("LSTM", B=[0, np.log(3), 0, 0, 0, 0, 0, 0], initial_c=[1])
    assert_close([found["Y_c"].item(), found["Y_h"].item()], [0.5, 0.346588], SIX_DIGITS)


def test_H06_peepholes_come_as_i_o_f():
    found = one_unit("LSTM", P=[0, 0, np.log(3)], initial_c=[1])
    assert_close([found["Y_c"].item(), found["Y_h"].item()], [0.75, 0.317574], SIX_DIGITS)


def test_H11_the_reverse_direction_starts_at_a_rows_last_step():
    node = node_of(
        "RNN",
        ("X", "W", "R", "sequence_lens"),
        direction="bidirectional",
        activations=["Affine"] * 2,
        activation_alpha=[1.0, 1.0],
        activation_beta=[0.0, 0.0],
    )
    x = np.array([[1, 1], [2, 2], [3, 99.0]])[..., None]
    found = run(node, [x, np.ones((2, 1, 1)), np.full((2, 1, 1), 0.5), np.array([3, 2], np.int32)])
    assert_close(found["Y"][:, :, 1, 0], [[1, 2], [2.5, 2], [0, 0]], HAND["float64"])
    assert_close(found["Y_h"][..., 0], [[4.25, 2.5], [2.75, 2.0]], HAND["float64"])


def test_H12_H13_outputs_past_the_end_and_rows_of_no_steps():
    node = node_of(
        "RNN",
        ("X", "W", "R", "sequence_lens", "initial_h"),
        direction="bidirectional",
        activations=["Affine"] * 2,
        activation_alpha=[1.0, 1.0],
        activation_beta=[0.0, 0.0],
    )
    arrays = [
        np.ones((4, 2, 1)),
        np.ones((2, 1, 1)),
        np.full((2, 1, 1), 0.5),
        np.array([2, 0], np.int32),
        np.full((2, 2, 1), 7.0),
    ]
    found = run(node, arrays)
    assert_close(found["Y_h"][:, 1, 0], [7, 7], HAND["float64"])
    assert not found["Y"][:, :, 1].any() and not found["Y"][2:].any()
    assert_close(found["Y"][:2, :, 0, 0], [[4.5, 3.25], [3.25, 4.5]], HAND["float64"])


@pytest.mark.parametrize(
    "other",
    [{"input_forget": 0}, {"activations": ["Sigmoid", "Relu", "Tanh"]}, {"clip": 0.25}, {"direction": "reverse"}],
)
def test_H52_attributes_change_the_result(other):
    found = one_unit("LSTM", B=[np.log(3), 0, 5, 1, 0, 0, 0, 0], initial_c=[2], input_forget=1)
    assert_close([found["Y_c"].item(), found["Y_h"].item()], [1.071196, 0.394956], SIX_DIGITS)
    changed = one_unit(
        "LSTM",
        steps=2,
        x=1.0,
        W=[1, 2, 3, 4],
        B=[np.log(3), 0, 5, 1, 0, 0, 0, 0],
        initial_c=[2],
        **({"input_forget": 1} | other),
    )
    plain = one_unit(
        "LSTM", steps=2, x=1.0, W=[1, 2, 3, 4], B=[np.log(3), 0, 5, 1, 0, 0, 0, 0], initial_c=[2], input_forget=1
    )
    assert abs(changed["Y"] - plain["Y"]).max() > 1e-3


def test_H53_clip_acts_before_every_activation():
    found = one_unit("LSTM", B=[-10, 0, 10, 0, 0, 0, 0, 0], initial_c=[2], clip=1.0)
    assert_close([found["Y_c"].item(), found["Y_h"].item()], [1.462117, 0.380797], SIX_DIGITS)


@pytest.mark.parametrize(("x", "onnx_value", "torch_value"), [(1.0, 0.7, 0.666667), (2.0, 0.9, 0.833333)])
def test_H54_hard_sigmoids_of_onnx_and_of_pytorch(x, onnx_value, torch_value):
    """ONNX's has the slope 0.2 unless told otherwise; PyTorch's 1/6 is written in a spec as
    hard_sigmoid(v, 1/6)."""
    node = node_of("RNN", ("X", "W", "R"), activations=["HardSigmoid"])
    found = run(node, [np.full((1, 1, 1), x), np.ones((1, 1, 1)), np.zeros((1, 1, 1))])
    assert_close(found["Y"].item(), onnx_value, SIX_DIGITS)
    from tiny import cell

    spec = rnnspec.loads(cell("h[t] = hard_sigmoid(x[t], 1/6)"))
    assert_close(reference_run(spec, {}, {"x": np.full((1, 1), x)}).outputs["h"].item(), torch_value, SIX_DIGITS)


def test_H55_the_reverse_direction_stays_aligned_in_time():
    found = one_unit(
        "RNN",
        steps=4,
        x=1.0,
        W=[1],
        R=[0.5],
        direction="reverse",
        activations=["Affine"],
        activation_alpha=[1.0],
        activation_beta=[0.0],
    )
    assert_close(found["Y"].ravel(), [1.875, 1.75, 1.5, 1.0], HAND["float64"])
    assert found["Y_h"].item() == found["Y"][0].item()


@pytest.mark.parametrize(("rows", "steps"), [(3, 4), (2, 2)])
def test_H56_layout_1_is_layout_0_with_other_axes(rows, steps):
    node, other = (node_of("LSTM", direction="bidirectional", layout=k) for k in (0, 1))
    arrays = draw(node, steps, rows, 2, 3)
    turned = {n: np.swapaxes(a, 0, 1) if n in ("X", "initial_h", "initial_c") else a for n, a in arrays.items()}
    plain, found = run(node, arrays), run(other, turned)
    assert found["Y"].shape == (rows, steps, 2, 3) and found["Y_h"].shape == found["Y_c"].shape == (rows, 2, 3)
    assert_same(found["Y"], plain["Y"].transpose(2, 0, 1, 3))
    assert_same(found["Y_h"], plain["Y_h"].swapaxes(0, 1))
    assert_same(found["Y_c"], plain["Y_c"].swapaxes(0, 1))


def test_H57_onnx_reference_evaluator_is_no_oracle():
    """Why the text in plain NumPy is what nodes are compared with: ONNX's own evaluator leaves
    these attributes out."""
    from onnx.reference import ReferenceEvaluator

    differ = []
    for about, attributes, lengths in (
        ("sequence_lens", {}, [4, 2, 1]),
        ("clip", {"clip": 0.25}, [4, 4, 4]),
        ("input_forget", {"input_forget": 1}, [4, 4, 4]),
    ):
        node = node_of("LSTM", hidden_size=3, **attributes)
        arrays = draw(node, 4, 3, 2, 3, "float32", lengths)
        right = evaluate(node, arrays)
        assert_close(run(node, arrays), right, REFERENCE["float32"], about)
        y = ReferenceEvaluator(node).run(["Y"], arrays)[0]
        differ += [about] if y.shape != right["Y"].shape or abs(y - right["Y"]).max() > 1e-3 else []
    if differ != ["sequence_lens", "clip", "input_forget"]:
        pytest.skip(f"onnx {onnx.__version__} computes what it once left out; still wrong: {differ or 'nothing'}")


# --- ONNX Runtime ---


def by_runtime(node: Any, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """ONNX Runtime's outputs (float32)."""
    return peers.onnx_runtime(node, arrays)


@pytest.mark.parametrize(("op", "attributes", "cell"), KERNELS, ids=lambda v: str(v).replace(" ", ""))
def test_kernels_are_onnx_runtime(op, attributes, cell):
    """Where the runtime does what the text says: not with clip before h of LSTM, rows of no steps,
    or layout 1."""
    pytest.importorskip("onnxruntime")
    if op == "LSTM" and "clip" in attributes:
        attributes = attributes | {"clip": 1e4}
    for direction, lengths in (("forward", [7, 2, 5, 1, 3]), ("reverse", None), ("bidirectional", [1, 7, 7, 2, 4])):
        known = both_ways(attributes) if direction == "bidirectional" else attributes | {"direction": direction}
        node = prepared(op, known, hidden_size=17)
        arrays = draw(node, 7, 5, 3, 17, "float32", [7] * 5 if lengths is None else lengths, scale=0.3)
        assert_close(run(node, arrays), by_runtime(node, arrays), ONNX_RUNTIME, direction)


def runtime_differs(node: Any, arrays: dict[str, np.ndarray]) -> bool:
    """Whether the runtime departs from the text; ours does not."""
    right = evaluate(node, arrays)
    assert_close(run(node, arrays), right, REFERENCE["float32"])
    found = by_runtime(node, arrays)
    return any(abs(found[n] - right[n]).max() > 1e-3 for n in right)


def differs_by(what: str) -> bool:
    if what == "clip before h":
        node = node_of("LSTM", hidden_size=3, clip=0.25)
        arrays = draw(node, 4, 3, 2, 3, "float32", [4, 4, 4])
        assert_close(by_runtime(node, arrays), evaluate(node, arrays, clip_hidden=False), ONNX_RUNTIME)
        return runtime_differs(node, arrays)
    if what == "rows of no steps":
        node = node_of("GRU", hidden_size=3)
        return runtime_differs(node, draw(node, 4, 3, 2, 3, "float32", [4, 0, 4]))
    if what == "ThresholdedRelu without alpha":
        node = node_of("RNN", hidden_size=3, activations=["ThresholdedRelu"])
        return runtime_differs(node, draw(node, 4, 3, 2, 3, "float32", [4, 4, 4], scale=1.0))
    node = node_of(
        "RNN", ("X", "W", "R"), hidden_size=1, activations=["ThresholdedRelu"], activation_alpha=[0.5]
    )  # at x equal to alpha
    return runtime_differs(
        node,
        {
            "X": np.full((1, 1, 1), 0.5, np.float32),
            "W": np.ones((1, 1, 1), np.float32),
            "R": np.zeros((1, 1, 1), np.float32),
        },
    )


@pytest.mark.parametrize(
    "what", ["clip before h", "rows of no steps", "ThresholdedRelu without alpha", "ThresholdedRelu at alpha"]
)
def test_H53_H13_where_onnx_runtime_differs_the_text_is_followed(what):
    """The list in docs/libraries.md. A runtime that has come to follow the text is no failure."""
    onnxruntime = pytest.importorskip("onnxruntime")
    if not differs_by(what):
        pytest.skip(
            f"onnxruntime {onnxruntime.__version__} does what the text says: strike '{what}' in docs/libraries.md"
        )


def test_H56_onnx_runtime_refuses_layout_1_and_float64():
    onnxruntime = pytest.importorskip("onnxruntime")
    taken = []
    for about, node, dtype in (
        ("layout 1", node_of("LSTM", hidden_size=3, layout=1), "float32"),
        ("float64", node_of("LSTM", hidden_size=3), "float64"),
    ):
        try:
            by_runtime(node, draw(node, 4, 3, 2, 3, dtype, [4, 4, 4]))
        except Exception:  # the runtime's own kinds
            continue
        taken.append(about)
    if taken:
        pytest.skip(f"onnxruntime {onnxruntime.__version__} takes {taken}: strike it in docs/libraries.md")
