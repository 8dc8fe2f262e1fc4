"""The functions of the language that do not work element by element: along the feature axis, and on
shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from rnnspec.language.function_rows import V


@dataclass(frozen=True)
class Feature:
    """One function that looks along the feature axis or changes the shape. The graph nodes that it
    becomes are in `symbolic/features.py`, the shapes that it takes and gives in
    `meaning/features.py`.

    args: those in capitals are sizes; "..." stands for any number more.
    numbers: the arguments that are single numbers, and no vectors.
    moves: it only puts numbers elsewhere, which is no operation.
    range: the ends that its elements come near, where they serve as gates. softmax has none: its
        elements are shares of one.
    latex: a format of the arguments: {u:3} binds as tightly as a name, {v:2} as a product, {all} is
        all of them, {SPAN} the elements FIRST to FIRST + LENGTH; "" for a call by name.
    binding: how tightly what `latex` makes binds.
    """

    name: str
    args: tuple[str, ...]
    about: str
    numbers: tuple[str, ...] = ()
    moves: bool = False
    range: tuple[float, float] | None = None
    latex: str = ""
    binding: Literal[2, 3] = 3

    def kind(self, position: int) -> Literal["operand", "number", "size"]:
        """What the argument at a position is; all after the last named one are like it."""
        name = self.args[min(position, len(self.args) - 1)]
        return "size" if name.isupper() else "number" if name in self.numbers else "operand"


_FEATURE_ROWS = (
    Feature("sum", V, "sum of all elements", latex=r"\operatorname{{sum}}\left({v}\right)"),
    Feature("mean", V, "mean of all elements", latex=r"\operatorname{{mean}}\left({v}\right)"),
    Feature("max", V, "largest element; a tie shares the derivative", latex=r"\max\left({v}\right)"),
    Feature("dot", ("u", "v"), "sum of u * v", latex=r"{u:3}^{{\top}} {v:3}", binding=2),
    Feature(
        "norm",
        V,
        "square root of the sum of squares; its derivative at 0 is 0",
        latex=r"\left\lVert {v}\right\rVert",
    ),
    Feature("softmax", V, "exp(v) / sum(exp(v)), without overflow"),
    Feature("cumsum", V, "running sum, from the first element"),
    Feature("cumax", V, "cumsum(softmax(v))", range=(0.0, 1.0)),
    Feature(
        "layer_norm",
        ("v", "eps"),
        "(v - mean(v)) / sqrt(mean((v - mean(v))**2) + eps)",
        ("eps",),
        latex=r"\operatorname{{LayerNorm}}_{{{eps}}}\left({v}\right)",
    ),
    Feature(
        "concat",
        ("a", "b", "..."),
        "one vector after another; a number is one element",
        moves=True,
        latex=r"\left[{all}\right]",
    ),
    Feature(
        "part",
        ("v", "FIRST", "LENGTH"),
        "LENGTH elements from the FIRST on, counted from 0",
        moves=True,
        latex=r"\left[{v}\right]_{{{SPAN}}}",
    ),
    Feature("outer", ("u", "v"), "the matrix of all products u_i * v_j", latex=r"{u:3} \, {v:3}^{{\top}}", binding=2),
    Feature("diag", V, "the square matrix with v on its diagonal", moves=True),
    Feature("ones", ("SIZE",), "the vector of ones", moves=True, latex=r"\mathbf{{1}}_{{{SIZE}}}"),
    Feature("eye", ("SIZE",), "the identity matrix", moves=True, latex=r"\mathbf{{I}}_{{{SIZE}}}"),
)

FEATURES: Mapping[str, Feature] = MappingProxyType({row.name: row for row in _FEATURE_ROWS})
