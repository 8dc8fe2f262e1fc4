"""Which cell an ONNX RNN, GRU or LSTM node is: our specs, with the node's activations and clip put
in.

In: the attributes of a node. Out: one Spec for each direction. The operators' equations are those
of our cells (`lstm`, `gru`, ...); what the operators add stands in two tables here. Source: the
operators' text in ONNX, opset 7 to 22.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from rnnspec.errors import RnnspecError, UnsupportedError
from rnnspec.language.load import load
from rnnspec.language.rewrite import line, rewrite
from rnnspec.language.spec import Spec
from rnnspec.language.syntax.faults import did_you_mean, listed
from rnnspec.language.syntax.tree import Binary, Call, Expr, Ref, Unary

CLIP = "onnx_clip"  # the constant that the inputs of activations are clipped to


class NodeError(RnnspecError, ValueError):
    """A node that the operator's text does not allow."""


@dataclass(frozen=True)
class Activation:
    """One of the operators' activation functions of v. alpha, beta: their defaults, those of the
    ONNX operator of that name; None: it has none and must be given. A function reads the parameters
    that its text names."""

    text: str
    alpha: float | None = None
    beta: float | None = None


ACTIVATIONS: Mapping[str, Activation] = {
    "Relu": Activation("relu(v)"),
    "Tanh": Activation("tanh(v)"),
    "Sigmoid": Activation("sigmoid(v)"),
    "Affine": Activation("{alpha} * v + {beta}"),
    "LeakyRelu": Activation("leaky_relu(v, {alpha})", alpha=0.01),
    "ThresholdedRelu": Activation("where(v < {alpha}, 0, v)", alpha=1.0),
    "ScaledTanh": Activation("{alpha} * tanh({beta} * v)"),
    "HardSigmoid": Activation("clip({alpha} * v + {beta}, 0, 1)", alpha=0.2, beta=0.5),
    "Elu": Activation("where(v < 0, {alpha} * expm1(v), v)", alpha=1.0),
    "Softsign": Activation("softsign(v)"),
    "Softplus": Activation("softplus(v)"),
}


@dataclass(frozen=True)
class Operator:
    """activations: the operator's roles in their order, and what they are by default. roles: in
    which equations of our cells each is found. cells: our cell for each setting of the attributes
    that choose one; "P" is whether the node has that input. inputs beyond X, W, R, B, sequence_lens
    and initial_h, and states by the operator's letters."""

    gates: int
    activations: Mapping[str, str]
    roles: Mapping[str, str]
    states: Mapping[str, str]
    cells: Mapping[tuple[tuple[str, int], ...], str]
    more_inputs: tuple[str, ...] = ()


OPERATORS: Mapping[str, Operator] = {
    "RNN": Operator(1, {"f": "Tanh"}, {"h": "f"}, {"h": "h"}, {(): "rnn"}),
    "GRU": Operator(
        3,
        {"f": "Sigmoid", "g": "Tanh"},
        {"z": "f", "r": "f", "n": "g"},
        {"h": "h"},
        {(("linear_before_reset", 0),): "gru_reset_before", (("linear_before_reset", 1),): "gru"},
    ),
    "LSTM": Operator(
        4,
        {"f": "Sigmoid", "g": "Tanh", "h": "Tanh"},
        {"i": "f", "o": "f", "f": "f", "g": "g", "h": "h"},
        {"h": "h", "c": "c"},
        {
            (("input_forget", 0), ("P", 0)): "lstm",
            (("input_forget", 0), ("P", 1)): "lstm_peephole",
            (("input_forget", 1), ("P", 0)): "lstm_cifg",
            (("input_forget", 1), ("P", 1)): "lstm_cifg_peephole",
        },
        ("initial_c", "P"),
    ),
}
COMMON = {
    "activations": "strings",
    "activation_alpha": "floats",
    "activation_beta": "floats",
    "clip": "float",
    "direction": "string",
    "hidden_size": "int",
    "layout": "int",
}
DIRECTIONS: Mapping[str, tuple[str, ...]] = {
    "forward": ("forward",),
    "reverse": ("reverse",),
    "bidirectional": ("forward", "reverse"),
}
_FIELDS = {
    1: ("float", "f"),
    2: ("int", "i"),
    3: ("string", "s"),
    6: ("floats", "floats"),
    7: ("ints", "ints"),
    8: ("strings", "strings"),
}


