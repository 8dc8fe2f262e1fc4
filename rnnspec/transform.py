"""Cells made from cells: each function takes a Spec and gives a new one, which loads, shows, checks
and compiles like any other.

    rnnspec.transform.drop_gate(rnnspec.load("lstm"), "i")      # without the input gate
    rnnspec.transform.zoneout(rnnspec.load("gru"), h=0.1)

The new cell's name says what was done; its parameters keep their names where they keep their part.
RnnspecError says why a cell can't be transformed so. A file says the same with `apply: [drop_gate:
i, zoneout: {h: 0.1}]`. `rnnspec.transform.to_yaml(spec)` is the file of the result.
"""

from __future__ import annotations

from rnnspec.language.rewrite import to_yaml
from rnnspec.language.transforms.clips import clip_cell, clip_projection
from rnnspec.language.transforms.gates import couple_gates, drop_gate, gates, peepholes
from rnnspec.language.transforms.recurrence import (
    diagonal_recurrence,
    layer_norm,
    leak,
    low_rank_recurrence,
    multiplicative_integration,
)
from rnnspec.language.transforms.regularise import (
    candidate_dropout,
    dropconnect,
    input_dropout,
    recurrent_dropout,
    state_noise,
    zoneout,
)

__all__ = [
    "candidate_dropout",
    "clip_cell",
    "clip_projection",
    "couple_gates",
    "diagonal_recurrence",
    "drop_gate",
    "dropconnect",
    "gates",
    "input_dropout",
    "layer_norm",
    "leak",
    "low_rank_recurrence",
    "multiplicative_integration",
    "peepholes",
    "recurrent_dropout",
    "state_noise",
    "to_yaml",
    "zoneout",
]
