"""Loading: a name, a path or a text to a Spec.

    spec = load("lstm")                     # a cell of the specs folder
    spec = load("my/cell.yaml", alpha=0.2)  # a file, one of its constants changed
    spec = loads(text, phi="relu")          # a text, one of its choices made

Nothing here needs SymPy, NumPy or Numba: a kernel from the cache starts without them.
"""

from __future__ import annotations

import hashlib
import json
import numbers
import os
import warnings
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

from rnnspec.errors import Problem, SpecError
from rnnspec.language.hints import SpecHint, hints
from rnnspec.language.meaning.check import Settings, check
from rnnspec.language.meaning.unroll import settle
from rnnspec.language.reading.document import Document, fail
from rnnspec.language.reading.extend import extend
from rnnspec.language.reading.reader import read
from rnnspec.language.spec import Spec
from rnnspec.language.syntax.faults import did_you_mean, listed, nearest
from rnnspec.language.syntax.parse import decimal
from rnnspec.language.syntax.tree import Binary, Call, Expr, Number, Ref, Unary, children
from rnnspec.language.syntax.yamltext import MAX_BYTES
from rnnspec.storage import guarded
from rnnspec.storage.locks import making

_SUFFIXES = (".yaml", ".yml")
NEAR = 5  # names that a message has of those that are like an unknown one


def load(cell: str | os.PathLike[str], /, **settings: object) -> Spec:
    """The Spec of a cell: a name from `spec_names()`, or the path of a YAML file (it ends in .yaml
    or has a / in it).

    Keywords set the cell's constants (numbers) and choices (one of the options). Raises SpecError:
    `.errors` lists everything that is wrong, each with its place. Warns (SpecHint) of what is
    written in a form that loses what another keeps, like log(1 + exp(v)).
    """
    path = _find(_no_text(os.fspath(cell)), None)
    return _with_hints(_spec(_read_file(path), settings))


def loads(text: str, /, **settings: object) -> Spec:
    """The Spec of a YAML text; keywords as for `load`. Raises SpecError."""
    if "\n" not in text and ":" not in text and (text in spec_names() or is_path(text)):
        raise SpecError(
            Problem(f"'{text[:60]}' is a name or a path, and loads() takes a text: load({text[:60]!r}).", 0, 0, "")
        )
    return _with_hints(_spec(read(text), settings))


def _with_hints(spec: Spec) -> Spec:
    for problem in hints(spec):
        warnings.warn(SpecHint(str(problem)), stacklevel=3)
    return spec


def specs_folder() -> Path:
    """Where the cells are: `rnnspec/specs` in an installed package, `specs` beside the package in a
    source checkout."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "specs"
    return inside if inside.is_dir() else package.parent / "specs"


def spec_names() -> list[str]:
    """The names of the cells that come with rnnspec, sorted."""
    folder = specs_folder()
    return sorted(p.stem for p in folder.glob("*.yaml")) if folder.is_dir() else []


def spec_path(name: str) -> Path:
    """The file of a cell that comes with rnnspec. Raises SpecError with the nearest names."""
    names = spec_names()
    if name not in names:
        raise SpecError(Problem(_unknown(name, names), 0, 0, ""))
    return specs_folder() / f"{name}.yaml"


def _unknown(name: str, names: list[str]) -> str:
    """What to say of a name that no cell has: the nearest names, and where all are."""
    first, *others = nearest(name, names, NEAR) or [""]
    holding = [n for n in names if len(name) > 2 and name.lower() in n and n not in (first, *others)]
    others = [*others, *holding][:NEAR]
    near = (f" Did you mean '{first}'?" if first else "") + (f" Near it: {', '.join(others)}." if others else "")
    return (
        f"no cell is called '{name[:60]}'.{near} `rnnspec list` has all {len(names)}, `rnnspec list WORD` those with a"
        " word in their title or source. A file is given with its .yaml."
    )


def digest(spec: Spec) -> str:
    """SHA-256, in hex, of all that the computation of a spec depends on, and its name: the same on
    every machine.

    Not of title, source, notes, places, layouts, examples, same_as and init: none of them changes a
    kernel.
    """
    content = [
        ["format", 1],
        ["name", spec.name],
        ["sizes", [[name, size.default] for name, size in spec.sizes.items()]],
        *(
            [key, [[n, list(shape)] for n, shape in getattr(spec, key).items()]]
            for key in ("inputs", "states", "parameters", "shapes")
        ),
        ["equations", [[e.target, _plain(e.value)] for e in spec.equations]],
        ["outputs", list(spec.outputs)],
        ["no_gradient", list(spec.no_gradient)],
        *([["fixed", list(spec.fixed)]] if spec.fixed else []),
    ]
    return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()


def _plain(expr: Expr) -> object:
    match expr:
        case Number(value):
            return (  # hex: a decimal of over 4300 digits is refused by Python
                f"{value.numerator:x}/{value.denominator:x}"
            )
        case Ref(name, time):
            return [name, time, *([] if expr.index is None else [_plain(expr.index)])]
        case Unary(op) | Binary(op):
            return [op, *(_plain(part) for part in children(expr))]
        case Call(function, args):
            return [function, [_plain(a) for a in args]]
    raise TypeError(f"not an expression: {expr!r}")


# --- files ---


def _no_text(cell: str) -> str:
    """The name or path; SpecError for the text of a spec or an equation."""
    named = cell.endswith(_SUFFIXES)  # a file's name may have any character, a new line too
    if not named and ("\n" in cell.strip() or (not is_path(cell) and ("=" in cell or ": " in cell))):
        start = cell.strip().split("\n")[0][:40]
        message = f"'{start}' is no name and no path of a file. The text of a spec is read by loads(text)."
        raise SpecError(Problem(message, 0, 0, ""))
    return cell


def is_path(cell: str) -> bool:
    """Whether `load` takes a text for a path, and not for a cell's name."""
    return cell.endswith(_SUFFIXES) or "/" in cell or os.sep in cell


