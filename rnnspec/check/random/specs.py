"""Random cells that are valid, as YAML texts: everything that the language offers, in every
mixture.

`random_spec(random.Random(7))` is one text. The source of chance is an argument, so that
Hypothesis, which has one that it can shrink, writes specs by the same code
(`rnnspec.check.random.strategies`).
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable

from rnnspec.language.functions import FUNCTIONS as TABLE
from rnnspec.language.functions import Function
from rnnspec.language.methods import METHODS

VECTORS = ("D", "H", "P")

# Forms of expressions by the number of operands. {} is an operand of the form's own shape, {s} one
# that may be a single number.
# Arguments are kept where the function is defined and where nothing overflows.
ONE: tuple[str, ...] = (
    "sigmoid({})",
    "tanh({})",
    "relu({})",
    "leaky_relu({}, 0.1)",
    "elu({})",
    "selu({})",
    "gelu({})",
    "silu({})",
    "softplus({})",
    "softsign({})",
    "hard_sigmoid({}, 0.2)",
    "hard_sigmoid({}, 1/6)",
    "hard_tanh({})",
    "exp(-square({}))",
    "log(1 + square({}))",
    "log1p(abs({}))",
    "expm1(tanh({}))",
    "sqrt(1 + square({}))",
    "rsqrt(2 + square({}))",
    "abs({})",
    "sign({})",
    "sin({})",
    "cos({})",
    "erf({})",
    "clip({}, -0.5, 0.7)",
    "identity({})",
    "log_sigmoid({})",
    "square({})",
    "reciprocal(2 + square({}))",
    "({})**2",
    "(1 + square({}))**-1.5",
    "(2 + sin({}))**0.3",
    "-({})",
    "bend({})",
    "tanh({})**3",
    "phi({})",
)
TWO = (
    "{} + ({s})",
    "{} - ({s})",
    "({}) * ({s})",
    "({s}) * ({})",
    "({s}) / (2 + ({})**2)",
    "maximum({}, {s})",
    "minimum({s}, {})",
    "mix({}, {s})",
    "clip({}, -1, 0.5 + sigmoid({s}))",
    "leaky_relu({}, sigmoid({s}))",
    "where(t < 2, {}, {s})",
    "where(not ({} > 0.3), 1, {s})",
)
FOUR = (
    "where({s} < {s}, {}, {s})",
    "where({s} >= {s} or t == 1, {s}, {})",
    "where(-1 < {s} < {s}, {}, {s})",
    "where({s} != {s} and t > 0, {}, {s})",
)
SMOOTH = ("softmax({})", "cumsum({})", "cumax({})", "layer_norm({}, 0.01)")
FOLDS = ("sum({})", "mean({})", "max({})", "norm({})")
UNDIFFERENTIABLE: tuple[str, ...] = ("stop_gradient({})", "straight_through(sign({}), {})")


def _forms(rows: Iterable[Function]) -> tuple[str, ...]:
    """One form for each function that a spec can name and none of the forms above has, its argument
    within the row's interval."""
    known = " ".join((*ONE, *TWO, *FOUR, *UNDIFFERENTIABLE))
    forms = []
    for row in rows:
        if not row.internal and not re.search(rf"\b{row.name}\(", known):
            middle, half = sum(row.interval) / 2, (row.interval[1] - row.interval[0]) / 2
            forms.append(row.call(f"{middle!r} + {half!r} * tanh({{}})"))
    return tuple(forms)


# what the table has beyond these: a new row is tried without a line here
ONE += _forms(row for row in TABLE.values() if not row.surrogate)
UNDIFFERENTIABLE += _forms(row for row in TABLE.values() if row.surrogate)

FUNCTIONS = {"bend": "bend(v): v / (1 + square(v))", "mix": "mix(u, v): u - 0.5 * u * tanh(v)"}
CHOICES = ("[tanh, relu, identity]", "[softsign, sin]", "[sigmoid]")


