"""Specs as somebody might have damaged them: a shipped or random cell's text with pieces of others
put in, doubled, exchanged and cut out."""

from __future__ import annotations

import random
import re

from rnnspec.check.random.broken import broken_spec
from rnnspec.check.random.specs import random_spec

PIECES = (
    *("where(x[t] > 0, x[t], h[t-1])", "tanh(", "gelu(", "softplus(", "softmax(", "layer_norm(", "norm(", "cumsum("),
    *("concat(x[t], x[t])", "outer(x[t], x[t])", "diag(x[t])", ".T", "**2", "**0.5", "**-1", " / x[t]", " * x[t]"),
    *(" @ ", " + ", " - ", " * ", "(", ")", "[t]", "[t-1]", "[t-3]", "x", "h", "D", "H", "t", "1e-200", "1e200", "0"),
    *("5e-324", "1e308", "maximum(x[t], ", "minimum(", "clip(x[t], -1, 1)", "stop_gradient(", " and ", "not ", ","),
)


def mutated(rng: random.Random) -> str:
    """The text of a spec, as likely as not a valid one."""
    kind = rng.random()
    if kind < 0.15:
        return broken_spec(rng)[1]
    text = random_spec(rng)
    if kind < 0.45:
        return _nested(rng, text)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        text = _changed(rng, text)
    return text


def _changed(rng: random.Random, text: str) -> str:
    """One piece of a text cut out, doubled, exchanged with another, or replaced."""
    parts = re.findall(r"\w+|\s+|[^\w\s]", text)
    at, other = rng.randrange(len(parts)), rng.randrange(len(parts))
    match rng.randrange(5):
        case 0:
            del parts[at : at + rng.choice((1, 1, 2, 5))]
        case 1:
            parts[at:at] = parts[at : at + rng.choice((1, 3, 9))]
        case 2:
            parts[at], parts[other] = parts[other], parts[at]
        case 3:
            parts[at] = rng.choice(PIECES)
        case _:
            parts[at] += rng.choice(PIECES)
    return "".join(parts)


def _nested(rng: random.Random, text: str) -> str:
    """A value of an equation put into itself again and again, by functions of the file: what is
    small as a text and large written out."""
    bodies = (
        *("a * a", "a / (1 + a * a)", "where(a > 0, a, a * a)", "a * tanh(a)", "gelu(a) + a", "softplus(a)"),
        *("a ** 2 - a", "maximum(a, a * a)", "softmax(a) * a", "a - mean(a)", "sqrt(a * a + 1)", "cumsum(a)", "a + t"),
        *("where(a > 0, a, 1) * where(a < 1, a, 2)", "a / norm(a)", "layer_norm(a)", "exp(-a) * a", "a * 1e-200"),
    )
    body = rng.choice(bodies)
    depth = rng.randrange(1, 14)
    lines = text.splitlines(keepends=True)
    places = [n for n, line in enumerate(lines) if re.match(r"  [a-z]\w*\[t\] = ", line)]
    at = rng.choice(places)
    left, right = lines[at].rstrip("\n").split(" = ", 1)
    lines[at] = f"{left} = {'nest(' * depth}{right}{')' * depth}\n"
    return "".join(lines) + f"functions:\n  nest(a): {body}\n"
