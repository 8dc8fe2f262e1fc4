"""What one file says, by key, each thing with its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Generic, TypeVar

from rnnspec.errors import Problem, SpecError
from rnnspec.language.constraints import StatedConstraint
from rnnspec.language.draws import Stated
from rnnspec.language.features import FEATURES
from rnnspec.language.functions import FUNCTIONS
from rnnspec.language.source import Source
from rnnspec.language.spec import STEP, Default, Example, Init, Shape, Size
from rnnspec.language.syntax.faults import Faults
from rnnspec.language.syntax.tree import Equation, Expr, Place, names_in

V = TypeVar("V")
RESERVED = frozenset({STEP, "where", "for", "in", "and", "or", "not"}) | frozenset(FUNCTIONS) | frozenset(FEATURES)


def reserved(name: str, place: str) -> str:
    """What is wrong with one of the RESERVED names. place: what it was to be the name of."""
    kind = "a function of the language" if name in FUNCTIONS or name in FEATURES else "a word of it"
    what = "the step's number" if name == STEP else kind
    return f"'{name}' is reserved: it is {what}. Choose another name for {place}."


@dataclass(frozen=True)
class Entry(Generic[V]):
    """Something a file says, and where."""

    value: V
    at: Place


@dataclass(frozen=True)
class Definition:
    """A function that a file defines: `squash(a): 1.7159 * tanh(2 * a / 3)`."""

    args: tuple[str, ...]
    body: Expr


@dataclass(frozen=True)
class Argument:
    """One argument of a transform. keyword: "" where it is given by position. at, keyword_at: where
    the value and the keyword stand."""

    keyword: str
    text: str
    at: Place
    keyword_at: Place


@dataclass(frozen=True)
class AppliedTransform:
    """One transform that a file asks for: an entry of `apply`."""

    name: str
    arguments: tuple[Argument, ...]
    at: Place

    def words(self) -> set[str]:
        """Every name that the arguments mention."""
        return {a.keyword for a in self.arguments} | {a.text for a in self.arguments}


@dataclass(frozen=True)
class StatedIntegration:
    """What `integrate` says: each setting by the name that `d/dt` stands before, "" for all that
    are not named."""

    method: Mapping[str, Entry[str]] = field(default_factory=dict)
    dt: Mapping[str, Entry[Expr]] = field(default_factory=dict)
    substeps: Mapping[str, Entry[Expr]] = field(default_factory=dict)
    start: Mapping[str, Entry[Expr]] = field(default_factory=dict)

    def settings(self) -> dict[str, Mapping[str, Entry[Any]]]:
        """The settings by their keys in a file."""
        return {"method": self.method, "dt": self.dt, "substeps": self.substeps, "start": self.start}

    def names(self, target: str | None = None) -> set[str]:
        """The names that the settings read: all of them, or those of one target."""
        read = (
            entry.value
            for setting in (self.dt, self.substeps, self.start)
            for name, entry in setting.items()
            if target is None or name in (target, "")
        )
        return set().union(*map(names_in, read))


@dataclass(frozen=True)
class Document:
    """One file, or a file joined with what it extends. `keys` has the place of each top-level key;
    `equations` all that define a name, which are several where they have a second index; `broken`
    the names whose equations can't be read (their uses are no further faults)."""

    file: str
    lines: Mapping[str, tuple[str, ...]]
    keys: Mapping[str, Place]
    name: str = ""
    title: str = ""
    source: Source = field(default_factory=Source)
    notes: str = ""
    extends: Entry[str] | None = None
    sizes: Mapping[str, Entry[Size]] = field(default_factory=dict)
    inputs: Mapping[str, Entry[Shape]] = field(default_factory=dict)
    states: Mapping[str, Entry[Shape]] = field(default_factory=dict)
    parameters: Mapping[str, Entry[Shape]] = field(default_factory=dict)
    constants: Mapping[str, Entry[Fraction]] = field(default_factory=dict)
    choices: Mapping[str, Entry[tuple[str, ...]]] = field(default_factory=dict)
    functions: Mapping[str, Entry[Definition]] = field(default_factory=dict)
    equations: Mapping[str, tuple[Equation, ...]] = field(default_factory=dict)
    broken: frozenset[str] = frozenset()
    outputs: tuple[Entry[str], ...] = ()
    no_gradient: tuple[Entry[str], ...] = ()
    fixed: tuple[Entry[str], ...] = ()
    constrain: Mapping[str, Entry[tuple[Entry[StatedConstraint], ...]]] = field(default_factory=dict)
    integrate: StatedIntegration = field(default_factory=StatedIntegration)
    defaults: Mapping[str, Entry[Default]] = field(default_factory=dict)
    noise: Mapping[str, Entry[Stated]] = field(default_factory=dict)
    apply: tuple[AppliedTransform, ...] = ()
    init: Mapping[str, Entry[Init]] = field(default_factory=dict)
    layouts: Mapping[str, Mapping[str, tuple[Entry[str], ...]]] = field(default_factory=dict)
    same_as: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    examples: tuple[Entry[Example], ...] = ()
    problems: tuple[Problem, ...] = ()

    def key(self, name: str) -> Place:
        """Where a top-level key stands; the file as a whole if it has none."""
        return self.keys.get(name, Place(0, 0, 1, self.file))


SECTIONS = ("inputs", "states", "parameters", "constants", "choices", "functions", "sizes")


def fail(message: str, file: str, at: Place | None = None, document: Document | None = None) -> SpecError:
    """A SpecError with one fault, about a file as a whole unless a place is given."""
    faults = Faults(document.lines if document else {})
    faults.add(message, at or Place(0, 0, 1, file))
    return SpecError(*faults.found)
