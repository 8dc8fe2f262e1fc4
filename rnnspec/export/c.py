"""Cells and layers as one file of C99 and its header: see `c`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from numpy import ndarray as Array

from rnnspec.backends.c.words import DECLARED
from rnnspec.export.parts import Model, cell_part, layer_parts
from rnnspec.export.selftest import selftest
from rnnspec.export.text import CProgram
from rnnspec.language.spec import Spec
from rnnspec.layers.recurrent import Recurrent
from rnnspec.storage import atomic

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
OTHERS = re.compile(
    r"\w+_t|l\d+|cell|head|map|\w+_(in|found|right|above|of|step)|(found|right)_\w+"
)  # types; parts; what is in files


@dataclass(frozen=True, repr=False)
class CSource:
    """What was written. name: of the functions and of the files; source, header: the texts; model:
    what they are made of; apart: whether the weights are in NAME.weights instead of the source."""

    name: str
    source: str
    header: str
    model: Model
    apart: bool = False

    def __repr__(self) -> str:
        return f"CSource({self.name!r}: {self.model.title}, {len(self.source)} letters)"

    def selftest(self, seed: int = 0) -> str:
        """The text of a program that checks this one where it runs; see rnnspec.export.selftest."""
        return selftest(self.program, seed)

    @property
    def program(self) -> CProgram:
        return CProgram(self.name, self.model, self.apart)

    def weights(self) -> bytes:
        """The bytes of a file of the weights, which NAME_init of this source reads, whether or not
        it has weights of its own."""
        return self.program.weights()

    def files(self, selftest: bool = False) -> dict[str, bytes]:
        """The files that belong together: NAME.c and NAME.h, NAME.weights if the weights are apart,
        and with `selftest` NAME_selftest.c. Raises what `selftest` raises."""
        files = {f"{self.name}.c": self.source.encode(), f"{self.name}.h": self.header.encode()}
        files |= {f"{self.name}_selftest.c": self.selftest().encode()} if selftest else {}
        return files | ({f"{self.name}.weights": self.weights()} if self.apart else {})

    def write(self, folder: str | Path = ".", selftest: bool = False) -> tuple[Path, ...]:
        """Writes all `files` into a folder, which is made where there is none, or none of them, and
        returns their paths. Raises OSError, and what `selftest` raises."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        return atomic.write_all({Path(folder) / file: data for file, data in self.files(selftest).items()})


def c(
    cell: Spec | Recurrent,
    params: Mapping[str, Array] | None = None,
    *,
    sizes: Mapping[str, int] | None = None,
    dtype: str = "float32",
    name: str = "",
    apart: bool = False,
) -> CSource:
    """One step of a cell, or of the layers of a `Recurrent`, as a file of C99 and its header.

    cell: a Spec with `params` (name -> array of its shape) and `sizes` (the number of every size),
    or a layer with its weights as they are now, which brings sizes and dtype. dtype: "float32" or
    "float64", of all numbers there. name: of the functions, the cell's if not given. apart: the
    weights in a file of their own, NAME.weights, instead of in the source.

    The file needs no library but libm, allocates nothing and keeps nothing outside of NAME, a
    struct of fixed size: `NAME_init(s, NULL, 0)` begins, with the weights in the source, and
    `NAME_init(s, file, bytes)` with the bytes of a file of weights, which it looks at before any is
    used and reads where they are; `NAME_step(s, x, ..., h)` makes one step of
    one row, `NAME_block(s, steps, x, ..., h)` several, `NAME_reset(s)` begins anew. It computes
    what `infer` does, with sums in another order; noise is what is expected of it.

    Raises UnsupportedError for what a step can't do or C can't have, ValueError for a name or sizes
    that can't be, TypeError for arguments that don't go together.
    """
    if isinstance(cell, Recurrent):
        if params is not None or sizes is not None:
            raise TypeError("a layer has weights and sizes of its own: give params and sizes with a Spec only.")
        return program(named(name, cell.spec.name), Model(_title(cell), tuple(layer_parts(cell))), apart)
    if params is None or sizes is None:
        raise TypeError("give params and sizes with a Spec: kernel.init(D=..., H=..., seed=0) makes params.")
    part = cell_part("cell", cell, params, sizes, dtype)
    return program(named(name, cell.name), Model(part.about[0].rstrip(":"), (part,)), apart)


def program(name: str, model: Model, apart: bool = False) -> CSource:
    """The texts of a model."""
    made = CProgram(name, model, apart)
    return CSource(name, "\n".join(made.source()) + "\n", "\n".join(made.header()), model, apart)


def _title(layer: Recurrent) -> str:
    return f"{layer!r}"


def named(name: str, otherwise: str) -> str:
    """The name of the functions. Raises ValueError for what can't be one of C's."""
    name = name or otherwise
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} can't be the name of functions in C: letters, digits and _, a letter first.")
    if name in DECLARED or OTHERS.fullmatch(name):
        raise ValueError(f"{name!r} means something else in C, its headers or the files here: give another name.")
    return name
