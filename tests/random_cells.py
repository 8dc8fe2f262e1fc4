"""Random cells: YAML texts for comparing kernels with the reference, and the reference with differences.

`RandomCell(seed)` keeps to what the kernels run; `RandomCell(seed, features=True)` uses everything that the language offers.
"""
from __future__ import annotations

import random
import re

FUNCTIONS = ("sigmoid", "tanh", "softsign", "silu", "softplus", "relu", "gelu", "elu", "sin", "erf", "abs", "square", "hard_tanh", "log_sigmoid",
             "identity", "expm1")


SMOOTH = ("softmax", "cumsum", "cumax", "layer_norm")
FOLDS = ("sum", "mean", "max", "norm")


class RandomCell:
    """One text. Vectors have the sizes D, H and P, and there are single numbers; matrices and vectors are declared as they are needed."""

    def __init__(self, seed: int, features: bool = False):
        self.rng = random.Random(seed)
        self.features = features
        self.once: dict[str, str] = {}
        self.name = f"random_{seed}"
        self.inputs = {"x": "D", "dt": "[]"}
        self.states = {"h": "H", "p": "P", "q": "[]"}
        if self.rng.random() < 0.3:
            self.states.pop("q")
        self.known = {"x": "D", "dt": "[]"}  # readable at [t]
        self.before = dict(self.known) | self.states  # readable at [t-1]
        self.parameters: dict[str, str] = {}
        self.lines: list[str] = []

    def text(self) -> str:
        if self.features:
            self.full()
        for number in range(self.rng.randint(1, 4)):
            self.equation(f"v{number}", self.rng.choice(["H", "P", "D", "[]"]), bounded=False)
        for state, size in self.states.items():
            self.equation(state, size, bounded=True)
        self.lines.append("out[t] = tanh(W_out @ x[t] + w_out * dt[t])")
        self.parameters |= {"W_out": "[P, D]", "w_out": "[P]"}
        outputs = ", ".join([*(n for n in self.known if n.startswith("v")), self.rng.choice(sorted(self.states)), "out"])
        states = ", ".join(f"{n}: {s}" for n, s in self.states.items()) + ", M: [H, P]" * self.features
        if self.features:
            self.lines.append(f"M[t] = {self.rng.choice(['0.5', 'sigmoid(dt[t])'])} * M[t-1] + tanh(outer({self.leaf('H')}, {self.leaf('P')}) + A)")
            self.lines.append("read[t] = M[t] @ p[t] + tanh(M[t-1] @ M[t].T) @ h[t-1]")
            outputs += ", read"
        parameters = "".join(f"  {n}: {s}\n" for n, s in self.parameters.items())
        equations = "".join(f"  {line}\n" for line in self.lines)
        return (f"rnnspec: 1\nname: {self.name}\ninputs: {{x: D, dt: []}}\nstates: {{{states}}}\nparameters:\n{parameters}"
                f"equations: |\n{equations}outputs: [{outputs}]\n")

    def full(self) -> None:
        """Values computed once per sequence, and an inner loop whose last round is read like any other value."""
        rng = self.rng
        self.parameters |= {"R": "[H, H]", "B": "[H, P]", "S": "[3, H, H]", "z": "[3, H]"}
        self.lines += [f"A = {rng.choice(['R @ B', 'B', 'R.T @ B + sum(B) * B'])} * {rng.choice(['0.3', 'mean(R)'])}",
                       f"K = {rng.choice(['R - R.T', 'R @ R.T', 'R'])} - 0.1 * {rng.choice(['eye(H)', 'diag(z[2])', 'S[2].T'])}"]
        rounds = rng.randint(1, 3)
        self.lines += [f"s[t, 0] = h[t-{rng.randint(1, 3)}]", f"for k in 1..{rounds}:",
                       f"  s[t, k] = tanh(where(k == 1, {self.leaf('H')}, K @ s[t, k-1]) + S[k] @ s[t, k-1] + z[k] * {rng.choice(['s[t-1, k]', 'k'])})",
                       f"last[t] = s[t, {rounds}]"]
        self.known["last"] = self.before["last"] = "H"
        self.once = {"A": "[H, P]", "K": "[H, H]"}

    def feature(self, size: str, depth: int) -> str:
        """A vector or number by way of a function along the feature axis, a concatenation or a matrix that was computed."""
        rng = self.rng
        if size == "[]":
            inner = rng.choice(["D", "H", "P"])
            pick = rng.choice([*FOLDS, "dot"])
            return f"dot({self.expression(inner, depth)}, {self.leaf(inner)})" if pick == "dot" else f"{pick}({self.expression(inner, depth)})"
        pick = rng.choice([*SMOOTH, "concat", "part", "matrix", "number"])
        if pick in SMOOTH:
            return f"{pick}({self.expression(size, depth)}{', 0.01' * (pick == 'layer_norm')})"
        if pick == "part":
            return f"part(concat({self.leaf('P')}, {self.expression(size, depth)}, 1), P, {size})"
        if pick == "concat":
            wide = self.parameter(f"W{len(self.parameters)}", f"[{size}, D + H + 1]")
            return f"{wide} @ concat({self.leaf('D')}, {self.expression('H', depth)}, {self.leaf('[]')})"
        if pick == "matrix":
            form = {"H": "A @ <P> + K @ <H>", "P": "<H> @ A", "D": "diag(<D>) @ <D>"}[size]
            return re.sub("<(.)>", lambda found: f"({self.leaf(found[1])})", form)
        return f"({self.expression(size, depth)}) / sqrt({size} + 1)"

    def parameter(self, name: str, shape: str) -> str:
        self.parameters[name] = shape
        return name

    def equation(self, name: str, size: str, *, bounded: bool) -> None:
        value = self.expression(size, 3)
        if bounded:
            value = f"0.9 * tanh({value}) + 0.1 * {self.leaf(size)}"
        self.lines.append(f"{name}[t] = {value}")
        self.known[name] = self.before[name] = size

    def leaf(self, size: str) -> str:
        late = self.rng.randint(1, 3) if self.features else 1
        refs = [f"{n}[t]" for n, s in self.known.items() if s == size] + [f"{n}[t-{late}]" for n, s in self.before.items() if s == size]
        if refs and self.rng.random() < 0.75:
            return self.rng.choice(refs)
        if size == "[]" and self.rng.random() < 0.4:
            return self.rng.choice(["0.5", "t / 10", "1.5"])
        return self.parameter(f"w{len(self.parameters)}", size if size == "[]" else f"[{size}]")

    def expression(self, size: str, depth: int) -> str:
        if depth == 0:
            return self.leaf(size)
        if self.features and self.rng.random() < 0.35:
            return self.feature(size, depth - 1)
        pick = self.rng.random()
        part = lambda s=size: self.expression(s, depth - 1)  # noqa: E731
        scalar = "[]" if self.rng.random() < 0.2 else size
        if pick < 0.25 and size != "[]":
            inner = self.rng.choice(["D", "H", "P"])
            matrix = self.parameter(f"W{len(self.parameters)}", f"[{size}, {inner}]")
            product = f"{matrix} @ {self.operand(inner, depth - 1)}"
            return product if self.rng.random() < 0.4 else f"{product} + {part()}"
        if pick < 0.5:
            return f"{self.rng.choice(FUNCTIONS)}({part()})"
        if pick < 0.6:
            return f"where({part(scalar)} < {part(scalar)}, {part()}, {part(scalar)})"
        if pick < 0.66:
            return f"{self.rng.choice(['maximum', 'minimum'])}({part()}, {part(scalar)})"
        if pick < 0.72:
            return f"({part(scalar)}) / (2 + ({part()})**2)"
        if pick < 0.86:
            return f"({part()}) * ({part(scalar)})"
        return f"{part()} {self.rng.choice('+-')} ({part(scalar)})"

    def operand(self, size: str, depth: int) -> str:
        """What a matrix multiplies. It must change with time: values computed once per sequence are not supported yet."""
        changing = [f"{n}[t]" for n, s in self.known.items() if s == size and self.name] + [f"{n}[t-1]" for n, s in self.before.items() if s == size]
        reference = self.rng.choice([c for c in changing if not c.startswith("v")] or ["x[t]"])
        if reference == "x[t]" and size != "D":
            reference = f"({self.parameter(f'W{len(self.parameters)}', f'[{size}, D]')} @ x[t])"
        return reference if self.rng.random() < 0.7 else f"({self.expression(size, depth)} + {reference})"
