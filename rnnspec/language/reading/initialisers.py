"""The initialisers that a file may name: `uniform(-1, 1)`, `zeros`, `0.5`, `chrono(-100) like
b_f`."""

from __future__ import annotations

import dataclasses
import re

from rnnspec.language.spec import Init
from rnnspec.language.syntax.parse import decimal

INITIALISERS = {
    "uniform_hidden": (0,),
    "glorot_uniform": (0,),
    "orthogonal": (0, 1),
    "identity": (0, 1),
    "uniform": (2,),
    "normal": (1,),
    "chrono": (1,),
}
FORMS = (
    "uniform_hidden, glorot_uniform, orthogonal, orthogonal(gain), identity, identity(gain), zeros, ones, a number,"
    " uniform(a, b), normal(s), chrono(Tmax), chrono(-Tmax) like b (by b's random numbers)"
)


def initialiser(text: str) -> Init | None:
    """`uniform(-1, 1)`, `zeros`, `0.5`, `chrono(-100) like b_f`: None where it is none of these."""
    text, word, like = text.partition(" like ")
    if word:
        init, like = initialiser(text), like.strip()
        return (
            dataclasses.replace(init, like=like)
            if init is not None and init.kind == "chrono" and like.isidentifier()
            else None
        )
    text = text.replace(" ", "")
    if text in ("zeros", "ones"):
        return Init("constant", (float(text == "ones"),))
    number = decimal(text)
    if number is not None:
        return Init("constant", (float(number),))
    head = re.fullmatch(r"(\w+)(?:\((.*)\))?", text)
    if head is None or head[1] not in INITIALISERS:
        return None
    args = [decimal(a) for a in head[2].split(",")] if head[2] else []
    if len(args) not in INITIALISERS[head[1]] or None in args:
        return None
    return Init(head[1], tuple(float(a) for a in args if a is not None))
