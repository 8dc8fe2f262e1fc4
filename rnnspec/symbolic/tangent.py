"""Graph -> Graph: forward mode. The directional derivative of a step, with the step itself beside it.

Its states, inputs and parameters are the forward's and their directions, named `tangent of ...`.
"""
from __future__ import annotations

import sympy

from rnnspec.language.spec import Shape
from rnnspec.symbolic.derive import partial, times, varying
from rnnspec.symbolic.expressions import Value, equal, names, select, symbol
from rnnspec.symbolic.graph import Concat, CumSum, Graph, Node, Outer, Part, Pointwise, Product, Read, Reduce, fresh
from rnnspec.symbolic.simplify import tidy


def tangent_of(name: str) -> str:
    """The name under which the direction of an input, state, parameter or output goes in and out."""
    return f"tangent of {name}"


def tangent(forward: Graph, constant_inputs: tuple[str, ...] = ()) -> Graph:
    """The step and its derivative along the directions of everything that can vary."""
    nodes: dict[str, Node] = dict(forward.nodes)
    shapes: dict[str, Shape] = dict(forward.shapes)
    active = varying(forward, constant_inputs)
    dots: dict[str, str] = {}

    def put(wanted: str, node: Node, shape: Shape) -> str:
        name = fresh(wanted, shapes)
        nodes[name], shapes[name] = node, shape
        return name

    def product(own: str, matrix: str, vector: str, transposed: bool) -> Value:
        return symbol(put(f"{own}_{vector}", Product(matrix, vector, transposed), shapes[own]))

    for name, node in forward.nodes.items():
        if name not in active:
            continue
        match node:
            case Read(kind, source):
                dots[name] = put(f"dot_{name}", Read(kind, tangent_of(source)), shapes[name])
            case Pointwise(expr):
                terms = [times(symbol(dots[a]), partial(expr, name, a)) for a in names(expr) if a in dots]
                dots[name] = put(f"dot_{name}", Pointwise(sympy.Add(*terms)), shapes[name])
            case Product(matrix, vector, transposed):
                terms = [product(name, matrix, dots[vector], transposed)] if vector in dots else []
                terms += [product(name, dots[matrix], vector, transposed)] if matrix in dots else []
                dots[name] = put(f"dot_{name}", Pointwise(sympy.Add(*terms)), shapes[name])
            case Outer(left, right):
                pairs = [(dots.get(left), right), (left, dots.get(right))]
                made = [symbol(put(f"{name}_part", Outer(a, b), shapes[name])) for a, b in pairs if a and b]
                dots[name] = put(f"dot_{name}", Pointwise(sympy.Add(*made)), shapes[name])
            case Reduce("max", arg):
                hit = put(f"{name}_hit", Pointwise(select(equal(symbol(arg), symbol(name)), sympy.S.One, sympy.S.Zero)), shapes[arg])
                count, each = put(f"{name}_count", Reduce("sum", hit), ()), put(f"{name}_each", Pointwise(symbol(hit) * symbol(dots[arg])), shapes[arg])
                total = put(f"{name}_total", Reduce("sum", each), ())
                dots[name] = put(f"dot_{name}", Pointwise(symbol(total) / symbol(count)), ())
            case Reduce(op, arg):
                dots[name] = put(f"dot_{name}", Reduce(op, dots[arg]), shapes[name])
            case CumSum(arg, reverse):
                dots[name] = put(f"dot_{name}", CumSum(dots[arg], reverse), shapes[name])
            case Part(arg, first, length):
                dots[name] = put(f"dot_{name}", Part(dots[arg], first, length), shapes[name])
            case Concat(args):
                parts = tuple(dots.get(a) or put(f"zero_{a}", Pointwise(sympy.S.Zero), shapes[a]) for a in args)
                dots[name] = put(f"dot_{name}", Concat(parts), shapes[name])
            case _:
                raise TypeError(f"not a node: {node!r}")

    def dot(node: str) -> str:
        return dots.get(node) or put(f"dot_{node}", Pointwise(sympy.S.Zero), shapes[node])

    states = dict(forward.states) | {tangent_of(s): dot(n) for s, n in forward.states.items()}
    outputs = dict(forward.outputs) | {tangent_of(o): dot(n) for o, n in forward.outputs.items()}
    graph = tidy(Graph(f"{forward.name} tangent", nodes, shapes, states, outputs))
    graph.verify()
    return graph
