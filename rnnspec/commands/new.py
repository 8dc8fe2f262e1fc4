"""`rnnspec new`: a commented YAML file to start a cell from."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from rnnspec.commands.output import say
from rnnspec.errors import RnnspecError
from rnnspec.language.load import load, loads, spec_names
from rnnspec.language.syntax.faults import bad_name
from rnnspec.language.syntax.yamltext import MAX_BYTES
from rnnspec.storage import guarded

TEMPLATE = """\
# A recurrent cell, one time step of it. What may stand here: rnnspec help language.
#   rnnspec check {name}.yaml        is it right? gradients, properties, the examples below
#   rnnspec show {name}.yaml         equations, derived backward pass, kernels
#   rnnspec train {name}.yaml        train it on text
rnnspec: 1
name: {name}
title: Gated cell with one gate              # one line, for lists
source: unpublished                          # the paper, with its equation numbers
# streams read at every step: D numbers
inputs:  {{x: D}}
# carried from step to step: H numbers, zero at the start unless given
states:  {{h: H}}
# trained; one line may declare several of one shape
parameters:
  W_f, W_n: [H, D]
  U_f, U_n: [H, H]
  b_f, b_n: [H]
# [t] is now, [t-1] the step before; @ is the matrix product, * is element by element; the order of the lines is free
equations: |
  f[t] = sigmoid(W_f @ x[t] + U_f @ h[t-1] + b_f)      # how much of the new value gets in
  n[t] = tanh(W_n @ x[t] + U_n @ h[t-1] + b_n)
  h[t] = (1 - f[t]) * h[t-1] + f[t] * n[t]
# emitted at every step: states or intermediate values
outputs: [h]
"""

COMMENTS = {
    "extends": "# the cell this one starts from; what is given below replaces or adds by name",
    "inputs": "# streams read at every step, and their sizes",
    "states": "# carried from step to step; zero at the start unless given",
    "parameters": "# trained; one line may declare several of one shape",
    "constants": "# numbers that can be changed at load",
    "choices": "# functions that can be chosen at load, the first is the default",
    "noise": "# which of these are drawn in training: bernoulli(p), dropout(p), normal(sigma)",
    "integrate": "# how each d/dt becomes equations of a step, and how long a step is",
    "apply": "# transforms of the cell, one after the other; their arguments may be constants",
    "equations": (
        "# [t] is now, [t-1] the step before; @ is the matrix product, * is element by element; the order of the lines"
        " is free"
    ),
    "outputs": "# emitted at every step",
}
ABOUT_THE_OLD = ("layouts", "same_as", "examples", "notes")  # true of the cell that was copied, not of what it becomes


def run(args: argparse.Namespace) -> int:
    path = Path(f"{args.name}.yaml")
    if message := bad_name(args.name):
        raise RnnspecError(f"{message} A cell's name becomes the file NAME.yaml.")
    if args.name in spec_names():
        raise RnnspecError(f"'{args.name}' is a cell that comes with rnnspec; choose another name")
    text = TEMPLATE.format(name=args.name) if args.parent is None else copy_of(args.parent, args.name)
    loads(text)  # nothing is written that can't be read back
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise RnnspecError(f"{path} exists already; nothing was written. Choose another name or move it away") from None
    say(f"wrote {path}. Change its equations, then: rnnspec check {path}")
    return 0


def copy_of(parent: str, name: str) -> str:
    """The text of a cell under a new name, commented, without what is only true of the old one."""
    spec = load(parent)
    lines = guarded.text(spec.file, MAX_BYTES).splitlines()
    out = [f"# {name}, started from {spec.name}. Change the equations, then: rnnspec check {name}.yaml"]
    replaced = {
        "name": f"name: {name}",
        "title": f"title: {name}, after {spec.name}",
        "source": f"source: unpublished, after {spec.name}",
    }
    dropping = False
    for line in lines:
        if match := re.match(r"([A-Za-z_]+)\s*:", line):
            key = match[1]
            dropping = key in ABOUT_THE_OLD or key in replaced  # with the lines that go on from it
            out += [text for text in (replaced.get(key), COMMENTS.get(key)) if text]
        if not dropping:
            out.append(line)
    return "\n".join(out) + "\n"
