"""Derivatives of the operators of torch_ops.py and torch_along.py, and their rules for what maps
and transforms them: autograd, torch.func, forward mode, vmap, batched gradients.

Each operator is an autograd.Function too, which torch.func's transforms and dual tensors need.
Their rules are these: the gradient of `forward` is `backward`, its direction `jvp`; both of
`backward` are parts of `hvp`, and so is the gradient of `jvp`. Imported for what it registers, by
interop/torch.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rnnspec.errors import UnsupportedError
from rnnspec.interop.torch_along import hvp, jvp, with_direction
from rnnspec.interop.torch_eager import plain_memory, unseen
from rnnspec.interop.torch_ops import (
    backward,
    chosen,
    differentiable,
    forward,
    gradients_by,
    has_duals,
    infer,
    split,
    stack_for,
    taped,
    values,
)
from rnnspec.interop.torch_vmap import backward_rows, mapped

THRICE = (
    "rnnspec has first and second derivatives: this is one of third order (as torch.autograd.functional.hvp is, and its"
    " vhp is not), or forward mode over forward mode (use torch.func.hessian, or jacfwd of jacrev). Write the cell with"
    " torch operations where more is needed."
)
EVALUATED = (
    "these layers were traced for evaluation and keep no tape, so there is no gradient. Export them in training mode"
    " (.train(), under which dropout and noise act) to train what was exported."
)
Args = Sequence[Any]  # of an operator: texts, numbers, tensors, lists of tensors
Grads = Sequence[Tensor | None]
PARAMS, INPUTS, STATES = 1, 2, 3  # where these stand among the arguments
SHARED = 9  # so many arguments all operators have: config, ..., seed


# --- the arguments of an operator, one after another


def _flat(args: Args) -> tuple[tuple[int, ...], list[Any]]:
    """The arguments with lists spread out, and the length of each list, -1 for what is none."""
    form = tuple(len(a) if isinstance(a, list | tuple) else -1 for a in args)
    return form, [x for a in args for x in (a if isinstance(a, list | tuple) else [a])]


def _nested(form: Sequence[int], flat: Sequence[Any]) -> list[Any]:
    """The arguments as they were."""
    left = iter(flat)
    return [[next(left) for _ in range(n)] if n >= 0 else next(left) for n in form]


def _remember(ctx: Any, args: Args, results: Sequence[Tensor] = ()) -> None:
    """Keeps the arguments, and results, for a rule."""
    ctx.set_materialize_grads(False)
    ctx.form, flat = _flat(args)
    ctx.others = [None if isinstance(a, Tensor) else a for a in flat]
    ctx.tensors = [isinstance(a, Tensor) for a in flat]
    tensors = [a for a in flat if isinstance(a, Tensor)]
    ctx.save_for_backward(*tensors, *results)
    ctx.save_for_forward(*tensors)


def _recalled(ctx: Any) -> tuple[list[Any], list[Tensor]]:
    """The arguments, and the results that were kept."""
    saved = list(ctx.saved_tensors)
    left = iter(saved)
    flat = [next(left) if is_tensor else other for is_tensor, other in zip(ctx.tensors, ctx.others)]
    return _nested(ctx.form, flat), list(left)


# --- rules


@dataclass(frozen=True)
class _Facts:
    """Which of the params and of the inputs have a gradient, which states do, and which of the
    values that layers give have a direction."""

    trained: list[bool]
    inputs: list[bool]
    states: list[bool]
    directed: list[bool]

    def spread(self, found: Sequence[Tensor]) -> list[Tensor | None]:
        """Gradients, as `backward` gives them, for each of params, inputs and states."""
        left = iter(found)
        return [next(left) if has else None for has in (*self.trained, *self.inputs, *self.states)]

    def count(self) -> int:
        return sum((*self.trained, *self.inputs, *self.states))

    def of_values(self, found: Sequence[Tensor]) -> list[Tensor | None]:
        """Directions, as `jvp` gives them, for each value."""
        left = iter(found)
        return [next(left) if has else None for has in self.directed]


def _facts(args: Args) -> _Facts:
    config, params, x, states, fed = args[:5]
    layers = stack_for(config, params, x).description
    return _Facts(
        [n not in layers.fixed for n in layers.shapes],
        [n in differentiable(layers, fed) for n in chosen(layers.inputs, fed)],
        [s.is_floating_point() for s in states],  # a count of steps has none
        with_direction(layers),
    )


def _present(tensors: Grads) -> tuple[list[Tensor], int]:
    """Those that there are, and a bit for each."""
    return [t for t in tensors if t is not None], sum(1 << i for i, t in enumerate(tensors) if t is not None)


def _moved(tensors: Grads) -> tuple[list[Tensor], list[int]]:
    """Directions that there are, and their places."""
    return [t for t in tensors if t is not None], [i for i, t in enumerate(tensors) if t is not None]


def _grouped(args: Args, each: Grads) -> list[Any]:
    """What there is for each of params, inputs and states, in the places of the arguments."""
    groups = split(each, [len(args[i]) for i in (PARAMS, INPUTS, STATES)])
    nothing = [[None] * len(a) if isinstance(a, list) else None for a in args]
    return [nothing[0], *groups[:3], *nothing[4:]]


def _gradient_of_forward(args: Args, kept: list[Tensor], grads: Grads, operator: Any) -> list[Any]:
    facts = _facts(args)
    dy, which = _present(grads[: len(facts.directed)])
    if not which:
        return _grouped(args, [None] * sum(len(args[i]) for i in (PARAMS, INPUTS, STATES)))
    return _grouped(args, facts.spread(operator(*args[:SHARED], kept, dy, which)))


def _direction_of_forward(args: Args, moved: list[Any]) -> list[Tensor | None]:
    found = _call(_Jvp, *args, *_moved(_each(moved)))
    return _facts(args).of_values(found)


def _gradient_of_backward(args: Args, _: list[Tensor], grads: Grads, __: Any) -> list[Any]:
    """The gradient of g = J' u by what J depends on is H v, that by u is J v."""
    facts, (dy, which) = _facts(args), args[SHARED + 1 :]
    each = facts.spread(grads)  # type: ignore[arg-type]
    found = _call(_Hvp, *args[:SHARED], 0, *_moved(each), dy, which, [], 0)
    by_value = facts.of_values(found[2 * facts.count() :])
    result = _grouped(args, facts.spread(found[: facts.count()]))
    result[SHARED + 1] = chosen(by_value, which)
    return result


