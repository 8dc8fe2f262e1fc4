"""A cell as plain data: what `loads` returns and every later stage reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from rnnspec.errors import visible
from rnnspec.language.constraints import Constraint
from rnnspec.language.draws import Draw
from rnnspec.language.source import Source
from rnnspec.language.syntax.tree import Equation, Ref, walk
from rnnspec.language.views import InNotebooks, views
from rnnspec.storage.locks import once_only

WIDTH = 100  # of a line of a Spec's repr

Shape = tuple[str, ...]
"""Size expressions in canonical text: () one number, ("H",) a vector, ("H", "D") a matrix, ("D +
H",) a sum of sizes."""


STEP = "t"
"""The step's number: in equations, and among the states of a cell that counts its steps."""
TANGENT = "tangent of "


def tangent_of(name: str) -> str:
    """The name under which the direction of an input, state, parameter or output goes in and out of
    a cell's tangent."""
    return f"{TANGENT}{name}"


Default = float | None
"""What an input is where a call does not give it: a number, or the step's number (None)."""


@dataclass(frozen=True)
class Size:
    """What a size means; `default` is the size expression used when no array tells it."""

    meaning: str = ""
    default: str | None = None


@dataclass(frozen=True)
class Choice:
    options: tuple[str, ...]
    chosen: str


@dataclass(frozen=True)
class Init:
    """An initialiser: kind in uniform_hidden, glorot_uniform, orthogonal, identity, constant,
    uniform, normal, chrono. like: the parameter whose random numbers it uses, for chrono; "" for
    its own."""

    kind: str
    args: tuple[float, ...] = ()
    like: str = ""


@dataclass(frozen=True)
class Example:
    """A case worked by hand. Arrays are nested tuples; parameters and states left out are zero,
    those that are noise what is expected of it. `gradients` are those of the sum of all outputs,
    for parameters, inputs and initial states."""

    title: str
    sizes: Mapping[str, int]
    parameters: Mapping[str, object]
    inputs: Mapping[str, object]
    states: Mapping[str, object] = field(default_factory=dict)
    outputs: Mapping[str, object] = field(default_factory=dict)
    final: Mapping[str, object] = field(default_factory=dict)
    gradients: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Integration:
    """How one differential equation was made into the equations of a step: its line, the name of
    the method, the step size and where it starts as text, and into how many parts it is cut."""

    written: str
    method: str
    dt: str
    substeps: int
    start: str

    def to_text(self) -> str:
        """One line: "rk4, dt = 0.1 in 6 substeps, from h[t-1]"."""
        parts = f" in {self.substeps} substeps" if self.substeps > 1 else ""
        return f"{self.method}, dt = {self.dt}{parts}, from {self.start}"


def _within(line: str) -> str:
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 4]} ..."


