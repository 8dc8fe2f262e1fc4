"""A cell's step as a function of ONNX's operators, made node by node from its Graph.

Values of a batch have its axis first; parameters, and what is made of them alone, have none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from rnnspec.backends.onnx.expressions import Expressions
from rnnspec.backends.onnx.ops import Op, Ops
from rnnspec.errors import UnsupportedError
from rnnspec.language.sizes import evaluate_size, full_shape
from rnnspec.lowering.needed import needed_of
from rnnspec.lowering.writer import expand
from rnnspec.symbolic.expressions import names
from rnnspec.symbolic.graph import (
    Concat,
    CumSum,
    Diag,
    Graph,
    Node,
    Outer,
    Part,
    Pointwise,
    Product,
    Read,
    Reduce,
    Transpose,
)


@dataclass(frozen=True)
class Function:
    """A step. reads: (kind, name) of what it reads, "state", "input", "parameter" or "step", -> the
    function's input; states, outputs: name -> the function's output."""

    reads: Mapping[tuple[str, str], str]
    states: Mapping[str, str]
    outputs: Mapping[str, str]
    ops: tuple[Op, ...]

    @property
    def results(self) -> tuple[str, ...]:
        """The function's outputs, each once."""
        return tuple(dict.fromkeys([*self.states.values(), *self.outputs.values()]))


def function(graph: Graph, dtype: str, sizes: Mapping[str, int], constant: Collection[str] = ()) -> Function:
    """The function of a step. sizes: the number of every size; constant: the inputs that are the
    same for all rows and steps, and are read like parameters.

    Reads [B, ...] of states and inputs, [...] of parameters, and [B] of the step's number; gives
    [B, ...].
    """
    return _Step(graph, dtype, sizes, frozenset(constant)).made()


