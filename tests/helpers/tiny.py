"""A cell text in one call, and a plain float64 evaluation of a Spec: the language tests need no
other stage."""

from __future__ import annotations

import math

import numpy as np

from rnnspec.language.load import loads
from rnnspec.language.spec import Spec
from rnnspec.language.syntax.tree import Binary, Call, Expr, Number, Ref, Unary

FUNCTIONS = {
    "tanh": np.tanh,
    "sigmoid": lambda v: 1 / (1 + np.exp(-v)),
    "relu": lambda v: np.maximum(v, 0),
    "identity": lambda v: v,
    "exp": np.exp,
    "where": np.where,
}
OPERATORS = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "**": np.power, "@": np.matmul,
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal,
    "and": np.logical_and, "or": np.logical_or,
}  # fmt: skip


def cell(equations: str, **sections: str) -> str:
    """The YAML text of a cell with one input x and one state h, all numbers, unless a section says
    otherwise."""
    keys = {"rnnspec": "1", "name": "tested", "inputs": "{x: []}", "states": "{h: []}", "outputs": "[h]"} | sections
    body = "".join(f"  {line}\n" for line in equations.splitlines())
    return "".join(f"{k}: {v}\n" for k, v in keys.items() if v) + f"equations: |\n{body}"


def value(expr: Expr, names: dict[tuple[str, int | None], np.ndarray]) -> np.ndarray:
    match expr:
        case Number(number):
            return np.float64(number)
        case Ref(name, time):
            return names[name, time]
        case Unary("-", arg):
            return -value(arg, names)
        case Unary("not", arg):
            return np.logical_not(value(arg, names))
        case Binary(op, left, right):
            return OPERATORS[op](value(left, names), value(right, names))
        case Call(function, args):
            return FUNCTIONS[function](*(value(a, names) for a in args))
    raise TypeError(expr)


def run(spec: Spec, parameters: dict, inputs: dict, states: dict | None = None) -> dict[str, np.ndarray]:
    """The values of every equation at every step, `[T, ...]` by name: in the order of the spec,
    from earlier values 0."""
    sizes = {s: n for name, shape in spec.parameters.items() for s, n in zip(shape, np.shape(parameters.get(name, 0)))}
    history = {n: np.zeros([sizes.get(s, 1) for s in spec.shapes[n]]) for n in spec.shapes if n not in spec.parameters}
    history |= {name: np.asarray(v, float) for name, v in (states or {}).items()}
    steps = len(next(iter(inputs.values())))
    found: dict[str, list[np.ndarray]] = {e.target: [] for e in spec.equations}
    for step in range(steps):
        names = {(n, None): np.asarray(v, float) for n, v in parameters.items()} | {
            (n, -1): v for n, v in history.items()
        }
        names |= {("t", None): np.float64(step)} | {(n, 0): np.asarray(v[step], float) for n, v in inputs.items()}
        for equation in spec.equations:
            names[equation.target, 0] = value(equation.value, names)
            found[equation.target].append(names[equation.target, 0])
        history |= {n: names[n, 0] for n in history if (n, 0) in names}
    return {name: np.array(v) for name, v in found.items()}


def h_of(
    equations: str, x: float = 3.0, load: dict | None = None, parameters: dict | None = None, **sections: str
) -> float:
    """h after one step of a cell of numbers: its declared parameters have the given values."""
    if parameters:
        sections["parameters"] = "{" + ", ".join(f"{name}: []" for name in parameters) + "}"
    spec = loads(cell(equations, **sections), **(load or {}))
    return float(run(spec, parameters or {}, {name: [x] for name in spec.inputs})["h"][0])


def close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-12)
