"""Sequences that do not come at once: streams of single steps, and windows of a long one.

In: a module of layers, tensors. Out: tensors, step by step or window by window.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy import ndarray as Array
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from rnnspec.engine.arrays import check_lengths
from rnnspec.engine.stream import Written
from rnnspec.errors import UnsupportedError
from rnnspec.interop import torch_ops
from rnnspec.interop.torch_arguments import (
    as_tensor,
    autocast,
    by_name,
    check_tensors,
    inputs_of,
    time_first,
    weights_of,
)
from rnnspec.interop.torch_calls import run, seed_of, states_of
from rnnspec.interop.torch_config import dtype_name
from rnnspec.interop.torch_module import Weighted
from rnnspec.language.spec import STEP
from rnnspec.layers.arguments import check_resets, check_window
from rnnspec.layers.runs import Window
from rnnspec.layers.stream import StackStream

NO_GRADIENT = (
    "a stream keeps no tape, so no gradient would reach {what}: step it under torch.no_grad(). Where gradients are"
    " wanted call the layers, on windows or on one step with the state."
)
NO_PROGRAM = (
    "a stream holds its states itself, so a program that is traced, exported or transformed can't contain it: call the"
    " layers there, on one step, with the state as an argument."
)
TRAINING = (
    "a stream is evaluation, and in training mode dropout or noise would act in these layers: call .eval() before,"
    " or run the layers over windows."
)


class Stream:
    """The states of all layers for some rows, moved on by one step at a time: made by
    `layer.stream(rows=B)`.

    A step gives the numbers of the whole sequence at evaluation, bit by bit, and no gradient. The
    weights are those of when it was made, until `refresh`; threads and dtype too. One thread at a
    time may use a stream.
    """

    def __init__(self, layer: Weighted, hx: Any, rows: int):
        self._layer, self._config = layer, layer.config
        self._weights: Mapping[str, Tensor] = layer.weights()
        self._dtype = next((t.dtype for t in self._weights.values()), torch.get_default_dtype())
        arrays = self._arrays()
        threads = layer.threads or torch.get_num_threads()
        stack = torch_ops.stack_of(self._config.text, dtype_name(self._dtype), threads)
        if layer.training and self._config.random:
            raise ValueError(TRAINING)
        self._stream = StackStream(stack.description, stack.pack, lambda: arrays, self._state_of(hx), rows)

    def __repr__(self) -> str:
        return repr(self._stream).replace("StackStream", "Stream")

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "a Stream can't be copied or pickled: keep stream.state, and start another with layer.stream(state,"
            " rows=...)."
        )

    @torch.compiler.disable
    def step(self, input: Any) -> Any:
        """One step through all layers. input: [B, D], or as a call takes several inputs, a dict or
        a tuple; those with a default may be left out. Returns y [B, H], a tuple of several outputs.
        Under torch.autocast y has its dtype; states are always the layer's.

        Raises ShapeError and DtypeError, and nothing has changed then; UnsupportedError where a
        gradient would be lost, and in programs that are traced or transformed.
        """
        names = [n for n, _ in self._config.inputs]
        whole = isinstance(input, tuple) and len(input) == len(names)
        needed = list(self._config.required) or names
        given = by_name(input, names if whole else needed, "input", names)
        tensors = {n: as_tensor(f"input {n!r}", t) for n, t in given.items() if t is not None}
        _check_programs()
        if torch.is_grad_enabled():
            _check_gradients({**self._weights, **tensors})
        (tensors,), low = autocast(tensors)
        found = self._stream.step(self._read({f"input {n!r}": t for n, t in tensors.items()}, tensors))
        if isinstance(found, tuple):
            return tuple(_made(y, low) for y in found)
        return _made(found, low)

    @property
    def t(self) -> int:
        """How many steps were taken since the start, or the last `reset` of all rows."""
        return self._stream.t

    @property
    def counts(self) -> Tensor:
        """The number of each row's next step in each layer, int64 [L, B]."""
        return torch.from_numpy(self._stream.counts)

    @property
    def states(self) -> Mapping[str, Tensor]:
        """The states before the next step, [L, B, ...], by name ("h", "c"), and under "t" the count
        of steps where one is carried.

        The next step starts from these tensors: what is written to them before it counts. It leaves
        them as they are and makes others, as `reset` does: what is written to the old ones then is
        read by nobody.
        """
        return Written({n: torch.from_numpy(a) for n, a in self._stream.states.items()})

    @property
    def state(self) -> Any:
        """The tensors of `states` as a call of the layer takes and gives them: h, or (h, c)."""
        tensors = tuple(self.states.values())
        return tensors[0] if len(tensors) == 1 else tensors

    @property
    def recorded(self) -> dict[str, Tensor]:
        """The values of the last step that `return_all_states` asks for, name -> [B, ...]."""
        return {n: torch.from_numpy(a) for n, a in self._stream.recorded.items()}

    def refresh(self) -> None:
        """Goes on with the weights that the layer has now; the states stay as they are. Raises
        DtypeError for a layer that has another dtype than when the stream was made."""
        self._stream.refresh(self._arrays())

    def reset(self, hx: Any = None, *, rows: Any = None) -> None:
        """Starts again from a state, as a call takes it; what is left out is as it is initially,
        and the count of steps 0.

        rows: which rows do, the others go on: booleans [B], or the numbers of some rows [R]. Then
        states are [L, R, ...]. Raises ShapeError and DtypeError for tensors, ValueError for rows
        that there are not.
        """
        which = rows.detach().cpu().numpy() if isinstance(rows, Tensor) else rows
        self._stream.reset(self._state_of(hx), rows=which)

    def _arrays(self) -> dict[str, Array]:
        """The weights of the layer as they are now."""
        _check_programs()
        self._weights = weights_of(self._config, self._layer.weights())
        return self._read({f"weight {n!r}": t for n, t in self._weights.items()}, self._weights)

    def _state_of(self, hx: Any) -> tuple[Array | None, ...] | None:
        """A state of the caller's as arrays, as a StackStream takes it."""
        if hx is None:
            return None
        names = [n for n, _ in self._config.states]
        given = {n: as_tensor(f"state {n!r}", t) for n, t in by_name(hx, names, "state").items() if t is not None}
        if torch.is_grad_enabled():
            _check_gradients(given)
        (given,), _ = autocast(given)
        arrays = self._read({f"state {n!r}": t for n, t in given.items() if n != STEP}, given)
        return tuple(arrays.get(n) for n in names)

    def _read(self, called: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> dict[str, Array]:
        """Tensors as arrays, checked. called: those of the dtype of weights, as messages call
        them."""
        if called:
            check_tensors({"this stream": torch.empty(0, dtype=self._dtype)} | dict(called))
        return {n: torch_ops.array_of(t.resolve_neg()) for n, t in tensors.items()}


def _made(array: Array, dtype: torch.dtype | None) -> Tensor:
    tensor = torch.from_numpy(array)
    return tensor if dtype is None else tensor.to(dtype)


def _check_programs() -> None:
    """Raises UnsupportedError where a program would have the numbers of one step as constants."""
    if torch.jit.is_tracing() or torch._C._are_functorch_transforms_active() or torch.compiler.is_compiling():
        raise UnsupportedError(NO_PROGRAM)


def _check_gradients(tensors: Mapping[str, Tensor]) -> None:
    """Raises UnsupportedError where a gradient would be asked for."""
    if wanted := [n for n, t in tensors.items() if t.requires_grad]:
        more = "" if len(wanted) < 2 else f" and {len(wanted) - 1} others"
        raise UnsupportedError(NO_GRADIENT.format(what=f"{wanted[0]!r}{more}"))


def windows(
    layer: Weighted, batch_first: bool, input: Any, steps: int, hx: Any, lengths: Any, resets: Any
) -> Iterator[Window]:
    """Runs layers over a long sequence window by window. batch_first: of the layer; the other
    arguments: see `Recurrent.windows`."""
    config = layer.config
    if isinstance(input, PackedSequence):
        raise UnsupportedError(
            "windows of a PackedSequence: give the padded tensor and lengths (torch.nn.utils.rnn.pad_packed_sequence)."
        )
    inputs, single = inputs_of(config, input, batch_first)
    first = next(iter(inputs.values()))
    layers = torch_ops.stack_of(config.text, "float32", None).description
    steps, (total, rows) = check_window(layers, steps), first.shape[:2]
    ends = check_lengths(_numbers(lengths, single), total, rows)
    again = None if resets is None else time_first(torch.as_tensor(resets).clone(), single, batch_first)
    check_resets(None if again is None else again.numpy(), total, rows, batch_first and not single)
    states, drawn = states_of(config, hx, single), None
    for start in range(0, total, steps):
        part = slice(start, min(start + steps, total))
        seed = seed_of(config, layer.training)
        drawn = seed if drawn is None else drawn
        both = seed if seed is drawn or seed is None or drawn is None else torch.stack([seed, drawn])
        y, state, *recorded = run(
            config,
            layer.weights(),
            {n: t[part] for n, t in inputs.items()},
            states,
            None if ends is None else torch.from_numpy(np.clip(ends - start, 0, part.stop - start)),
            None if again is None else again[part],
            both,
            (single, batch_first),
            layer.threads,
            layer.training,
        )
        yield Window(part, y, state, *(recorded or [{}]))
        after = state if isinstance(state, tuple) else (state,)
        states = states_of(config, tuple(s.detach() for s in after), single)


def _numbers(lengths: Any, single: bool) -> Any:
    """Lengths as NumPy takes them: of one row without a batch axis a plain number will do."""
    array = lengths.detach().cpu().numpy() if isinstance(lengths, Tensor) else lengths
    return np.atleast_1d(array) if single and array is not None else array