class _Step:
    def __init__(self, graph: Graph, dtype: str, sizes: Mapping[str, int], constant: frozenset[str]):
        self.graph, self.dtype, self.sizes, self.constant = graph, np.dtype(dtype), sizes, constant
        self.needed = needed_of(graph)
        self.ops = Ops(graph.nodes)
        self.expressions = Expressions(self.ops, dtype)
        self.batched: set[str] = set()
        self.reads: dict[tuple[str, str], str] = {}
        self.raised: dict[tuple[str, int], str] = {}

    def made(self) -> Function:
        graph = self.graph
        for state, value in graph.states.items():
            # a state that nothing reads tells the number of rows too
            read = graph.reads("state").get(state)
            self.reads["state", state] = read or self.ops.name(f"{state}_prev")
            self.batched.add(self.reads["state", state])
            self.needed |= {value}
        for name, node in graph.nodes.items():
            if name in self.needed:
                self._node(name, node)
        ends = {n: self._result(n) for n in dict.fromkeys([*graph.states.values(), *graph.outputs.values()])}
        states, outputs = ({n: ends[v] for n, v in group.items()} for group in (graph.states, graph.outputs))
        return Function(self.reads, states, outputs, tuple(self.ops.ops))

    def _node(self, name: str, node: Node) -> None:
        match node:
            case Read():
                self._read(name, node)
                return
            case Pointwise(expr):
                self._pointwise(name, expr)
            case Product(matrix, right, transposed):
                self._product(name, matrix, right, transposed)
            case Reduce(op, arg):
                first = int(arg in self.batched)
                axes = self.ops.integers(*range(first, first + len(self.graph.shapes[arg])))
                kind = {"sum": "ReduceSum", "max": "ReduceMax"}[op]
                self._put(name, kind, arg, axes, over=(arg,), keepdims=0)
            case CumSum(arg, reverse):
                axis = self.ops.constant(np.array(int(arg in self.batched), np.int64), "axis")
                self._put(name, "CumSum", arg, axis, over=(arg,), reverse=int(reverse))
            case Concat(args):
                many = any(a in self.batched for a in args)
                parts = [self._with_rows(a) if many else a for a in args]
                self._put(name, "Concat", *parts, over=args, axis=int(many))
            case Part(arg, first, length):
                start = evaluate_size(first, self.sizes)
                cut = (start, start + evaluate_size(length, self.sizes), int(arg in self.batched))
                self._put(name, "Slice", arg, *(self.ops.integers(n) for n in cut), over=(arg,))
            case Outer(left, right):
                a = self.ops.add("Unsqueeze", left, self.ops.integers(-1))
                b = self.ops.add("Unsqueeze", right, self.ops.integers(-2))
                self._put(name, "Mul", a, b, over=(left, right))
            case Transpose(arg):
                self._put(name, "Transpose", arg, over=(arg,), perm=self._exchanged(arg))
            case Diag(arg):
                there = self.ops.constant(np.eye(self._numbers(arg)[0], dtype=bool), "diagonal")
                spread = self.ops.add("Unsqueeze", arg, self.ops.integers(-1))
                self._put(name, "Where", there, spread, self.ops.constant(np.zeros((), self.dtype)), over=(arg,))
            case _:
                raise UnsupportedError(f"{self.graph.name}: {name} = {node!r} has no operator in ONNX")

    def _put(self, name: str, kind: str, *inputs: str, over: Collection[str], **attributes: object) -> None:
        """A node that is a value of the graph. over: the values that it is made of."""
        self.ops.add(kind, *inputs, name=name, exact=True, **attributes)
        self._spread(name, over)

    def _spread(self, name: str, over: Collection[str]) -> None:
        if any(o in self.batched for o in over):
            self.batched.add(name)

    def _numbers(self, name: str) -> tuple[int, ...]:
        return full_shape(self.graph.shapes[name], self.sizes)

    def _read(self, name: str, node: Read) -> None:
        kind, source = node.kind, node.source
        if kind == "size":
            value = np.array(evaluate_size(source, self.sizes), self.dtype)
            self.ops.add("Constant", name=name, exact=True, value=value)
            return
        if kind == "parameter" or source in self.constant:
            self.reads["parameter", source] = name
            return
        assert kind in ("input", "state", "step"), node
        self.reads[kind, source] = name
        self.batched.add(name)

    def _pointwise(self, name: str, expr: object) -> None:
        shape, operands = self.graph.shapes[name], names(expand(expr))
        values = {n: self._raised(n, len(shape)) for n in operands}
        whole = not shape or any(self.graph.shapes[n] == shape for n in operands)
        target = name if whole else self.ops.name(f"{name}_number")
        self.expressions.write(expr, values, target)
        self._spread(name, operands)
        if not whole:
            full = (1,) * (name in self.batched) + self._numbers(name)
            self.ops.add("Expand", target, self.ops.integers(*full), name=name, exact=True)

    def _raised(self, name: str, rank: int) -> str:
        """A number of each row with axes behind it, to go with every element."""
        if name not in self.batched or self.graph.shapes[name] or not rank:
            return name
        if (name, rank) not in self.raised:
            axes = self.ops.integers(*range(1, 1 + rank))
            self.raised[name, rank] = self.ops.add("Unsqueeze", name, axes, name=f"{name}_of_rows")
        return self.raised[name, rank]

    def _exchanged(self, name: str) -> list[int]:
        """The order of axes with the last two exchanged."""
        return [0, 2, 1] if name in self.batched else [1, 0]

    def _product(self, name: str, matrix: str, right: str, transposed: bool) -> None:
        vector = len(self.graph.shapes[right]) == 1
        if vector and matrix not in self.batched and right in self.batched:
            self._put(name, "Gemm", right, matrix, over=(right,), transB=int(not transposed))
            return
        left = self.ops.add("Transpose", matrix, perm=self._exchanged(matrix)) if transposed else matrix
        if vector:  # a column: ONNX Runtime 1.32 fuses a Transpose into a product with a vector wrongly
            column = self.ops.add("Unsqueeze", right, self.ops.integers(-1))
            product = self.ops.add("MatMul", left, column)
            self._put(name, "Squeeze", product, self.ops.integers(-1), over=(matrix, right))
        else:
            self._put(name, "MatMul", left, right, over=(matrix, right))

    # --- rows

    def _with_rows(self, name: str) -> str:
        """A value that every row has for itself."""
        return name if name in self.batched else self._expanded(name)

    def _expanded(self, name: str) -> str:
        """[...] -> [B, ...]; the rows are those of a state or input, of which there is one."""
        one = next(r for (kind, _), r in self.reads.items() if kind != "parameter")
        rows = self.ops.add("Shape", one, name="rows", start=0, end=1)
        shape = (
            self.ops.add("Concat", rows, self.ops.integers(*self._numbers(name)), axis=0)
            if (self.graph.shapes[name])
            else rows
        )
        return self.ops.add("Expand", name, shape, name=f"{name}_of_rows")

    def _result(self, name: str) -> str:
        """The function's output: what it only reads goes out under another name."""
        found = self._with_rows(name)
        inner = found == name and not isinstance(self.graph.nodes[name], Read)
        return found if found != name or inner else self.ops.add("Identity", name, name=f"{name}_after")
