"""The rows of array_arguments.py about training."""

from __future__ import annotations

import numpy as np
from array_rows import Row, flat

from rnnspec.train import clip, compiled, heads, losses, optimise

T, B, H = 5, 3, 7
_RNG = np.random.default_rng(1)


def _random(*shape: int) -> np.ndarray:
    return _RNG.uniform(-1, 1, shape)


DY, LENGTHS, RESETS = _random(T, B, H), np.array([5, 0, 2]), _RNG.random((T, B)) < 0.3
IDS, BIG = np.array([[1, 0, 5], [5, 5, 2]]), 300
PARAMS, GRADS = {"a": _random(BIG), "b": _random(6, 3)}, {"a": _random(BIG), "b": _random(6, 3)}
TABLE, LINEAR = {"weight": _random(6, 3)}, {"weight": _random(2, H), "bias": _random(2)}
LABELS = np.array([[0, 3, 6]] * T)
FOUR = tuple([a.copy() for a in g.values()] for g in (PARAMS, GRADS, PARAMS, GRADS))
FOUR = (*FOUR[:3], [np.abs(a) for a in FOUR[3]])
LAST = {"y": DY, "lengths": LENGTHS}
OF_LOSS = {"outputs": DY, "targets": DY[::-1].copy(), "lengths": LENGTHS}
TOKENS = {"logits": DY, "labels": LABELS}
VALID = RESETS


def _step_of(optimiser):
    def run(given, meanwhile):
        optimiser.step(**given)
        return flat([given["params"], given["state"]])

    return run


def _plain(function, **fixed):
    return lambda given, _: flat([function(**given, **fixed)])


def _in_place(function, what, **fixed):
    def run(given, meanwhile):
        return flat([function(**given, **fixed), given[what]])

    return run


def _adam(given, meanwhile):
    compiled.adam(list(zip(*given["arrays"], strict=True)), (0.1, 0.9, 0.1, 1e-8, 0.01, 1.0), 1)
    return flat(given["arrays"])


def _optimiser_rows() -> list[Row]:
    rows = []
    for kind in (optimise.SGD(0.1, 0.9), optimise.Adam(), optimise.AdamW()):
        given = {"params": PARAMS, "grads": GRADS, "state": kind.init(PARAMS)}
        rows += [
            Row(f"{type(kind).__name__}.step", type(kind).step, given, _step_of(kind), ("params", "state")),
            Row(f"{type(kind).__name__}.init", type(kind).init, {"params": PARAMS}, _plain(kind.init)),
        ]
    return rows


def _compiled_rows() -> list[Row]:
    return [
        Row("adam", compiled.adam, {"arrays": FOUR}, _adam, ("arrays",)),
        Row(
            "check",
            compiled.check,
            {"arrays": FOUR},
            lambda given, _: flat(compiled.check(list(zip(*given["arrays"], strict=True)))),
            ("arrays",),
        ),
        Row("sum_of_squares", compiled.sum_of_squares, {"array": DY}, _plain(compiled.sum_of_squares)),
        Row(
            "add_rows",
            compiled.add_rows,
            {"table": _random(6, 3), "ids": IDS.reshape(-1), "rows": _random(6, 3)},
            _in_place(compiled.add_rows, "table"),
            ("table",),
        ),
    ]


def _head_rows() -> list[Row]:
    return [
        Row("check_ids", compiled.check_ids, {"ids": IDS}, _plain(compiled.check_ids, count=6)),
        Row("embed", heads.embed, {"params": TABLE, "ids": IDS}, _plain(heads.embed)),
        Row(
            "embed_backward",
            heads.embed_backward,
            {"params": TABLE, "ids": IDS, "dy": _random(2, 3, 3)},
            _plain(heads.embed_backward),
        ),
        Row("linear", heads.linear, {"params": LINEAR, "y": DY}, _plain(heads.linear)),
        Row(
            "linear_backward",
            heads.linear_backward,
            {"params": LINEAR, "y": DY, "d_logits": _random(T, B, 2)},
            _plain(heads.linear_backward),
        ),
    ]


def _loss_rows() -> list[Row]:
    return [
        Row("softmax", heads.softmax, {"logits": DY}, _plain(heads.softmax)),
        Row("at_last", heads.at_last, LAST, _plain(heads.at_last)),
        Row("at_last_backward", heads.at_last_backward, LAST | {"d_last": DY[0]}, _plain(heads.at_last_backward)),
        Row("cross_entropy", losses.cross_entropy, TOKENS | {"lengths": LENGTHS}, _plain(losses.cross_entropy)),
        Row("squared_error", losses.squared_error, OF_LOSS, _plain(losses.squared_error)),
    ]


def _token_rows() -> list[Row]:
    return [
        Row("token_cross_entropy", losses.token_cross_entropy, TOKENS, _plain(losses.token_cross_entropy)),
        Row("token_losses", losses.token_losses, TOKENS, _plain(losses.token_losses)),
        Row(
            "reduced",
            losses.reduced,
            {"losses": DY[..., 0], "gradients": DY, "valid": VALID},
            _plain(losses.reduced, reduction="steps"),
            ("gradients",),
        ),
        Row(
            "weighted",
            losses.weighted,
            {"losses": DY[..., 0], "valid": VALID},
            _plain(losses.weighted, reduction="last"),
        ),
        Row("within", losses.within, {"lengths": LENGTHS, "valid": VALID}, _plain(losses.within)),
        Row("length_mask", losses.length_mask, {"lengths": LENGTHS}, _plain(losses.length_mask, steps=T, rows=B)),
        Row(
            "check_labels",
            losses.check_labels,
            {"labels": LABELS, "valid": VALID},
            _plain(losses.check_labels, classes=H),
        ),
    ]


def _clip_rows() -> list[Row]:
    return [
        Row("global_norm", clip.global_norm, {"grads": GRADS}, _plain(clip.global_norm)),
        Row(
            "clip_global_norm",
            clip.clip_global_norm,
            {"grads": GRADS},
            _in_place(clip.clip_global_norm, "grads", theta=0.5),
            ("grads",),
        ),
        Row(
            "clip_value", clip.clip_value, {"grads": GRADS}, _in_place(clip.clip_value, "grads", bound=0.5), ("grads",)
        ),
        Row("not_finite", clip.not_finite, {"grads": GRADS}, lambda given, _: [len(clip.not_finite(**given))]),
    ]


def train_rows() -> list[Row]:
    """All of them."""
    made = (_optimiser_rows, _compiled_rows, _head_rows, _loss_rows, _token_rows, _clip_rows)
    return [row for rows in made for row in rows()]
