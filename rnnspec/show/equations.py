"""The texts of a cell's declarations and equations, as they are understood: choices made, constants
and own functions put in."""

from __future__ import annotations

from rnnspec.language.spec import Shape, Spec
from rnnspec.language.syntax.tree import Equation, to_text


def spec_text(spec: Spec) -> str:
    """Every declaration and equation on a line, each with its shape."""
    groups = {"input": spec.inputs, "state": spec.states, "parameter": spec.parameters}
    lines = [
        f"{kind} {name} {shape_text(shape)}{f' {spec.noise[name].to_text()}' if name in spec.noise else ''}"
        for kind, group in groups.items()
        for name, shape in group.items()
    ]
    lines += [f"{left_side(e)} = {to_text(e.value)}    # {shape_text(spec.shapes[e.target])}" for e in spec.equations]
    return "\n".join([f"spec {spec.name}", *(f"  {line}" for line in lines), f"  output {', '.join(spec.outputs)}"])


def left_side(equation: Equation) -> str:
    """What stands before the = of an equation: h[t], or W of what is computed once per sequence."""
    return f"{equation.target}[t]" if equation.timed else equation.target


def shape_text(shape: Shape) -> str:
    return "[" + ", ".join(shape) + "]"