@dataclass(frozen=True)
class Spec(InNotebooks):
    """One cell. `equations` are checked, ordered so that each reads only what stands above it or an
    earlier step, and resolved: constants are numbers, choices are the chosen function, the file's
    own functions are inlined. `shapes` has every input, state, parameter and intermediate. Mappings
    keep the order of the file. `noise` says which inputs and parameters are drawn, and how, `fixed`
    which parameters are constants by their source; both are among `no_gradient` too. `constraints`
    has what parameters are held to, in the order in which it is done. `integration` says of which
    differential equations the equations were made; a cell made of this one has the steps alone.
    """

    name: str
    title: str
    source: Source
    sizes: Mapping[str, Size]
    inputs: Mapping[str, Shape]
    states: Mapping[str, Shape]
    parameters: Mapping[str, Shape]
    equations: tuple[Equation, ...]
    outputs: tuple[str, ...]
    shapes: Mapping[str, Shape]
    constants: Mapping[str, Fraction] = field(default_factory=dict)
    choices: Mapping[str, Choice] = field(default_factory=dict)
    no_gradient: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    constraints: Mapping[str, tuple[Constraint, ...]] = field(default_factory=dict)
    defaults: Mapping[str, Default] = field(default_factory=dict)
    noise: Mapping[str, Draw] = field(default_factory=dict)
    init: Mapping[str, Init] = field(default_factory=dict)
    layouts: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    same_as: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    examples: tuple[Example, ...] = ()
    notes: str = ""
    file: str = "<text>"
    integration: Mapping[str, Integration] = field(default_factory=dict, compare=False)
    changed: Mapping[str, Fraction] = field(default_factory=dict, compare=False)  # constants that `load` was given

    @property
    def settings(self) -> dict[str, str | float]:
        """What is not as the file has it: options that are not the first, constants of other
        values; `load` takes them."""
        options: dict[str, str | float] = {n: c.chosen for n, c in self.choices.items() if c.chosen != c.options[0]}
        return options | {n: int(v) if v.denominator == 1 else float(v) for n, v in self.changed.items()}

    @property
    def label(self) -> str:
        """The name with its settings: "rnn phi=relu"."""
        return " ".join([self.name, *(f"{n}={v}" for n, v in self.settings.items())])

    def __repr__(self) -> str:
        """Five lines: name and title, what it reads and carries, parameters, equations, file."""
        of = {shape: [n for n, s in self.parameters.items() if s == shape] for shape in self.parameters.values()}
        parameters = "; ".join(f"{', '.join(names)} [{', '.join(shape)}]" for shape, names in of.items())
        reads, states = ", ".join(self.inputs) or "none", ", ".join(self.states)
        lines = [
            f"Spec({self.label}: {self.title}",
            f"  inputs: {reads}; states: {states}; outputs: {', '.join(self.outputs)}",
            f"  parameters: {parameters or 'none'}",
            f"  equations: {', '.join(e.target for e in self.equations)}",
        ]
        return visible("\n".join([*(_within(line) for line in lines), f"  {self.file})"]))

    def show(self, stage: str | None = None) -> None:
        """Prints the page of the cell (equations, shapes, the derived backward pass, what a step
        costs), or one stage of it on its way to kernels: `to_text`."""
        print(visible(self.to_text(stage)))

    def to_text(self, stage: str | None = None) -> str:
        """What `show` prints. stage: None for the page, "spec", "graph", "adjoint", "program",
        "cpu" or "cuda". Raises ValueError for another one, UnsupportedError for one that this cell
        does not reach."""
        return views().text(self, stage)

    def to_latex(self, part: str = "", constants: str = "symbols") -> str:
        """The cell as LaTeX, for amsmath and amssymb.

        part: "forward", "backward", "parameters", or "document", which compiles as it is; "" for
        the equations and the gradients. constants: "symbols" or "numbers". Raises ValueError for
        others.
        """
        return views().latex(self, part, constants)

    def to_svg(self, view: str = "step") -> str:
        """A drawing of the cell as SVG. view: "step", "backward" (the derived gradients) or
        "unrolled" (three steps in a row). Raises ValueError for another."""
        return views().svg(self, view)

    def _repr_latex_(self) -> str:
        """The equations, as notebooks typeset them."""
        return self.to_latex("forward")

    @property
    def weights(self) -> dict[str, Shape]:
        """The parameters that are given, trained or fixed: those that are not noise."""
        return {name: shape for name, shape in self.parameters.items() if name not in self.noise}

    @property
    def trained(self) -> dict[str, Shape]:
        """The parameters that are trained: the weights that are not fixed."""
        return {name: shape for name, shape in self.weights.items() if name not in self.fixed}

    @property
    def held(self) -> dict[str, Shape]:
        """The parameters that are fixed, in the order of the file."""
        return {name: self.parameters[name] for name in self.fixed}

    @property
    def streams(self) -> dict[str, Shape]:
        """The inputs that come from outside: those that are not noise."""
        return {name: shape for name, shape in self.inputs.items() if name not in self.noise}

    @once_only
    def counts(self) -> bool:
        """Whether the cell counts its steps: it reads `t`, or has an input whose default that is.
        Then the count is carried with the states, under the name of STEP."""
        reads = (n for e in self.equations for n in walk(e.value))
        return None in self.defaults.values() or any(
            isinstance(n, Ref) and n.name == STEP and n.time is None for n in reads
        )