def random_spec(rng: random.Random, name: str = "random") -> str:
    """The text of a valid cell. Vectors have the sizes D, H and P, and there are numbers and
    matrices."""
    return _SpecWriter(rng, name).text()


class _SpecWriter:
    def __init__(self, rng: random.Random, name: str):
        self.rng, self.name = rng, name
        self.parameters: dict[str, str] = {}
        self.lines: list[str] = []
        self.flows: list[str] = []  # states by a differential equation
        self.states = {"h": "H"}
        self.states |= {n: s for n, s in (("p", "P"), ("q", "[]"), ("d", "D")) if self.chance(0.5)}
        self.inputs = {"x": "D"}
        self.inputs |= {n: s for n, s in (("dt", "[]"), ("m", "H")) if self.chance(0.5)}
        self.now = dict(self.inputs)  # readable at [t]
        self.before = {**self.inputs, **self.states}  # readable at earlier steps
        self.once: dict[str, str] = {}  # matrices and vectors computed once per sequence
        self.furthest = self.rng.choice([1, 1, 1, 2, 3])
        self.undifferentiable = self.chance(0.1)

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def text(self) -> str:
        matrix = self.chance(0.3)
        if self.chance(0.3):
            self.computed_once()
        if self.chance(0.25):
            self.loop()
        for number in range(self.rng.randint(0, 3)):
            self.intermediate(f"v{number}", self.rng.choice([*VECTORS, "[]"]))
        flows = self.chance(0.2)
        for state, shape in self.states.items():
            if flows and self.chance(0.6):
                self.flow(state, shape)
                continue
            self.lines.append(
                f"{state}[t] = 0.9 * tanh({self.expression(shape, self.rng.randint(1, 3))}) + 0.1 *"
                f" {self.earlier(shape)}"
            )
            self.now[state] = shape
        if matrix:
            self.matrix_state()
        for name in self.inputs:  # what is declared is used
            if not any(f"{name}[t" in line for line in self.lines):
                self.intermediate(f"of_{name}", self.inputs[name], f"0.5 * {name}[t]")
        return self.written(matrix)

    def written(self, matrix: bool) -> str:
        rng, body = self.rng, "".join(f"  {line}\n" for line in self.lines)
        outputs = (
            list(dict.fromkeys([rng.choice(sorted(self.states)), *(n for n in self.now if n.startswith(("v", "of_")))]))
            + ["read"] * matrix
        )
        shown = {**self.states, **({"M": "[H, P]"} if matrix else {})}
        used = {
            n: s if s.startswith("[") else f"[{s}]" for n, s in self.parameters.items() if re.search(rf"\b{n}\b", body)
        }
        functions = [text for name, text in FUNCTIONS.items() if f"{name}(" in body]
        keys = [
            f"rnnspec: 1\nname: {self.name}\n",
            (
                "sizes: {P: H}\n"
                if any("P" in shape for shape in (*shown.values(), *used.values())) and self.chance(0.1)
                else ""
            ),
            "inputs: {" + ", ".join(f"{n}: {s}" for n, s in self.inputs.items()) + "}\n",
            "states: {" + ", ".join(f"{n}: {s}" for n, s in shown.items()) + "}\n",
            "parameters:\n" + "".join(f"  {n}: {s}\n" for n, s in used.items()) if used else "",
            "functions:\n" + "".join(f"  {text}\n" for text in functions) if functions else "",
            f"choices: {{phi: {rng.choice(CHOICES)}}}\n" if "phi(" in body else "",
            "no_gradient: [m]\n" if "m" in self.inputs and self.chance(0.7) else "",
            self.integration(),
            "constants: {rate: 0.3}\n" if "rate" in body else "",
            f"fixed: [{rng.choice(sorted(used))}]\n" if used and self.chance(0.15) else "",
        ]
        return "".join(keys) + f"equations: |\n{body}outputs: [{', '.join(outputs)}]\n"

    # --- what stands beside the states

    def flow(self, state: str, shape: str) -> None:
        """A state by a differential equation, often with a value of its own in between."""
        self.flows.append(state)
        self.now[state] = shape
        if self.chance(0.5):
            self.intermediate(f"e_{state}", shape)
        self.lines.append(f"d/dt {state} = tanh({self.expression(shape, 2)}) - 0.5 * {state}[t]")

    def integration(self) -> str:
        """How the flows are integrated."""
        if not self.flows:
            return ""
        sizes = ["0.1", "0.25", *(["'0.2 * sigmoid(dt[t])'"] if "dt" in self.inputs else [])]
        plain = "gelu(" in "".join(self.lines)  # whose derivative no equation can name
        methods = [row.name for row in METHODS.values() if not (plain and row.gain)]
        method = self.rng.choice(methods)
        if len(self.flows) > 1 and self.chance(0.3):
            names = {name: self.rng.choice(methods) for name in self.flows}
            method = "{" + ", ".join(f"{n}: {m}" for n, m in names.items()) + "}"
        parts = f", substeps: {self.rng.randint(2, 3)}" if self.chance(0.4) else ""
        return f"integrate: {{method: {method}, dt: {self.rng.choice(sizes)}{parts}}}\n"

    def intermediate(self, name: str, shape: str, value: str = "") -> None:
        self.lines.append(f"{name}[t] = {value or self.expression(shape, 2)}")
        self.now[name] = self.before[name] = shape

    def computed_once(self) -> None:
        rng = self.rng
        self.parameters |= {"R": "[H, H]", "B": "[H, P]"}
        self.lines.append(
            f"A = {rng.choice(['R @ B', 'B', 'R.T @ B + sum(B) * B', 'tanh(B) * norm(R)'])} *"
            f" {rng.choice(['0.3', 'rate', 'mean(R)'])}"
        )
        diagonal = rng.choice(["eye(H)", "diag(z)", "diag(exp(-square(z)))", "outer(ones(H), z)"])
        self.lines.append(f"K = {rng.choice(['R - R.T', 'R @ R.T', 'R', 'outer(z, z) - R'])} - 0.1 * {diagonal}")
        if "z" in self.lines[-1]:
            self.parameters["z"] = "[H]"
        self.once = {"A": "[H, P]", "K": "[H, H]"}
        self.intermediate("once", "P", "h[t-1] @ A")
        self.intermediate("turned", "H", "K @ h[t-1]")

    def loop(self) -> None:
        rng, rounds = self.rng, self.rng.randint(1, 3)
        self.parameters |= {"S": "[3, H, H]", "s_b": "[3, H]"}
        first, other = self.leaf("H"), rng.choice([f"s[t, k-1] * {self.leaf('H')}", "tanh(s[t, k-1])"])
        self.lines += [
            f"s[t, 0] = h[t-{rng.randint(1, self.furthest)}]",
            f"for k in 1..{rounds}:",
            (
                f"  s[t, k] = tanh(where(k == 1, {first}, {other}) + S[k] @ s[t, k-1] + s_b[k] *"
                f" {rng.choice(['s[t-1, k]', 'k', '1'])})"
            ),
            f"last[t] = s[t, {rounds}]",
        ]
        self.now["last"] = self.before["last"] = "H"

    def matrix_state(self) -> None:
        decay = self.rng.choice(["0.5", "sigmoid(sum(x[t]))", "rate"])
        left, right = self.leaf("H"), self.leaf("P")
        self.lines.append(f"M[t] = {decay} * M[t-1] + tanh(outer({left}, {right}){' + A' if self.once else ''})")
        key, vector = self.expression("P", 1), self.leaf("H", varying=True)
        self.lines.append(
            "read[t] ="
            f" {self.rng.choice([f'M[t] @ ({key})', f'tanh(M[t-1] @ M[t].T) @ {vector}', f'M[t-1] @ ({key})'])}"
        )

    # --- expressions

    def earlier(self, shape: str) -> str:
        fitting = [n for n, s in self.before.items() if s == shape]
        return f"{self.rng.choice(fitting)}[t-{self.rng.randint(1, self.furthest)}]"

    def leaf(self, shape: str, varying: bool = False) -> str:
        """A value that was read or computed, or (unless it must change with time) a parameter or
        number."""
        refs = [f"{n}[t]" for n, s in self.now.items() if s == shape]
        if any(s == shape for s in self.before.values()):
            refs += [self.earlier(shape), self.earlier(shape)]
        if refs and (varying or self.chance(0.75)):
            return self.rng.choice(refs)
        if varying:
            return f"({self.parameter(f'[{shape}, D]')} @ x[t])" if shape != "[]" else "sum(x[t])"
        if shape == "[]" and self.chance(0.5):
            return self.rng.choice(["0.5", "t / 10", "1.5", "rate", "1 / sqrt(H)"])
        known = [n for n, s in self.parameters.items() if s == shape and n != "z"]
        return self.rng.choice(known) if known and self.chance(0.3) else self.parameter(shape)

    def parameter(self, shape: str) -> str:
        name = f"{'W' if ',' in shape else 'w'}_{len(self.parameters)}"
        self.parameters[name] = shape
        return name

    def expression(self, shape: str, depth: int) -> str:
        if depth == 0:
            return self.leaf(shape)
        pick, rng = self.rng.random(), self.rng
        if pick < 0.3:
            return self.product(shape, depth - 1) if shape != "[]" else self.fold(depth - 1)
        if pick < 0.42 and shape != "[]":
            return self.along_features(shape, depth - 1)
        if pick < 0.62:
            return self.form(rng.choice(ONE), shape, depth - 1)
        if pick < 0.9:
            return self.form(rng.choice(TWO), shape, depth - 1)
        if pick < 0.95 and self.undifferentiable:
            return self.form(rng.choice(UNDIFFERENTIABLE), shape, depth - 1)
        return self.form(rng.choice(FOUR), shape, depth - 1)

    def form(self, form: str, shape: str, depth: int) -> str:
        """The form with an expression in each of its places."""
        return re.sub(r"\{s?\}", lambda place: self.operand(shape, depth, place[0] == "{s}"), form)

    def operand(self, shape: str, depth: int, number: bool) -> str:
        return self.expression("[]" if number and self.chance(0.2) else shape, self.rng.choice([0, depth, depth]))

    def product(self, shape: str, depth: int) -> str:
        inner = self.rng.choice(VECTORS)
        matrix = (
            f"{self.parameter(f'[{inner}, {shape}]')}.T" if self.chance(0.15) else self.parameter(f"[{shape}, {inner}]")
        )
        vector = (
            self.leaf(inner, varying=True)
            if self.chance(0.7)
            else f"({self.expression(inner, depth)} + {self.leaf(inner, varying=True)})"
        )
        return f"{matrix} @ {vector}" + (f" + {self.expression(shape, depth)}" if self.chance(0.6) else "")

    def fold(self, depth: int) -> str:
        inner = self.rng.choice(VECTORS)
        if self.chance(0.3):
            return f"dot({self.expression(inner, depth)}, {self.leaf(inner)})"
        return self.form(self.rng.choice(FOLDS), inner, depth)

    def along_features(self, shape: str, depth: int) -> str:
        pick = self.rng.choice([*SMOOTH, "part", "concat", "size", "once"])
        if pick in SMOOTH:
            return self.form(pick, shape, depth)
        if pick == "part":
            return f"part(concat({self.leaf('P')}, {self.expression(shape, depth)}, 1), P, {shape})"
        if pick == "concat":
            return (
                f"{self.parameter(f'[{shape}, D + H + 1]')} @ concat({self.leaf('D')}, {self.expression('H', depth)},"
                f" {self.leaf('[]')})"
            )
        if pick == "once" and self.once and shape != "D":
            return {"H": f"(A @ ({self.leaf('P')}))", "P": f"({self.leaf('H')} @ A)"}[shape]
        return f"({self.expression(shape, depth)}) / sqrt({shape} + 1)"
