"""Layers of the simple network written out as loops over rows and steps, without anything of
rnnspec: what the layers are tested against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

Array = np.ndarray


@dataclass(frozen=True)
class Options:
    """As of `rnnspec.Recurrent`, for cell "rnn" with tanh."""

    input_size: int
    hidden_size: int
    num_layers: int = 1
    bias: bool = True
    bidirectional: bool = False
    merge: str = "concat"
    share_directions: bool = False
    residual: bool = False
    go_backwards: bool = False
    learn_initial: bool = False


def one_direction(
    weights: Mapping[str, Array],
    x: Array,
    h0: Array,
    given: Array | None,
    lengths: Array,
    resets: Array | None,
    reverse: bool,
) -> tuple[Array, Array]:
    """y [T, B, H] and the final state [B, H] of one layer in one direction.

    h0: the state [H] where an episode begins; given: the state [B, H] before the first step.
    """
    (steps, rows), hidden = x.shape[:2], len(h0)
    y, final = np.zeros((steps, rows, hidden)), np.zeros((rows, hidden))
    for row in range(rows):
        n = int(lengths[row])
        h = h0 if given is None else given[row]
        if n and not reverse and resets is not None and resets[0, row]:
            h = h0
        for t in reversed(range(n)) if reverse else range(n):
            new_episode = resets is not None and (
                resets[t + 1, row] if reverse and t + 1 < n else not reverse and t and resets[t, row]
            )
            h = h0 if new_episode else h
            a = weights["weight_ih"] @ x[t, row] + weights["weight_hh"] @ h
            if "bias_ih" in weights:
                a = a + weights["bias_ih"] + weights["bias_hh"]
            h = y[t, row] = np.tanh(a)
        final[row] = h
    return y, final


def layers(
    o: Options,
    params: Mapping[str, Array],
    x: Array,
    state: Array | None,
    lengths: Array | None,
    resets: Array | None,
    masks: Mapping[int, Array] | None = None,
) -> tuple[Array, Array, dict[str, Array]]:
    """y [T, B, ...], the final state [L * D, B, H], and every layer's states at every step by name.
    masks: of dropout, by layer."""
    steps, rows = x.shape[:2]
    directions = [("", o.go_backwards), ("_reverse", True)][: 1 + o.bidirectional]
    lengths = np.full(rows, steps) if lengths is None else lengths
    finals, recorded = [], {}
    for depth in range(o.num_layers):
        read = x * masks[depth] if masks and depth else x
        sides = []
        for d, (suffix, reverse) in enumerate(directions):
            end = f"_l{depth}{suffix}"
            own = f"_l{depth}" if o.share_directions else end
            h0 = params[f"initial_h{end}"] if o.learn_initial else np.zeros(o.hidden_size)
            given = None if state is None else state[depth * len(directions) + d]
            weights = {n.removesuffix(own): params[n] for n in params if n.endswith(own)}
            y, final = one_direction(weights, read, h0, given, lengths, resets, reverse)
            sides.append(y)
            finals.append(final)
            recorded[f"h{end}"] = y
        match o.merge if o.bidirectional else "one":
            case "one":
                y = sides[0]
            case "concat":
                y = np.concatenate(sides, axis=-1)
            case "sum":
                y = sides[0] + sides[1]
            case "mean":
                y = (sides[0] + sides[1]) / 2
            case "product":
                y = sides[0] * sides[1]
        x = y + x if o.residual and depth else y
    return x, np.stack(finals), recorded
