"""Recurrent: a cell as a layer, with the conventions and weight names of torch.nn.LSTM."""
from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rnnspec.arrays import as_array
from rnnspec.errors import ShapeError, UnsupportedError
from rnnspec.kernel import Run, compile
from rnnspec.language.layouts import pack, pack_gradients, unpack
from rnnspec.language.sizes import evaluate_size, size_names, unit_size, with_default_sizes
from rnnspec.language.spec import Shape, Spec

Array = np.ndarray


class Recurrent:
    """One layer of a cell over a sequence, in NumPy.

    cell: a name, a path to a YAML file, or a Spec. input_size, hidden_size, proj_size (cells with a projection, size P),
    bias, batch_first, dtype ("float32", "float64"), threads, memory ("full", "low"): as in torch.nn.LSTM and `compile`. seed: of the initial
    weights. Keywords beyond these are the cell's choices and constants, as for `load`; `sizes` gives sizes that
    input_size and hidden_size do not tell.

    `params` are the weights, by torch's names where the cell has a torch layout (weight_ih_l0, ...), else by the cell's
    own; change them in place or assign new arrays, the next call uses them. `grads` has the same names after `backward`.

    layer(x, state, lengths) -> y, state; x [T, B, D] ([B, T, D] with batch_first, or [T, D] for one row), y [T, B, H];
    a state is [1, B, H], for a cell with several a tuple in the order of the spec. Raises ValueError or TypeError for
    arguments out of range, ShapeError and DtypeError for arrays that do not fit.
    """

    def __init__(self, cell: str | os.PathLike[str] | Spec, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
                 batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, *,
                 dtype: str = "float32", threads: int | None = None, memory: str = "full",
                 seed: int = 0, sizes: Mapping[str, int] | None = None, **settings: Any):
        _whole("input_size", input_size)
        _whole("hidden_size", hidden_size)
        _whole("num_layers", num_layers)
        for name, value in (("bias", bias), ("batch_first", batch_first), ("bidirectional", bidirectional)):
            if not isinstance(value, bool | np.bool_):
                raise TypeError(f"{name} must be True or False, got {value!r}.")
        _one_layer_only(num_layers, dropout, bidirectional)
        self.kernel = compile(cell, dtype=dtype, threads=threads, memory=memory, **settings)
        self.spec = self.kernel.spec
        self.sizes = _sizes(self.spec, input_size, hidden_size, proj_size, sizes or {})
        self.input_size, self.hidden_size, self.batch_first, self.bias = input_size, hidden_size, batch_first, bias
        self._layout = next((name for name in self.spec.layouts if name.startswith("torch.")), None)
        values = self.kernel.init(seed=seed, **self.sizes)
        self._biases = bias_names(self.spec)
        if not bias:
            values |= {b: np.zeros_like(values[b]) for b in self._biases}
        self.params: dict[str, Array] = self._without_bias(self._packed(values))
        self._shapes = {name: array.shape for name, array in self.params.items()}
        self.grads: dict[str, Array] = {}
        self._run: tuple[Run, bool, tuple[str, ...]] | None = None

    def __repr__(self) -> str:
        return f"Recurrent({self.spec.name!r}, {self.input_size}, {self.hidden_size}, dtype={str(self.kernel.dtype)!r})"

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: the weights, not the tape of the last call."""
        return self.__dict__ | {"_run": None}

    @property
    def output_size(self) -> int:
        """The width of y."""
        return sum(self._width(self.spec.shapes[o]) for o in self.spec.outputs)

    def __call__(self, x: Any, state: Any = None, lengths: Any = None) -> tuple[Any, Any]:
        """Runs a sequence and keeps the tape for `backward`."""
        inputs, single = self._inputs(x)
        run = self.kernel.forward(self._unpacked(), inputs, self._states_in(state, single, inputs), lengths)
        self._run = (run, single, tuple(inputs))
        return self._outputs(run.outputs, single), self._states_out(run.final, single)

    def infer(self, x: Any, state: Any = None, lengths: Any = None) -> tuple[Any, Any]:
        """The same without a tape."""
        inputs, single = self._inputs(x)
        run = self.kernel.infer(self._unpacked(), inputs, self._states_in(state, single, inputs), lengths)
        return self._outputs(run.outputs, single), self._states_out(run.final, single)

    def backward(self, dy: Any = None, dstate: Any = None) -> tuple[Any, Any]:
        """Gradients of the last call, from those of y and of the final state (either may be None).

        Returns dx and the gradient of the state before the first step, and fills `grads` (not adding to what was there).
        """
        if self._run is None:
            raise RuntimeError("backward needs a call first: layer(x, ...) keeps the tape, layer.infer(x, ...) does not.")
        run, single, given = self._run
        outputs = {} if dy is None else {o: self._time_first(as_array("dy", a, self.kernel.dtype), single)
                                         for o, a in zip(self.spec.outputs, self._as_many(dy, list(self.spec.outputs), "dy"))}
        gradients = self.kernel.backward(run, outputs, final=self._states_in(dstate, single, None, "dstate"))
        self.grads = self._without_bias(self._packed(gradients.params, pack_gradients))
        inputs = {i: self._as_given(a, single) for i, a in gradients.inputs.items() if i in given}
        return next(iter(inputs.values())) if len(inputs) == 1 else inputs, self._states_out(gradients.states, single)

    def state_dict(self) -> dict[str, Array]:
        """Copies of the weights by name."""
        return {name: array.copy() for name, array in self.params.items()}

    def load_state_dict(self, weights: Mapping[str, Any]) -> None:
        """Replaces all weights. Raises ShapeError naming every missing, unexpected and misshapen one."""
        if not isinstance(weights, Mapping):
            raise TypeError(f"load_state_dict takes a dict of arrays by name, as state_dict() gives; got {type(weights).__name__}.")
        wrong = [f"missing {n!r}" for n in self.params if n not in weights] + [f"unexpected {n!r}" for n in weights if n not in self.params]
        arrays = {n: as_array(f"weight {n!r}", weights[n], self.kernel.dtype) for n in self.params if n in weights}
        wrong += [f"{n!r} has shape {a.shape}, expected {self.params[n].shape}" for n, a in arrays.items() if a.shape != self.params[n].shape]
        if wrong:
            raise ShapeError("; ".join(wrong) + ".")
        for name, array in arrays.items():
            self.params[name] = array.copy()

    # --- weights

    def _packed(self, values: Mapping[str, Array], how: Callable[[Spec, str, Mapping[str, Array]], Mapping[str, Array]] = pack) -> dict[str, Array]:
        if self._layout is None:
            return dict(values)
        return {f"{block}_l0": np.ascontiguousarray(a) for block, a in how(self.spec, self._layout, values).items()}

    def _unpacked(self) -> dict[str, Array]:
        wrong = [f"missing {n!r}" for n in self._shapes if n not in self.params] + [f"unexpected {n!r}" for n in self.params if n not in self._shapes]
        for name, array in self.params.items():
            actual = as_array(f"weight {name!r}", array, self.kernel.dtype).shape
            if actual != self._shapes.get(name, actual):
                wrong.append(f"{name!r} has shape {actual}, expected {self._shapes[name]}")
        if wrong:
            raise ShapeError(f"params: {'; '.join(wrong)}.")
        if self._layout is None:
            zeros = {} if self.bias else {b: np.zeros(self._full(self.spec.parameters[b]), self.kernel.dtype) for b in self._biases}
            return zeros | dict(self.params)
        blocks = {n.removesuffix("_l0"): a for n, a in self.params.items()}
        if not self.bias:
            blocks |= {b: np.zeros(sum(self._full(self.spec.parameters[p])[0] for p in names), self.kernel.dtype)
                       for b, names in self.spec.layouts[self._layout].items() if set(names) <= set(self._biases)}
        return unpack(self.spec, self._layout, blocks)

    def _without_bias(self, named: dict[str, Array]) -> dict[str, Array]:
        if self.bias:
            return named
        if self._layout is None:
            return {n: a for n, a in named.items() if n not in self._biases}
        layout = self.spec.layouts[self._layout]
        return {n: a for n, a in named.items() if not set(layout.get(n.removesuffix("_l0"), ("",))) <= set(self._biases)}

    # --- arrays in and out

    def _inputs(self, x: Any) -> tuple[dict[str, Array], bool]:
        """Inputs by name, time first, and whether they came without a batch axis."""
        names = list(self.spec.inputs)
        needed = [n for n in names if n not in self.spec.defaults]
        expected = names if isinstance(x, tuple) and len(x) == len(names) else needed  # what has a default may be left out
        given = dict(x) if isinstance(x, Mapping) else dict(zip(expected, self._as_many(x, expected, "x")))
        if unknown := [n for n in given if n not in names]:
            raise ShapeError(f"unknown input {', '.join(map(repr, unknown))}. This cell has: {', '.join(names)}.")
        found: dict[str, Array] = {}
        single: bool | None = None
        for name, array in given.items():
            shape = self.spec.inputs[name]
            value = as_array(f"input {name!r}", array, self.kernel.dtype)
            rank = len(shape) + 2
            if value.ndim not in (rank, rank - 1):
                raise ShapeError(f"input {name!r} must have {rank} axes ({'B, T' if self.batch_first else 'T, B'}, features), or {rank - 1} "
                                 f"for one row without a batch; got shape {value.shape}.")
            if single not in (None, value.ndim == rank - 1):
                raise ShapeError(f"some inputs have a batch axis and some have none: {name!r} has shape {value.shape}.")
            single = value.ndim == rank - 1
            if shape and value.shape[-1] != self._width(shape):
                raise ShapeError(f"input {name!r} has {value.shape[-1]} features, expected {self._width(shape)}; its shape is {value.shape}.")
            found[name] = self._time_first(value, single)
        return found, bool(single)

    @staticmethod
    def _as_many(value: Any, names: list[str], what: str) -> tuple[Any, ...]:
        """The arrays of a tuple, or a single one; as many as there are names."""
        given = value if isinstance(value, tuple) else (value,)
        if len(given) != len(names):
            raise ShapeError(f"{what} must be {_described(names)}; got {len(given)} array{'s' * (len(given) != 1)}.")
        return given

    def _time_first(self, array: Array, single: bool) -> Array:
        return array[:, None] if single else np.swapaxes(array, 0, 1) if self.batch_first else array

    def _as_given(self, array: Array, single: bool) -> Array:
        return array[:, 0] if single else np.swapaxes(array, 0, 1) if self.batch_first else array

    def _outputs(self, outputs: Mapping[str, Array], single: bool) -> Any:
        ready = tuple(self._as_given(outputs[o], single) for o in self.spec.outputs)
        return ready[0] if len(ready) == 1 else ready

    def _states_in(self, state: Any, single: bool, inputs: Mapping[str, Array] | None, what: str = "state") -> dict[str, Array] | None:
        if state is None:
            return None
        names = list(self.kernel.states)
        if isinstance(state, Mapping):
            raise ShapeError(f"{what} must be {_described(names)}, not a dict.")
        given = state if isinstance(state, tuple | list) else (state,)
        if len(given) != len(names):
            raise ShapeError(f"{what} must be {_described(names)}; got {len(given)} array{'s' * (len(given) != 1)}.")
        rows = next(iter(inputs.values())).shape[1] if inputs else self._run[0].rows if self._run else 0
        found = {}
        for name, array in zip(names, given):
            if array is None:
                continue
            value = as_array(f"{what} {name!r}", array, self.kernel.dtype)
            expected = (1, *(() if single else (rows,)), *self._full(self.kernel.states[name]))
            if value.shape != expected:
                raise ShapeError(f"{what} {name!r} must have shape {expected}, got {value.shape}.")
            found[name] = value if single else value[0]
        return found

    def _states_out(self, states: Mapping[str, Array], single: bool) -> Any:
        ready = tuple(states[s] if single else states[s][None] for s in self.kernel.states)
        return ready[0] if len(ready) == 1 else ready

    def _full(self, shape: Shape) -> tuple[int, ...]:
        return tuple(evaluate_size(s, self.sizes) for s in shape)

    def _width(self, shape: Shape) -> int:
        return self._full(shape)[0] if shape else 1


def bias_names(spec: Spec) -> tuple[str, ...]:
    """The biases of a cell: vector parameters that occur only as a term of a sum."""
    from rnnspec.language.equations import Binary, Ref, Unary, walk

    vectors = {n for n, shape in spec.parameters.items() if len(shape) == 1}
    uses = dict.fromkeys(vectors, 0)
    terms = dict.fromkeys(vectors, 0)
    for equation in spec.equations:
        for node in walk(equation.value):
            match node:
                case Ref(name) if name in vectors:
                    uses[name] += 1
                case Binary("+" | "-", left, right):
                    for side in (left, right):
                        inner = side.arg if isinstance(side, Unary) else side
                        if isinstance(inner, Ref) and inner.name in vectors:
                            terms[inner.name] += 1
    return tuple(n for n in spec.parameters if n in vectors and uses[n] and uses[n] == terms[n])


def _sizes(spec: Spec, input_size: int, hidden_size: int, proj_size: int, more: Mapping[str, int]) -> dict[str, int]:
    """The value of every size of the cell."""
    if not isinstance(more, Mapping):
        raise TypeError(f"sizes must be a dict of whole numbers by size name, got {more!r}.")
    known = {n for shape in spec.shapes.values() for s in shape for n in size_names(s)}
    for name, value in more.items():
        if name not in known:
            raise ValueError(f"the cell {spec.name!r} has no size {name!r}; it has {', '.join(sorted(known))}.")
        _whole(f"sizes[{name!r}]", value)
    sizes = dict(more)
    first = next(iter(spec.inputs.values()), ())
    if first and first[0].isidentifier():
        _tell(sizes, first[0], input_size, "input_size")
    hidden = unit_size(spec)
    if hidden is not None:
        _tell(sizes, hidden, hidden_size, "hidden_size")
    if proj_size:
        if "P" not in {n for shape in spec.parameters.values() for s in shape for n in size_names(s)}:
            raise ValueError(f"proj_size: the cell {spec.name!r} has no projection (size P); 'lstm_projected' has one.")
        _whole("proj_size", proj_size)
        if proj_size >= hidden_size:
            raise ValueError(f"proj_size must be smaller than hidden_size ({hidden_size}), got {proj_size}.")
        sizes["P"] = proj_size
    sizes = with_default_sizes(spec.sizes, sizes)
    missing = sorted({n for shape in spec.shapes.values() for s in shape for n in size_names(s)} - set(sizes))
    if missing:
        hint = "give proj_size, or sizes={'P': ...}" if missing == ["P"] else f"give sizes={{{', '.join(f'{m!r}: ...' for m in missing)}}}"
        many = "s" * (len(missing) > 1)
        raise ValueError(f"the cell {spec.name!r} has the size{many} {', '.join(missing)} that input_size and hidden_size do not tell: {hint}.")
    return sizes


def _tell(sizes: dict[str, int], name: str, value: int, argument: str) -> None:
    if sizes.setdefault(name, value) != value:
        raise ValueError(f"sizes[{name!r}] is {sizes[name]}, but {argument} says {value}.")


def _whole(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be a whole number, got {value!r}.")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}.")


def _one_layer_only(num_layers: int, dropout: float, bidirectional: bool) -> None:
    if isinstance(dropout, bool) or not isinstance(dropout, int | float) or not 0.0 <= dropout <= 1.0:
        raise ValueError(f"dropout must be a probability between 0 and 1, got {dropout!r}.")
    if num_layers != 1 or bidirectional or dropout:
        raise UnsupportedError("num_layers > 1, dropout between layers and bidirectional are not supported yet. Stack layers by giving the y of one "
                               "to the next; for the other direction give x[::-1] and turn y around.")


def _described(names: list[str]) -> str:
    return f"one array ({names[0]})" if len(names) == 1 else f"a tuple of {len(names)} arrays ({', '.join(names)})"
