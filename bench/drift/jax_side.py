"""Functions of JAX, run with our parameters in the place of their own, step after step."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.drift.comparison import Found, Given
from bench.drift.packing import number, packed


def tree(weights: Mapping[str, str], params: Mapping[str, Any], shapes: Mapping[str, Any]) -> dict[str, Any]:
    """A nested dict like `shapes`, a tree of arrays, of our parameters: weights names its leaves,
    a dot between the levels. KeyError where one is left over."""
    leaves = {".".join(str(k.key) for k in path): a for path, a in jax.tree_util.tree_leaves_with_path(shapes)}
    if set(leaves) != set(weights):
        raise KeyError(f"parameters {sorted(set(leaves) ^ set(weights))} are not in both the module and its weights")
    made: dict[str, Any] = {}
    for path, like in leaves.items():
        *above, last = path.split(".")
        at = made
        for name in above:
            at = at.setdefault(name, {})
        at[last] = array(weights[path], params, like)
    return made


def array(text: str, params: Mapping[str, Any], like: Any) -> Any:
    """One array as `packing` has it, of the shape of another."""
    value = number(text)
    return packed(text, params, _join).reshape(like.shape) if value is None else jnp.full_like(like, value)


def _join(parts: list[Any], axis: int) -> Any:
    return jnp.concatenate([jnp.atleast_1d(part) for part in parts], axis)


def replaced(module: Any, weights: Mapping[str, str], params: Mapping[str, Any]) -> Any:
    """A module that is a frozen dataclass, as Equinox has them, with ours in its fields."""
    changed = copy.copy(module)
    for name, text in weights.items():
        object.__setattr__(changed, name, array(text, params, getattr(module, name)))
    return changed


def over_time(step: Callable[[Any, Any], tuple[Any, Any]], state: Any, x: Any) -> tuple[Any, Any]:
    """step(x, state) -> (output, state), over x [T, B, ...]: outputs [T, B, ...], last state."""
    outputs = []
    for now in x:
        emitted, state = step(now, state)
        outputs.append(emitted)
    return jnp.stack(outputs), state


def evaluate(run: Callable[[Given], Found], given: Given, weigh: Callable[[Found], Any]) -> tuple[Found, Given]:
    """As `evaluate` of torch_side."""
    jax.config.update("jax_enable_x64", True)

    def weighed(groups: Any) -> tuple[Any, Any]:
        found = run(Given(*groups, given.sizes))
        return weigh(found), found

    groups = [{n: jnp.asarray(a) for n, a in group.items()} for group in given[:3]]
    gradients, found = jax.grad(weighed, has_aux=True)(groups)
    arrays = [{n: np.asarray(a) for n, a in group.items()} for group in gradients]
    return Found(*({n: np.asarray(a) for n, a in group.items()} for group in found)), Given(*arrays, given.sizes)


def constant(array: Any) -> Any:
    return jnp.asarray(array)