def _direction_of_backward(args: Args, moved: list[Any]) -> list[Tensor | None]:
    facts, (dy, which), of_grads = _facts(args), args[SHARED + 1 :], moved[SHARED + 1]
    places = [i for i in range(len(facts.directed)) if which >> i & 1]
    of_values = dict(zip(places, of_grads, strict=True))
    along = _present([of_values.get(i) for i in range(len(facts.directed))])
    return list(_call(_Hvp, *args[:SHARED], 0, *_moved(_each(moved)), dy, which, *along)[: facts.count()])


def _gradient_of_jvp(args: Args, _: list[Tensor], grads: Grads, __: Any) -> list[Any]:
    """The gradient of w' J v by what J depends on is the direction of J' w, that by v is J' w."""
    facts, places = _facts(args), args[SHARED + 2]
    along = facts.of_values(grads)  # type: ignore[arg-type]
    found = _call(_Hvp, *args, *_present(along), [], 0)
    result = _grouped(args, facts.spread(found[: facts.count()]))
    own = facts.spread(found[facts.count() : 2 * facts.count()])
    result[SHARED + 1] = [own[i] for i in places]
    return result


def _each(moved: list[Any]) -> list[Tensor | None]:
    """The directions of params, inputs and states, one after another."""
    return [t for i in (PARAMS, INPUTS, STATES) for t in moved[i]]


def _refuse(text: str) -> Callable[..., Any]:
    def refuse(*_: Any) -> Any:
        raise UnsupportedError(text)

    return refuse


# --- autograd, of the operators themselves