def operator(name: str, domain: str = "") -> Operator:
    if name not in OPERATORS or domain not in ("", "ai.onnx"):
        full = f"{domain}.{name}" if domain else name
        raise UnsupportedError(f"'{full}' is no recurrent operator of ONNX: run takes {listed(OPERATORS)}.")
    return OPERATORS[name]


def attribute_kinds(own: Operator) -> dict[str, str]:
    """Every attribute of an operator and its kind."""
    return COMMON | {name: "int" for key in own.cells for name, _ in key if name != "P"}


def read_attributes(node: object) -> dict[str, object]:
    """The attributes of an onnx.NodeProto, checked: names, kinds, values out of range."""
    op, kinds = node.op_type, attribute_kinds(operator(node.op_type, node.domain))  # type: ignore[attr-defined]
    found: dict[str, object] = {}
    for attribute in node.attribute:  # type: ignore[attr-defined]
        name = attribute.name
        if name not in kinds:
            raise NodeError(
                f"{op} has no attribute '{name}'.{did_you_mean(name, kinds)} It has: {listed(sorted(kinds))} (opset 7"
                " and later)."
            )
        if attribute.ref_attr_name:
            raise NodeError(
                f"the attribute '{name}' of {op} stands for '{attribute.ref_attr_name}' of a function: give the node"
                " its value."
            )
        kind, field = _FIELDS.get(attribute.type, ("another kind", ""))
        if kind != kinds[name]:
            raise NodeError(f"the attribute '{name}' of {op} must be {kinds[name]}, and is {kind}.")
        if name in found:
            raise NodeError(f"the attribute '{name}' of {op} is given twice.")
        value = getattr(attribute, field)
        try:
            found[name] = (
                value.decode()
                if kind == "string"
                else [v.decode() for v in value]
                if kind == "strings"
                else list(value)
                if field == kind
                else value
            )
        except UnicodeDecodeError:
            raise NodeError(f"the attribute '{name}' of {op} is no text: {value!r}.") from None
    _in_range(op, found)
    return found


def _in_range(op: str, found: Mapping[str, object]) -> None:
    flags = dict.fromkeys(("layout", "input_forget"), (0, 1)) | {"direction": tuple(DIRECTIONS)}
    for name, allowed in flags.items():
        if found.get(name, allowed[0]) not in allowed:
            raise NodeError(f"the attribute '{name}' of {op} must be {listed(map(str, allowed))}, not {found[name]!r}.")
    clip = found.get("clip", 0.0)
    if not isinstance(clip, float) or not clip >= 0:
        raise NodeError(f"the attribute 'clip' of {op} must be a number from 0, not {clip!r}.")


@dataclass(frozen=True)
class Form:
    """Which cell one direction of a node is: our cell, the text of each of its activations, what
    their inputs are clipped to."""

    op: str
    cell: str
    texts: tuple[str, ...]
    clip: float

    def spec(self) -> Spec:
        return _spec(self)


def forms_of(op: str, attributes: Mapping[str, object], peepholes: bool = False) -> tuple[Form, ...]:
    """The cell of each direction. attributes: as `read_attributes` gives them; peepholes: whether
    the node has the input P.

    Its parameters come from the node's inputs by the layout `onnx.LSTM` (`onnx.GRU`, `onnx.RNN`)
    that every one of these cells has.
    """
    own, directions = operator(op), DIRECTIONS[str(attributes.get("direction", "forward"))]
    # "when linear_before_reset != 0" it stands after the product; input_forget was checked to be 0
    # or 1
    flags = {name: int(bool(attributes.get(name, 0))) for name in attribute_kinds(own) if name not in COMMON} | {
        "P": int(peepholes)
    }
    cell = next(c for key, c in own.cells.items() if all(flags[n] == v for n, v in key))
    clip = float(attributes.get("clip", math.inf))  # type: ignore[arg-type]
    return tuple(Form(op, cell, texts, clip) for texts in _activation_texts(op, own, attributes, len(directions)))


