"""Cells that learn where no Python is: the step with its tape, and that of its adjoint, in C."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from numpy import ndarray as Array

from rnnspec.errors import UnsupportedError
from rnnspec.export.c import named
from rnnspec.export.learn_cell import LearningCell, learning_cell
from rnnspec.export.learn_selftest import selftest
from rnnspec.export.learn_text import LearnerText
from rnnspec.language.spec import Spec
from rnnspec.layers.recurrent import Recurrent
from rnnspec.storage import atomic


@dataclass(frozen=True, repr=False)
class Learner:
    """What was written. cell: what it is made of; source, header: the texts."""

    cell: LearningCell
    source: str
    header: str

    def __repr__(self) -> str:
        return f"Learner({self.cell.name!r}: {self.cell.spec.name}, {len(self.source)} letters)"

    def selftest(self, seed: int = 0) -> str:
        """The text of a program that checks this one where it runs; see learn_selftest.py."""
        return selftest(self.cell, seed)

    def files(self, selftest: bool = False) -> dict[str, bytes]:
        """The files that belong together: NAME.c and NAME.h, and with `selftest` NAME_selftest.c.
        Raises NoSampleError as `selftest` does."""
        name = self.cell.name
        texts = {f"{name}.c": self.source, f"{name}.h": self.header}
        texts |= {f"{name}_selftest.c": self.selftest()} if selftest else {}
        return {file: text.encode() for file, text in texts.items()}

    def write(self, folder: str | Path = ".", selftest: bool = False) -> tuple[Path, ...]:
        """Writes all `files` into a folder, which is made where there is none, or none of them, and
        returns their paths. Raises OSError, and NoSampleError as `selftest` does."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        return atomic.write_all({Path(folder) / file: data for file, data in self.files(selftest).items()})


def learner(
    cell: Spec | Recurrent,
    params: Mapping[str, Array] | None = None,
    *,
    sizes: Mapping[str, int] | None = None,
    dtype: str = "float32",
    name: str = "",
) -> Learner:
    """A cell in C that learns: forward with a tape, and backward, for one row.

    cell: a Spec with `params` (name -> array of its shape), which NAME_initial has, and `sizes`
    (the number of every size), or a layer with its weights as they are now, which brings sizes and
    dtype. dtype: "float32" or "float64"; name: of the functions and files, the cell's and `_learn`
    if not given. Tape, parameters and gradients are the caller's memory; nothing is allocated.

    Raises UnsupportedError for cells with noise, which C would have to draw, and for those that the
    kernels don't have without what is computed once per sequence, and layers that are more than one
    cell; ValueError for a name or sizes that can't be, TypeError for arguments that don't go
    together.
    """
    if isinstance(cell, Recurrent):
        if params is not None or sizes is not None:
            raise TypeError("a layer has weights and sizes of its own: give params and sizes with a Spec only.")
        return _written(*_only(cell), named(name, f"{cell.spec.name}_learn"))
    if params is None or sizes is None:
        raise TypeError("give params and sizes with a Spec: kernel.init(D=..., H=..., seed=0) makes params.")
    return _written(cell, params, sizes, dtype, named(name, f"{cell.name}_learn"))


def _written(spec: Spec, params: Mapping[str, Array], sizes: Mapping[str, int], dtype: str, name: str) -> Learner:
    cell = learning_cell(spec, params, sizes, dtype, name)
    text = LearnerText(cell)
    return Learner(cell, "\n".join(text.source()) + "\n", "\n".join(text.header()) + "\n")


def _only(layer: Recurrent) -> tuple[Spec, Mapping[str, Array], Mapping[str, int], str]:
    """The one cell of a layer, its parameters, sizes and dtype."""
    layers = layer.stack.description
    views = layer.stack.weights({**layer.params, **layer.fixed})
    if len(layers.layers) > 1 or any(d.reverse for d in layers.directions) or any(views.initial):
        raise UnsupportedError(
            "what learns in C is one cell that reads its sequence forward, from states of zero: export each layer of a"
            " stack, and give what one finds for its input to the one below; states before the first step are found in"
            " NAME.backward.state."
        )
    single = layers.layers[0]
    return single.spec, single.kernel.pack(views.cells[0]).held, single.sizes, layers.dtype.name
