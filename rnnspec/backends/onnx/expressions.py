"""Pointwise expressions as nodes of ONNX. Values broadcast as NumPy's do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rnnspec.backends.onnx.ops import Ops
from rnnspec.language.syntax.parse import parse_expression
from rnnspec.lowering.writer import expand
from rnnspec.symbolic.expressions import FUNCTION_CLASSES, from_tree
from rnnspec.symbolic.operations import HALF, power, symbol

# operation or primitive -> operator
OPERATORS = {
    "add": "Add",
    "subtract": "Sub",
    "multiply": "Mul",
    "divide": "Div",
    "negative": "Neg",
    "less": "Less",
    "less_equal": "LessOrEqual",
    "equal": "Equal",
    "both": "And",
    "either": "Or",
    "opposite": "Not",
    "select": "Where",
    "exp": "Exp",
    "log": "Log",
    "sqrt": "Sqrt",
    "sin": "Sin",
    "cos": "Cos",
    "erf": "Erf",
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
}
# primitives that ONNX has not, of v; by the quotient that takes back the rounding of exp(v) and of
# 1 + v (Kahan, as in Higham 2002, Accuracy and Stability of Numerical Algorithms, 1.14.1)
WRITTEN = {
    "expm1": "where(v > 0.5 or v < -0.5, exp(v) - 1, where(exp(v) == 1, v, (exp(v) - 1) * v / log(exp(v))))",
    "log1p": "where(1 + v == 1, v, where(1 + v - 1 == v, log(1 + v), log(1 + v) * (v / (1 + v - 1))))",
}


class Expressions:
    """Writes expressions of one value after the other. dtype: of all numbers."""

    def __init__(self, ops: Ops, dtype: str):
        self.ops, self.dtype = ops, np.dtype(dtype)

    def write(self, expr: Any, values: Mapping[str, str], target: str) -> None:
        """The nodes that compute `target`. values: what each symbol of the expression is called."""
        self.values, self.known = values, dict[Any, str]()
        found = self.node(_whole(expand(expr)), target)
        if found != target:
            self.ops.add("Identity", found, name=target, exact=True)

    def node(self, expr: Any, target: str = "") -> str:
        """The name of an expression's value."""
        if expr.is_Symbol:
            return self.values[expr.name]
        if expr.is_Number:
            with np.errstate(over="ignore"):  # of float32: infinite there
                return self.ops.constant(np.array(float(expr), self.dtype))
        if expr not in self.known:
            self.known[expr] = self._operation(expr, target)
        return self.known[expr]

    def _operation(self, expr: Any, target: str) -> str:
        kind = type(expr).__name__
        if kind == "total" and len(expr.args) > 1:
            first, *rest = expr.args
            found = self.node(first)
            for number, term in enumerate(rest, 1):
                found = self._add("Add", (found, self.node(term)), target if number == len(rest) else "")
            return found
        if kind == "unequal":
            return self._add("Not", (self._add("Equal", tuple(map(self.node, expr.args))),), target)
        if kind == "power":
            return self._power(expr.args[0], expr.args[1], target)
        if kind not in OPERATORS:
            raise TypeError(f"no operator for {kind}")
        return self._add(OPERATORS[kind], tuple(map(self.node, expr.args)), target)

    def _power(self, base: Any, exponent: Any, target: str) -> str:
        if exponent < 0:
            one = self.ops.constant(np.array(1.0, self.dtype))
            return self._add("Div", (one, self.node(power(base, -exponent))), target)
        found = self.node(base)
        if exponent == 2:
            return self._add("Mul", (found, found), target)
        if exponent == HALF:
            return self._add("Sqrt", (found,), target)
        return self._add("Pow", (found, self.node(exponent)), target)

    def _add(self, kind: str, inputs: tuple[str, ...], target: str = "") -> str:
        return self.ops.add(kind, *inputs, name=target, exact=bool(target))


def _whole(expr: Any) -> Any:
    """The expression with the primitives that ONNX has not written out."""
    if expr.is_Atom:
        return expr
    args = tuple(_whole(a) for a in expr.args)
    name = type(expr).__name__
    if name in WRITTEN and type(expr) is FUNCTION_CLASSES.get(name):
        tree = from_tree(parse_expression(WRITTEN[name]), symbol)
        return tree.xreplace({symbol("v"): args[0]})
    return expr.func(*args)
