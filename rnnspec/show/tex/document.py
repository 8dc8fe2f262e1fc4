r"""What `rnnspec show --latex` prints: forward equations, gradients, declarations, or a document
with all of them.

In: a Spec. Out: text for amsmath and amssymb, in lines that fit the text of LaTeX's article class.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from rnnspec.language.features import FEATURES
from rnnspec.language.functions import FUNCTIONS
from rnnspec.language.lift import named_constants
from rnnspec.language.spec import Shape, Spec
from rnnspec.language.syntax.tree import Binary, Call, walk
from rnnspec.show.counts import size_names_of
from rnnspec.show.reading import reading
from rnnspec.show.tex import CONSTANTS, PARTS
from rnnspec.show.tex.backward import backward
from rnnspec.show.tex.forward import forward
from rnnspec.show.tex.lines import PAGE
from rnnspec.show.tex.names import GREEK, Names
from rnnspec.show.tex.pieces import TexPiece, call, feature, number, rows

GRADIENTS = r"""$\bar{v}$ is the gradient of the loss with respect to $v$ at the step that stands below it, $%s$ what
step $t+1$ passes back to a state, $%s$ what comes from the output of step $t$; sums run over all
steps and over the rows of a batch."""


@dataclass(frozen=True)
class _Cell:
    """spec: with its constants as parameters, if they are written as symbols. constants: those, and
    what they are."""

    spec: Spec
    constants: Mapping[str, float]
    names: Names


def latex(spec: Spec, part: str = "", constants: str = "symbols") -> str:
    """A cell as LaTeX.

    part: "forward", "backward", "parameters" or "document"; "" for the equations and the gradients.
    constants: "symbols" writes the file's constants by name, with their values behind the
    equations, "numbers" writes these alone. Exponents are numbers always. Raises ValueError for
    another part.
    """
    if part not in ("", *PARTS) or constants not in CONSTANTS:
        raise ValueError(f"there is no {part!r} with {constants!r}: choose {', '.join(PARTS)}; {', '.join(CONSTANTS)}")
    return "\n\n".join(_WRITERS[part](_cell(spec, constants)))


def _cell(spec: Spec, constants: str) -> _Cell:
    lifted = named_constants(spec) if constants == "symbols" else None
    known = lifted.spec if lifted else spec
    names = Names([*known.shapes, *size_names_of(known)])
    return _Cell(known, lifted.values if lifted else {}, names)


@dataclass(frozen=True)
class Formulas:
    """The formulas of a cell, not yet in a document. forward, backward: lines `left &= right`, as
    rows of an align environment; one that begins with & goes on with the line above. constants:
    `alpha = 0.1`, a formula for each. gradients: what the marks of the gradients mean, with
    formulas in $.
    """

    forward: tuple[str, ...]
    constants: tuple[str, ...]
    backward: tuple[str, ...]
    gradients: str


def formulas(spec: Spec, page: float = PAGE) -> Formulas:
    """The equations and the gradients of a cell, its constants by name. page: how wide lines may
    be, in points where letters have 10."""
    cell = _cell(spec, "symbols")
    lines = tuple(rows(forward(cell.spec, cell.names), page))
    back = tuple(rows(backward(reading(cell.spec), cell.names), page))
    return Formulas(lines, tuple(_constants(cell)), back, _gradients(cell))


def _align(equations: Sequence[tuple[str, str]]) -> str:
    lines = rows(equations, PAGE)
    return "\\begin{align*}\n" + " \\\\\n".join(f"  {line}" for line in lines) + "\n\\end{align*}"


def _constants(cell: _Cell) -> list[str]:
    return [f"{cell.names.write(n)} = {number(Fraction(repr(v))).text}" for n, v in cell.constants.items()]


def _gradients(cell: _Cell) -> str:
    state, output = next(iter(cell.spec.states), ""), next(iter(cell.spec.outputs))
    carried = cell.names.write(state or output, "t", True, r"\leftarrow")
    return GRADIENTS % (carried, cell.names.write(output, "t", True, r"\downarrow"))


def _forward(cell: _Cell) -> Iterable[str]:
    yield _align(forward(cell.spec, cell.names))
    if values := _constants(cell):
        yield f"with {', '.join(f'${value}$' for value in values)}."


def _backward(cell: _Cell) -> Iterable[str]:
    yield _align(backward(reading(cell.spec), cell.names))
    yield _gradients(cell)


def _both(cell: _Cell) -> Iterable[str]:
    yield from _forward(cell)
    yield from _backward(cell)


def _parameters(cell: _Cell) -> Iterable[str]:
    """A table of all that is given: symbol, shape, what it is."""
    spec, names = cell.spec, cell.names
    held = {n: s for n, s in spec.held.items() if n not in cell.constants}
    noise = {n: spec.shapes[n] for n in spec.noise}
    lines = [
        *_group("input", spec.streams, names, "t"),
        *_group("state", spec.states, names, "t"),
        *_group("parameter", spec.trained, names),
        *_group("fixed parameter", held, names),
        *[
            line
            for n, s in noise.items()
            for line in _group(_plain(spec.noise[n].to_text()), {n: s}, names, "t" if n in spec.inputs else "")
        ],
        *[f"${names.write(n)}$ & ${number(Fraction(repr(v))).text}$ & constant" for n, v in cell.constants.items()],
        *[f"${names.write(n)}$ & $\\mathbb{{N}}$ & size{_meaning(spec, n)}" for n in size_names_of(spec)],
        *_functions(cell),
    ]
    body = "".join(f"  {line} \\tabularnewline\n" for line in lines)
    columns = r"p{0.36\textwidth}p{0.2\textwidth}p{0.36\textwidth}"
    yield f"\\noindent\\begin{{tabular}}{{@{{}}{columns}@{{}}}}\n{body}\\end{{tabular}}"


def _group(what: str, group: Mapping[str, Shape], names: Names, time: str = "") -> Iterable[str]:
    """A line for all names of one shape."""
    together: dict[Shape, list[str]] = {}
    for name, shape in group.items():
        together.setdefault(shape, []).append(name)
    for shape, members in together.items():
        symbols = ", ".join(f"${names.write(m, time)}$" for m in members)
        size = " \\times ".join(_factor(names.size(s)) for s in shape)
        power = f"^{{{size}}}" if shape else ""
        yield f"\\raggedright {symbols} & $\\mathbb{{R}}{power}$ & {what}{'s' if len(members) > 1 else ''}"


def _factor(size: str) -> str:
    return f"({size})" if " + " in size or " - " in size else size


def _meaning(spec: Spec, name: str) -> str:
    size = spec.sizes.get(name)
    return f": {_plain(size.meaning)}" if size and size.meaning else ""


def _functions(cell: _Cell) -> Iterable[str]:
    """The signs and functions that not everyone writes so, with what they are."""
    parts = [e for q in cell.spec.equations for e in walk(q.value)]
    if any(isinstance(e, Binary) and e.op == "*" for e in parts):
        yield r"$u \odot v$ & & product element by element"
    for name in sorted({e.function for e in parts if isinstance(e, Call)}):
        row = FUNCTIONS.get(name) or FEATURES.get(name)
        if row is None or not _is_special(row.latex):
            continue
        args = [TexPiece(_argument(a), 3, True) for a in row.args]
        made = call(name, args, cell.names) if name in FUNCTIONS else feature(name, args, True, cell.names)
        yield f"${made.text}$ & & \\raggedright {_plain(row.about)}"
    if any(isinstance(e, Call) and e.function == "part" for e in parts):
        yield r"$\left[v\right]_{i : j}$ & & elements $i$ to $j - 1$ of $v$, counted from 0"


def _is_special(tex: str) -> bool:
    """Whether a reader needs to be told what is written so."""
    return not tex or "operatorname" in tex or "mathbf" in tex or tex.strip("\\") in GREEK


def _argument(argument: str) -> str:
    r"""An argument of a row of a table: `eps` is \mathit{eps}."""
    return argument if len(argument) == 1 else rf"\mathit{{{argument.lower()}}}"


def _plain(text: str) -> str:
    """Text of the language, or of a person, as LaTeX's text."""
    special = {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
    special |= {"<": "$<$", ">": "$>$", "|": "$|$", "*": "$*$"}
    text = "".join(special.get(c, f"\\{c}" if c in "#$%&_{}" else c) for c in text if c.isascii() and c.isprintable())
    return re.sub(r"\$\*\$\$\*\$(\d+)", r"$^{\1}$", text)


def _document(cell: _Cell) -> Iterable[str]:
    packages = "\\usepackage[T1]{fontenc}\n\\usepackage{amsmath, amssymb}"
    yield f"\\documentclass{{article}}\n{packages}\n\\allowdisplaybreaks"
    yield f"\\begin{{document}}\n\\section*{{\\raggedright {_plain(cell.spec.title or cell.spec.name)}}}"
    if cell.spec.source:
        yield f"\\sloppy {_plain(cell.spec.source.to_text())}."
    yield "\\subsection*{Forward}"
    yield from _forward(cell)
    yield "\\subsection*{Symbols}"
    yield from _parameters(cell)
    yield "\\subsection*{Backward}"
    yield from _backward(cell)
    yield "\\end{document}"


_WRITERS: Mapping[str, Callable[[_Cell], Iterable[str]]] = {
    "": _both,
    "forward": _forward,
    "backward": _backward,
    "parameters": _parameters,
    "document": _document,
}