def _find(cell: str, beside: str | None) -> Path:
    """The file that a name or path means; a path in `extends` counts from the file that has it."""
    if is_path(cell):
        path = Path(cell)
        if beside is not None and path.suffix not in _SUFFIXES:
            raise fail(f"extends: '{cell[:60]}' is no cell's name and no .yaml file.", beside)
        return path if beside in (None, "<text>") or path.is_absolute() else Path(str(beside)).parent / path
    return spec_path(cell)


def _read_file(path: Path) -> Document:
    file = str(path)
    if "\0" in file:
        raise fail("can't read the file: its name has a null byte.", ascii(file))
    try:
        reads = _read_shipped if path.parent == specs_folder() else read
        document = reads(guarded.text(path, MAX_BYTES), file)
    except guarded.Refused as error:
        raise fail(f"can't read the file: {error.reason}.", file) from None
    except OSError as error:
        hint = f" '{path.name}' alone names the cell that comes with rnnspec." if path.name in spec_names() else ""
        raise fail(f"can't read the file: {(error.strerror or str(error)).lower()}.{hint}", file) from None
    if document.name and document.name != path.stem:
        message = (
            f"the name is '{document.name[:60]}', but the file is called '{path.stem}{path.suffix}'. Make the two"
            " equal."
        )
        return _with_problem(document, message)
    return document


# Composing YAML is most of what loading costs, and the cells that come with rnnspec are asked for
# again and again. Files of others are not kept: they may be many, and large.
_read_shipped = lru_cache(maxsize=256)(read)


def _with_problem(document: Document, message: str) -> Document:
    problem = fail(message, document.file, document.key("name"), document).errors[0]
    return replace(document, problems=(*document.problems, problem))


def _spec(document: Document, settings: Mapping[str, object]) -> Spec:
    document = settle(extend(document, lambda name, file: _read_file(_find(name, file)), document.file))
    if not document.apply:
        return check(document, _settings(document, settings))
    with making:
        from rnnspec.language.transforms.apply import applied  # not at the top: no other cell needs it

    return applied(document, _settings(document, settings))


def _settings(document: Document, given: Mapping[str, object]) -> Settings:
    """The keywords of `load`, checked against what the file offers."""
    constants: dict[str, Fraction] = {}
    chosen: dict[str, str] = {}
    known = [*document.choices, *document.constants]
    for name, value in given.items():
        if name in document.choices:
            options = document.choices[name].value
            if value not in options:
                near = did_you_mean(str(value), options)
                raise fail(
                    f"{name}={value!r} is not an option.{near} The options are: {listed(options)}.",
                    document.file,
                    document.choices[name].at,
                    document,
                )
            chosen[name] = str(value)
        elif name in document.constants:
            number = _number(value)
            if number is None:
                message = f"{name}={value!r} is no number that a constant can be: a finite one, below 1e100."
                raise fail(message, document.file, document.constants[name].at, document)
            constants[name] = number
        else:
            offers = f"It offers: {listed(known)}." if known else "It offers none."
            raise fail(
                f"the cell '{document.name}' has no choice or constant '{name}'.{did_you_mean(name, known)} {offers}",
                document.file,
            )
    changed = {n: c for n, c in chosen.items() if c != document.choices[n].value[0]}
    return Settings({n: v for n, v in constants.items() if v != document.constants[n].value}, changed)


def _number(value: object) -> Fraction | None:
    """0.2 is 1/5: what is written, not the nearest binary fraction."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return None
    if isinstance(value, Fraction | numbers.Integral):
        exact = Fraction(value) if isinstance(value, Fraction) else Fraction(int(value))
        return exact if max(abs(exact.numerator), exact.denominator) < 10**100 else None
    return decimal(repr(float(value)))
