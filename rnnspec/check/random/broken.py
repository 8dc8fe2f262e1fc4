"""Valid random specs with one fault put in, of which none may be taken in silence."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from rnnspec.check.random.specs import random_spec

Change = Callable[[random.Random, str], str]


def broken_spec(rng: random.Random, name: str = "random") -> tuple[str, str]:
    """What is wrong with it, and the text of a spec that is wrong."""
    text = random_spec(rng, name)
    fault = rng.choice(sorted(FAULTS))
    return fault, FAULTS[fault](rng, text)


def _in_equations(change: Callable[[random.Random, list[str]], list[str]]) -> Change:
    """A change of the lines of the equations."""

    def changed(rng: random.Random, text: str) -> str:
        head, rest = text.split("equations: |\n")
        body, tail = rest.split("outputs:")
        return (
            f"{head}equations: |\n"
            + "".join(f"{line}\n" for line in change(rng, body.splitlines()))
            + f"outputs:{tail}"
        )

    return changed


def _of_a_line(change: Callable[[random.Random, str, str], str]) -> Change:
    """A change of one equation: of its left side and of its right side."""

    def changed(rng: random.Random, lines: list[str]) -> list[str]:
        plain = re.compile(r"  (?:d/dt [a-z]\w*|[a-z]\w*\[t\]) = ")
        number = rng.choice([n for n, line in enumerate(lines) if plain.match(line)])
        left, right = lines[number].split(" = ", 1)
        return [change(rng, left, right) if n == number else line for n, line in enumerate(lines)]

    return _in_equations(changed)


def _insert(text: str, old: str, new: str) -> str:
    assert old in text, f"no {old!r} in a random spec"
    return text.replace(old, new, 1)


def _integration(rng: random.Random, text: str) -> str:
    """A method that there is not, or an integration of nothing."""
    if "integrate:" in text:
        return re.sub(r"integrate: \{method: (\{\w+: )?", r"\g<0>no", text)
    return text + f"integrate: {rng.choice(['{method: rk4, dt: 0.1}', '{start: {h: 1}}', '[]', '{dt: x}'])}\n"


def _unused_choice(rng: random.Random, text: str) -> str:
    return (
        text.replace("choices: {", "choices: {psi: [tanh], ")
        if "choices:" in text
        else text + "choices: {psi: [tanh]}\n"
    )


STRANGE = (
    "x[t].T.shape",
    "lambda: 0",
    "[1, 2]",
    "{1: 2}",
    "'text'",
    "x[t] if 1 else 2",
    "x[0]",
    "x[t][t]",
    "x[t+1]",
    "x[t-65]",
    "x[t-0.5]",
    "1j",
    "0x10",
    "1_0",
    "x[t] @ x[t] @",
    "x[t] // 2",
    "x[t] % 2",
    "x[t] & 1",
    "~x[t]",
    "(yield)",
    "f'{1}'",
    "x[t:2]",
    "*x[t]",
    "x[t] := 1",
    "print(1)",
    "1e999",
    "2**65**2",
    "h",
    "x",
    "H[t]",
    "tanh",
    "tanh()",
    "tanh(x[t], x[t])",
    "clip(x[t])",
    "part(x[t], 0, D + 1)",
    "eye(x[t])",
    "sum()",
    "t[t]",
    "where(1, 2)",
    "D[t-1]",
    "where(x[t], 1, 2)",
    "x[t] < 1",
    "not x[t]",
    "softmax(0.5)",
    "1 / 0",
    "None",
    "...",
    "x[t]**x[t]",
    "diag(2)",
    "outer(x[t], 1)",
    "concat()",
)

NAMES = ("t", "tanh", "for", "lambda", "where", "T", "1x", "a-b", "_a")
SHAPES = ("[D, ", "-D", "D - 1", "D / 2", "1.5", "sum(D)", "[[D]]")

FAULTS: dict[str, Change] = {
    "a misspelt function": _of_a_line(lambda rng, left, right: f"{left} = tahn({right})"),
    "an unknown name": _of_a_line(lambda rng, left, right: f"{left} = {right} + nowhere"),
    "an unknown value in time": _of_a_line(lambda rng, left, right: f"{left} = {right} + nowhere[t-1]"),
    "a name without its time": _of_a_line(lambda rng, left, right: f"{left} = {right} + sum(x)"),
    "a parameter with a time": _of_a_line(lambda rng, left, right: f"{left} = {right} + sum(v_extra[t])"),
    "an open parenthesis": _of_a_line(lambda rng, left, right: f"{left} = ({right}"),
    "a closing parenthesis too many": _of_a_line(lambda rng, left, right: f"{left} = {right})"),
    "no right side": _of_a_line(lambda rng, left, right: f"{left} ="),
    "no equals sign": _of_a_line(lambda rng, left, right: f"{left} {right}"),
    "two equals signs": _of_a_line(lambda rng, left, right: f"{left} = {right} = 1"),
    "a cycle": _of_a_line(lambda rng, left, right: f"{left} = {right} + 0 * {left.strip()}"),
    "a name defined twice": _of_a_line(lambda rng, left, right: f"{left} = {right}\n{left} = {right}"),
    "a shape that does not fit": _of_a_line(lambda rng, left, right: f"{left} = {right} + sum(concat(x[t], 1) + x[t])"),
    "a matrix times a vector by *": _of_a_line(
        lambda rng, left, right: f"{left} = {right} + sum(outer(x[t], x[t]) * x[t])"
    ),
    "a matrix that does not fit": _of_a_line(
        lambda rng, left, right: f"{left} = {right} + sum(outer(x[t], concat(x[t], 1)) @ x[t])"
    ),
    "a condition as a value": _of_a_line(lambda rng, left, right: f"{left} = {right} + ({right} > 0)"),
    "what the language has not": _of_a_line(lambda rng, left, right: f"{left} = {right} + {rng.choice(STRANGE)}"),
    "a stray character": _of_a_line(lambda rng, left, right: f"{left} = {right} {rng.choice('$?!`;@^é')}"),
    "a state without an equation": lambda rng, text: _insert(text, "states: {", "states: {lost: H, "),
    "a declared input that nothing uses": lambda rng, text: _insert(text, "inputs: {", "inputs: {lost: H, "),
    "an output that there is not": lambda rng, text: _insert(text, "outputs: [", "outputs: [nowhere, "),
    "an output twice": lambda rng, text: re.sub(r"outputs: \[(\w+)", r"outputs: [\1, \1", text),
    "an unknown key": (
        lambda rng, text: text + f"{rng.choice(['paramters', 'output', 'Equations', 'note', 'lr'])}: {{}}\n"
    ),
    "a key twice": lambda rng, text: text + "outputs: [h]\n",
    "another format": lambda rng, text: text.replace(
        "rnnspec: 1", f"rnnspec: {rng.choice(['2', '0', 'one', '1.0', '[1]', ''])}"
    ),
    "no format": lambda rng, text: text.replace("rnnspec: 1\n", ""),
    "no name": lambda rng, text: re.sub(r"name: \w+\n", "", text),
    "a reserved name": lambda rng, text: _insert(text, "inputs: {", f"inputs: {{{rng.choice(NAMES)}: H, "),
    "a name of two kinds": lambda rng, text: _insert(text, "states: {", "states: {x: D, "),
    "a shape that is none": lambda rng, text: _insert(text, "inputs: {x: D", f"inputs: {{x: {rng.choice(SHAPES)}"),
    "a tag": lambda rng, text: text.replace("name: ", "name: !!python/name:os.system "),
    "a tab": lambda rng, text: text.replace("inputs: ", "\tinputs: "),
    "an unknown initialiser": lambda rng, text: text + "init: {'*': orthogonl}\n",
    "a choice that nothing makes": _unused_choice,
    "an integration that is none": _integration,
    "a missing parent": lambda rng, text: text + "extends: no_such_cell\n",
    "a text cut short": lambda rng, text: text[: text.index("outputs: [") + len("outputs: [")],
    "a null": lambda rng, text: text.replace("states: {h: H", "states: {h: ~"),
    "a list for a mapping": lambda rng, text: re.sub(r"states: \{[^}]*\}", "states: [h]", text),
}