@lru_cache(maxsize=256)
def _spec(form: Form) -> Spec:
    """Our cell with other activations, their inputs clipped."""
    own, spec = OPERATORS[form.op], load(form.cell)
    role_texts = dict(zip(own.activations, form.texts))
    if form.clip == math.inf and all(
        role_texts[role] == ACTIVATIONS[default].text for role, default in own.activations.items()
    ):
        return spec
    changed = {}
    for equation in spec.equations:
        if equation.target in own.roles:
            value = _replaced(equation.value, f"onnx_{own.roles[equation.target]}", form.clip < math.inf)
            if value != equation.value:
                changed[equation.target] = line(replace(equation, value=value))
    used = {own.roles[target] for target in changed}
    functions = {f"onnx_{role}(v)": text for role, text in role_texts.items() if role in used}
    # a constant, and no number in the equations: kernels for one clip then serve every other
    constants = {CLIP: repr(form.clip)} if form.clip < math.inf else {}
    declared = {"functions": functions, "constants": constants}
    return rewrite(spec, f"onnx_{form.op.lower()}", f"{spec.title}, as an ONNX {form.op} node", changed, declared)


def _replaced(expr: Expr, function: str, clipped: bool) -> Expr:
    """The expression with `function` in place of its own activation, a sigmoid or tanh."""
    match expr:
        case Call("sigmoid" | "tanh", (argument,)):
            bound = Ref(CLIP)
            return Call(function, (Call("clip", (argument, Unary("-", bound), bound)) if clipped else argument,))
        case Binary(_, left, right):
            return replace(expr, left=_replaced(left, function, clipped), right=_replaced(right, function, clipped))
    return expr


def _activation_texts(
    op: str, own: Operator, attributes: Mapping[str, object], directions: int
) -> list[tuple[str, ...]]:
    """The text of each role, for each direction. alpha and beta are consumed in the order of the
    functions, by those that read one."""
    given = attributes.get("activations", list(own.activations.values()) * directions)
    assert isinstance(given, Sequence)
    per, names = len(own.activations), list(given)
    if directions == 1 and len(names) == 2 * per and names[:per] == names[per:]:
        names = names[:per]  # the schema's default of RNN has two, whatever the direction
    if len(names) != per * directions:
        raise NodeError(
            f"{op} has {per} activations ({listed(own.activations)}) in each direction: 'activations' must have"
            f" {per * directions} names, not {len(names)}."
        )
    rest = {key: _numbers(attributes.get(f"activation_{key}", ())) for key in ("alpha", "beta")}
    texts = [_activation_text(op, name, rest) for name in names]
    for key, left in rest.items():
        if left:
            raise NodeError(
                f"'activation_{key}' of {op} has {len(left)} values more than its activations ({listed(names)}) read:"
                f" the operator's text does not say whose they are. Give one for each function that reads {key}, in"
                " their order."
            )
    return [tuple(texts[d * per : (d + 1) * per]) for d in range(directions)]


def _numbers(values: object) -> list[float]:
    assert isinstance(values, Sequence)
    return [float(value) for value in values]


def _activation_text(op: str, name: str, rest: Mapping[str, list[float]]) -> str:
    if name not in ACTIVATIONS:
        raise NodeError(
            f"{op} has no activation '{name}'.{did_you_mean(name, ACTIVATIONS)} There are: {listed(ACTIVATIONS)}."
        )
    row, values = ACTIVATIONS[name], {}
    for key, default in (("alpha", row.alpha), ("beta", row.beta)):
        if f"{{{key}}}" in row.text:
            value = rest[key].pop(0) if rest[key] else default
            if value is None or not math.isfinite(value):
                raise NodeError(
                    f"the activation {name} of {op} needs a number in 'activation_{key}'"
                    + (f", not {value}." if value is not None else ": it has no default.")
                )
            values[key] = f"({value!r})"
    return row.text.format(**values)
