"""One stage of a cell on its way to a kernel, as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rnnspec.language.sizes import with_default_sizes
from rnnspec.language.spec import Shape, Spec
from rnnspec.language.syntax.tree import Equation, to_text
from rnnspec.lowering.pipeline import graphs

STAGES = ("spec", "graph", "adjoint", "program", "cpu", "cuda")


# --- one stage


def _spec_text(spec: Spec) -> str:
    """Declarations and the equations as they are understood: choices made, constants and own
    functions put in."""
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


def _program_text(spec: Spec) -> str:
    from rnnspec.lowering.pipeline import stages

    made = stages(spec)
    return "\n\n".join(f"# {mode}\n{getattr(made, mode).to_text()}" for mode in ("forward", "backward", "infer"))


def _cpu_text(spec: Spec) -> str:
    from rnnspec.backends.cpu.emit.texts import texts

    return "\n\n".join(f"# --- {mode}, float32 ---\n{text}" for mode, text in texts(spec, "float32").items())


def _cuda_text(spec: Spec) -> str:
    """Which kernels run on a GPU at some sizes, and their texts at a small one."""
    from rnnspec.backends.cuda.listing import listing
    from rnnspec.lowering.pipeline import stages

    made = stages(spec)
    free = [name for name, size in spec.sizes.items() if size.default is None]

    def sizes(number: int) -> dict[str, int]:
        return with_default_sizes(spec.sizes, dict.fromkeys(free, number))

    return "\n\n".join(
        f"# --- {mode}, float32 ---\n{listing(getattr(made, mode), sizes)}" for mode in ("forward", "backward", "infer")
    )


STAGE_TEXTS: Mapping[str, Callable[[Spec], str]] = {
    "spec": _spec_text,
    "graph": lambda spec: graphs(spec)[0].to_text(),
    "adjoint": lambda spec: graphs(spec)[1].to_text(),
    "program": _program_text,
    "cpu": _cpu_text,
    "cuda": _cuda_text,
}


def shape_text(shape: Shape) -> str:
    return "[" + ", ".join(shape) + "]"
