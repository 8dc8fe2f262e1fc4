"""What stands before and after the recurrent layer: an embedding of character ids, and a linear
layer to logits.

In and out: arrays and dicts of arrays of one dtype; nothing is cast. Gradients are summed over
steps and rows, in pieces: errors grow with the logarithm of their number at most.
"""

from __future__ import annotations

import numpy as np

from rnnspec.engine.arrays import outer_sum, row_sum
from rnnspec.train.compiled import add_rows, check_ids
from rnnspec.train.errors import TrainError

Params = dict[str, np.ndarray]


def init_embedding(rng: np.random.Generator, symbols: int, features: int, dtype: str = "float32") -> Params:
    """`weight` [V, E], normal with deviation 1, as torch.nn.Embedding has it."""
    return {"weight": rng.standard_normal((symbols, features)).astype(dtype)}


def embed(params: Params, ids: np.ndarray) -> np.ndarray:
    """Rows of the table: y[..., :] = weight[ids[...], :].

    ids [...] integers in [0, V): IndexError otherwise; returns [..., E].
    """
    check_ids(ids, len(params["weight"]))
    return params["weight"][ids]


def embed_backward(params: Params, ids: np.ndarray, dy: np.ndarray) -> Params:
    """Scatter-add: dweight[v, :] = sum of dy[..., :] over the places where ids == v.

    ids [...], dy [..., E]; returns {"weight": [V, E]}. Equal inputs give equal bits.
    """
    weight = params["weight"]  # [V, E]
    if dy.shape != (*ids.shape, weight.shape[1]):
        raise TrainError(
            f"the gradient of {list(ids.shape)} embedded ids of {weight.shape[1]} features has shape {list(dy.shape)}"
        )
    d_weight = np.zeros(weight.shape, weight.dtype)  # from calloc, where zeros_like writes every zero
    add_rows(d_weight, ids.reshape(-1), dy.reshape(ids.size, weight.shape[1]))
    return {"weight": d_weight}


def init_linear(rng: np.random.Generator, features: int, classes: int, dtype: str = "float32") -> Params:
    """`weight` [C, H] and `bias` [C], uniform in +-1/sqrt(H), as torch.nn.Linear has it."""
    bound = features**-0.5
    return {
        "weight": rng.uniform(-bound, bound, (classes, features)).astype(dtype),
        "bias": rng.uniform(-bound, bound, classes).astype(dtype),
    }


def linear(params: Params, y: np.ndarray) -> np.ndarray:
    """logits = y @ weight.T + bias: y [..., H] to [..., C]."""
    weight, bias = params["weight"], params["bias"]  # [C, H], [C]
    rows = y.reshape(-1, y.shape[-1])  # one product over all rows, not one for each step
    logits = rows @ weight.T
    logits += bias
    return logits.reshape(*y.shape[:-1], weight.shape[0])


def linear_backward(params: Params, y: np.ndarray, d_logits: np.ndarray) -> tuple[np.ndarray, Params]:
    """dy = dlogits @ weight, dweight = dlogits.T @ y, dbias = sum of dlogits.

    y [..., H] as given to `linear`, d_logits [..., C]; returns dy [..., H] and {"weight": [C, H],
    "bias": [C]}.
    """
    weight = params["weight"]  # [C, H]
    rows = y.reshape(-1, y.shape[-1])
    d_rows = d_logits.reshape(-1, weight.shape[0])
    d_y = (d_rows @ weight).reshape(y.shape)
    return d_y, {"weight": outer_sum(d_rows, rows), "bias": row_sum(d_rows)}


def softmax(logits: np.ndarray) -> np.ndarray:
    """exp(z_i) / sum_j exp(z_j) over the last axis, the largest taken off first: [..., C] to [...,
    C]."""
    p = np.exp(logits - logits.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    return p


def at_last(y: np.ndarray, lengths: np.ndarray | None) -> np.ndarray:
    """What each row has at its last valid step: y [T, B, H] to [B, H]. A row of length 0 gives its
    first step, which is zero."""
    return y[-1].copy() if lengths is None else y[np.maximum(np.asarray(lengths) - 1, 0), np.arange(y.shape[1])]


def at_last_backward(y: np.ndarray, lengths: np.ndarray | None, d_last: np.ndarray) -> np.ndarray:
    """The gradient of y [T, B, H] from that of `at_last(y, lengths)`."""
    d_y = np.zeros_like(y)
    if lengths is None:
        d_y[-1] = d_last
    else:
        d_y[np.maximum(np.asarray(lengths) - 1, 0), np.arange(y.shape[1])] = d_last
    return d_y