def _keep(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    _remember(ctx, inputs, output[values(stack_for(*inputs[:3]).description) :])


def _keep_arguments(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    _remember(ctx, inputs)


def _by(rule: Callable[..., list[Any]]) -> Callable[[Any, Grads], tuple[Any, ...]]:
    def gradients(ctx: Any, grads: Grads) -> tuple[Any, ...]:
        args, kept = _recalled(ctx)
        duals = has_duals([g for g in grads if g is not None])
        operator = functools.partial(_call, _Backward) if duals else torch.ops.rnnspec.backward
        return tuple(rule(args, kept, grads, operator))

    return gradients


# without Dynamo, which after a break in a graph would trace into it, down to the making of a Stack
forward.register_autograd(_by(_gradient_of_forward), setup_context=torch._disable_dynamo(_keep))
backward.register_autograd(_by(_gradient_of_backward), setup_context=torch._disable_dynamo(_keep_arguments))
infer.register_autograd(_refuse(EVALUATED))
for _operator in (jvp, hvp, backward_rows):
    _operator.register_autograd(_refuse(THRICE))


# --- vmap, by torch_vmap.py


def _mapped(name: str) -> Callable[..., tuple[list[Tensor], list[int | None]]]:
    """The rule of an operator for torch.func.vmap."""

    def rule(info: Any, dims: Args, *args: Any) -> tuple[list[Tensor], list[int | None]]:
        return mapped(name, info.batch_size, dims, args, lambda n, *left: getattr(torch.ops.rnnspec, n)(*left))

    return rule


_OPERATORS = {"forward": forward, "infer": infer, "backward": backward, "jvp": jvp, "hvp": hvp}
_OPERATORS["backward_rows"] = backward_rows
for _name, _operator in _OPERATORS.items():
    _operator.register_vmap(_mapped(_name))


def _in_older_batches(operator: Any) -> Callable[..., list[Tensor]]:
    """An operator on the batched tensors of torch.autograd.grad(is_grads_batched=True) and of
    torch.autograd.functional's vectorize=True, which are not those of torch.func.vmap."""

    def rule(*args: Any) -> list[Tensor]:
        level = torch._C._vmapmode_increment_nesting() - 1
        torch._C._vmapmode_decrement_nesting()
        form, flat = _flat(args)
        # a tensor that is not of this level gets an axis of size 1
        spread = [torch._remove_batch_dim(a, level, 1, 0) if isinstance(a, Tensor) else a for a in flat]
        size = max(len(a) for a in spread if isinstance(a, Tensor))
        entries = [[a[i if len(a) > 1 else 0] if isinstance(a, Tensor) else a for a in spread] for i in range(size)]
        columns = zip(*(operator(*_nested(form, entry)) for entry in entries), strict=True)
        return [torch._add_batch_dim(torch.stack(column), 0, level) for column in columns]

    return rule


_LIBRARY = torch.library.Library("rnnspec", "IMPL", "Batched")
for _name in ("backward", "jvp", "hvp"):
    _LIBRARY.impl(_name, _in_older_batches(getattr(torch.ops.rnnspec, _name)))


# --- autograd.Functions: torch.func's transforms take no operator with a registered derivative, and
# forward mode none at all


def transformed(
    config: str,
    params: list[Tensor],
    inputs: list[Tensor],
    states: list[Tensor],
    fed: int,
    given: int,
    lengths: Tensor | None,
    resets: Tensor | None,
    seed: Tensor | None,
    threads: int,
) -> list[Tensor]:
    """`forward` under torch.func.grad, vjp, jvp and their like, and of dual tensors. Arguments are
    those of `forward`."""
    return _call(_Forward, config, params, inputs, states, fed, given, lengths, resets, seed, threads)


def _call(function: Any, *args: Any) -> list[Tensor]:
    form, flat = _flat(args)
    return list(function.apply(form, *flat))


def _function(
    name: str,
    gradient: Callable[..., list[Any]] | None,
    direction: Callable[..., list[Tensor | None]] | None,
) -> Any:
    """The autograd.Function of an operator, whose arguments are a form (`_flat`) and what it is
    the form of."""
    operator = getattr(torch.ops.rnnspec, name)
    with_tape = name == "forward"

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(form: Any, *flat: Any) -> tuple[Tensor, ...]:
            return tuple(operator(*_nested(form, flat)))

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            args = _nested(inputs[0], inputs[1:])
            first = values(stack_for(*args[:3]).description) if with_tape else len(output)
            _remember(ctx, args, output[first:])
            ctx.results = len(output)
            ctx.mark_non_differentiable(*(t for t in output if not t.is_floating_point()))

        @staticmethod
        def vmap(info: Any, dims: Any, form: Any, *flat: Any) -> tuple[tuple[Tensor, ...], tuple[int | None, ...]]:
            args, places = _nested(form, flat), _nested(form, dims[1:])
            found, axes = mapped(name, info.batch_size, places, args, lambda n, *left: _call(_FUNCTIONS[n], *left))
            return tuple(found), tuple(axes)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
            if gradient is None:
                raise UnsupportedError(THRICE)
            args, kept = _recalled(ctx)
            return None, *_flat(gradient(args, kept, grads, functools.partial(_call, _Backward)))[1]

        @staticmethod
        def jvp(ctx: Any, _: Any, *moved: Any) -> tuple[Tensor | None, ...]:
            if direction is None:
                raise UnsupportedError(THRICE)
            args, _kept = _recalled(ctx)
            found = direction(args, _nested(ctx.form, moved))
            return (*found, *[None] * (ctx.results - len(found)))

    Function.__name__ = f"rnnspec_{name}"
    return Function


class _Eager(torch.autograd.Function):
    """`forward` and its gradient past torch's dispatcher, whose way to an operator in Python takes
    some hundreds of microseconds. For `unseen` calls of plain tensors alone; what autograd saves
    is the same. Gradients that are differentiated, batched or seen by anything are the
    operator's."""

    @staticmethod
    def forward(ctx: Any, form: Any, *flat: Any) -> tuple[Tensor, ...]:  # type: ignore[override]
        args = _nested(form, flat)
        found = taped(*args)
        count = values(stack_for(*args[:3]).description)
        _remember(ctx, args, found[count:])
        ctx.mark_non_differentiable(*(t for t in found[:count] if not t.is_floating_point()))
        return tuple(found[:count])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        if torch.is_grad_enabled() or not unseen() or not all(g is None or plain_memory(g) for g in grads):
            return None, *_flat(_by(_gradient_of_forward)(ctx, grads))[1]
        args, kept = _recalled(ctx)
        return None, *_flat(_gradient_of_forward(args, kept, grads, gradients_by))[1]


def eager(*args: Any) -> list[Tensor]:
    """Outputs, final states and recorded values of `forward`, for `unseen` calls of plain
    tensors."""
    return _call(_Eager, *args)


_Forward = _function("forward", _gradient_of_forward, _direction_of_forward)
_Backward = _function("backward", _gradient_of_backward, _direction_of_backward)
_Jvp = _function("jvp", _gradient_of_jvp, None)
_Hvp = _function("hvp", None, None)
_FUNCTIONS = {"forward": _Forward, "backward": _Backward, "jvp": _Jvp, "hvp": _Hvp}
_FUNCTIONS["backward_rows"] = _function("backward_rows", None, None)
