"""One stage of a cell on its way to a kernel, as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rnnspec.language.sizes import with_default_sizes
from rnnspec.language.spec import Spec
from rnnspec.lowering.pipeline import graphs
from rnnspec.show.equations import spec_text

DTYPE = "float32"  # of the kernels that are shown


def _program_text(spec: Spec) -> str:
    from rnnspec.lowering.pipeline import MODES, stages

    made = stages(spec, fused=True)
    return "\n\n".join(f"# {mode}\n{getattr(made, mode).to_text()}" for mode in MODES)


def _cpu_text(spec: Spec) -> str:
    from rnnspec.backends.cpu.emit.texts import texts

    return "\n\n".join(f"# --- {mode}, {DTYPE} ---\n{text}" for mode, text in texts(spec, DTYPE).items())


def _cuda_text(spec: Spec) -> str:
    """Which kernels run on a GPU at some sizes, and their texts at a small one."""
    from rnnspec.backends.cuda.listing import listing
    from rnnspec.lowering.pipeline import MODES, stages

    made = stages(spec)
    free = [name for name, size in spec.sizes.items() if size.default is None]

    def sizes(number: int) -> dict[str, int]:
        return with_default_sizes(spec.sizes, dict.fromkeys(free, number))

    return "\n\n".join(f"# --- {mode}, {DTYPE} ---\n{listing(getattr(made, mode), sizes)}" for mode in MODES)


STAGE_TEXTS: Mapping[str, Callable[[Spec], str]] = {
    "spec": spec_text,
    "graph": lambda spec: graphs(spec)[0].to_text(),
    "adjoint": lambda spec: graphs(spec)[1].to_text(),
    "program": _program_text,
    "cpu": _cpu_text,
    "cuda": _cuda_text,
}
STAGES = tuple(STAGE_TEXTS)
