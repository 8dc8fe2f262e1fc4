"""One step of one layer as a module: what torch.nn.LSTMCell is, for any cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from rnnspec.errors import ShapeError, UnsupportedError
from rnnspec.interop import torch_eager
from rnnspec.interop.torch_arguments import as_tensor, by_name
from rnnspec.interop.torch_calls import recurrent, states_given
from rnnspec.interop.torch_config import OPTIONS, check_backend, with_nonlinearity
from rnnspec.interop.torch_module import Weighted
from rnnspec.layers.description import Cell as AnyCell

OF_LAYERS = {"num_layers", "dropout", "bidirectional", "batch_first", *OPTIONS} - {"sizes", "memory"}
END = "_l0"
ONCE = (
    "the noise {names} of {cell!r} is drawn once a sequence, and a Cell knows one step of it alone: in training use"
    " Recurrent, whose call is a sequence. After .eval() a Cell has what is expected of it."
)


class Cell(Weighted):
    """One step of a cell, as torch.nn.LSTMCell, GRUCell and RNNCell are for one each: the same
    arguments, parameters (weight_ih, weight_hh, bias_ih, bias_hh) and results, so that state_dicts
    go both ways.

    spec: a name, a path to a YAML file, or a Spec. input_size, hidden_size, bias, device, dtype: as
    torch has them. proj_size, sizes, memory, threads, the cell's choices and constants, and
    nonlinearity: as for Recurrent. A cell without a torch layout has its own parameters (`W_i`);
    fixed ones are buffers.

    cell(input, hx) -> hx: input [B, D] or [D]; hx the state before the step, [B, H] or [H], a tuple
    of these where there are several (h, c), and None or entries of None for zeros. Of cells that
    count their steps it ends with the count, int64 [B]: (h, t). Returns the state after the step,
    of the same form; of a cell whose output is no state, (y, hx). Several inputs are a dict or a
    tuple. Gradients go through step by step. Raises ShapeError, DtypeError, and UnsupportedError in
    training for noise that is drawn once a sequence.
    """

    def __init__(
        self,
        spec: AnyCell,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        proj_size: int = 0,
        nonlinearity: str | None = None,
        backend: str = "cpu",
        threads: int | None = None,
        memory: str = "full",
        sizes: Mapping[str, int] | None = None,
        **settings: object,
    ):
        super().__init__()
        if unwanted := sorted(OF_LAYERS & settings.keys()):
            raise TypeError(f"{', '.join(unwanted)}: a Cell is one step of one layer; Recurrent takes these.")
        if isinstance(spec, list | tuple):
            raise TypeError("a Cell is of one cell; Recurrent takes a list, one for each layer.")
        given = {"input_size": input_size, "hidden_size": hidden_size, "bias": bias, "proj_size": proj_size}
        self.input_size, self.hidden_size, self.bias, self.threads = input_size, hidden_size, bias, threads
        check_backend(backend)
        chosen = with_nonlinearity(spec, settings, nonlinearity)
        more = {"memory": memory, "sizes": sizes}
        (layer,) = self._make(spec, given, more, chosen, 1, device, dtype, END).layers
        self._once = [n for n, how in layer.spec.noise.items() if how.per != "step"]
        self._axes = len(layer.spec.inputs[layer.main])  # of an input of one row
        # of most cells the output is a state, and torch's give the states alone
        self._emits = not set(layer.spec.outputs) <= set(layer.states)

    def extra_repr(self) -> str:
        ((name,), chosen), bias = self._settings["shown"], "" if self.bias else ", bias=False"
        settings = "".join(f", {n}={option!r}" for n, option in chosen.items())
        return f"{name!r}, {self.input_size}, {self.hidden_size}{bias}{settings}"

    def forward(self, input: Any, hx: Any = None) -> Any:
        if self.training and self._once:
            names = ", ".join(map(repr, self._once))
            raise UnsupportedError(ONCE.format(names=names, cell=self._settings["cells"][0]))
        if type(input) is Tensor and not (self.training and self.config.random) and torch_eager.unseen():
            found = self._past_the_dispatcher(input, hx)
            if found is not None:
                return found
        inputs, states = self._of_one_step(input, hx)
        outputs, after, *_ = recurrent(
            self.config, self.weights(), inputs, states, training=self.training, threads=self.threads
        )
        many = (y.select(0, 0) for y in outputs) if isinstance(outputs, tuple) else (outputs.select(0, 0),)
        return self._results(
            many, (s.select(0, 0) for s in after) if isinstance(after, tuple) else (after.select(0, 0),)
        )

    def _results(self, outputs: Iterable[Tensor], states: Iterable[Tensor]) -> Any:
        after = tuple(states)
        state = after[0] if len(after) == 1 else after
        if not self._emits:
            return state
        emitted = tuple(outputs)
        return emitted[0] if len(emitted) == 1 else emitted, state

    def _past_the_dispatcher(self, x: Tensor, hx: Any) -> Any:
        """The results, where they can be had without an operator; else None."""
        state: Any = states_given(hx, len(self.config.states))
        if state is None:
            return None
        single = x.dim() == self._axes
        if single:
            x, state = x.unsqueeze(0), [None if s is None else s.unsqueeze(0) for s in state]
        found = torch_eager.one_step(self.config, self.weights(), x, state, self.threads, alone=True)
        if found is None:
            return None
        outputs, states, _ = found
        if single:
            return self._results([y.select(0, 0) for y in outputs], [s.select(0, 0) for s in states])
        return self._results(outputs, states)

    def _of_one_step(self, input: Any, hx: Any) -> tuple[Any, Any]:
        """The arguments of a call of layers over one step; raises ShapeError."""
        known, needed = dict(self.config.inputs), list(self.config.required) or [n for n, _ in self.config.inputs]
        whole = isinstance(input, tuple) and len(input) == len(known)
        inputs = by_name(input, list(known) if whole else needed, "input", list(known))
        axes = {as_tensor(f"input {n!r}", t).dim() - len(known[n]) for n, t in inputs.items()}
        if not axes <= {0, 1} or len(axes) > 1:
            form = ", ".join(f"{n} [B{''.join(f', {s}' for s in known[n])}]" for n in inputs)
            got = ", ".join(str(tuple(t.shape)) for t in inputs.values())
            raise ShapeError(f"a Cell takes one step, {form}, or the same without B for one row; got {got}.")
        lead = next(iter(inputs.values())).shape[: max(axes, default=0)]
        given = {} if hx is None else by_name(hx, [n for n, _ in self.config.states], "state")
        for name, (_, *shape) in self.config.states:
            tensor, full = given.get(name), (*lead, *shape)
            if tensor is None or torch.jit.is_tracing():
                continue
            if tuple(as_tensor(f"state {name!r}", tensor).shape) != full:
                raise ShapeError(
                    f"state {name!r} must have shape {full}, that of one layer, without an axis of layers; got"
                    f" {tuple(tensor.shape)}."
                )
        states = tuple(None if given.get(n) is None else given[n].unsqueeze(0) for n, _ in self.config.states)
        return {n: t.unsqueeze(0) for n, t in inputs.items()}, None if hx is None else states
