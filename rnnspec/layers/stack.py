"""Layers of cells over a sequence, as pure functions of arrays: no weights are held here, and
nothing is remembered.

A Stack says what the layers are. `forward(params, x, ...)` gives a StackRun that keeps the tapes,
`backward(run, ...)` the gradients, `infer` runs without tapes. Time comes first: [T, B, ...].
`Recurrent` is this with weights, and with the conventions of torch.nn.LSTM.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.engine.arrays import as_array, as_resets, check_lengths
from rnnspec.engine.compile import compile
from rnnspec.engine.kernel import Kernel
from rnnspec.engine.noise import Seed, seeds
from rnnspec.engine.spans import cut
from rnnspec.engine.weights import Weights
from rnnspec.errors import DtypeError, ShapeError
from rnnspec.language.load import load
from rnnspec.language.spec import Spec
from rnnspec.language.syntax.faults import did_you_mean
from rnnspec.layers import backward, forward
from rnnspec.layers import tapes as kept
from rnnspec.layers.layer import Full, Layer
from rnnspec.layers.runs import Direction, StackGradients, StackRun, StackWeights
from rnnspec.layers.sizes import check_projection, check_sizes, layer_sizes, whole

Cell = str | os.PathLike[str] | Spec
MERGES = ("concat", "sum", "mean", "product")


class Stack:
    """What the layers are. Arguments as for `Recurrent`; they are kept under their names, checked.

    layers: a Layer for each; directions: of each layer; shapes: every weight, name -> shape, in
    torch's order; states: what is carried, name -> shape for one row, axis 0 layers and directions
    ([L * D, ...]; of layers with different states there is one name for each layer, as h_l0, with
    axis 0 the directions); outputs: name -> shape of a step; steps: the recorded values, name ->
    shape of a step; inputs: what the caller feeds, name -> shape of a step; required: those of them
    that have no default.
    """

    def __init__(
        self,
        cell: Cell | Sequence[Cell],
        input_size: int,
        hidden_size: int,
        num_layers: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        *,
        merge: str = "concat",
        share_directions: bool = False,
        residual: bool = False,
        go_backwards: bool = False,
        learn_initial: bool = False,
        return_all_states: bool | Sequence[str] = False,
        dtype: str = "float32",
        backend: str = "cpu",
        threads: int | None = None,
        memory: str = "full",
        sizes: Mapping[str, int] | None = None,
        **settings: Any,
    ):
        whole("input_size", input_size)
        whole("hidden_size", hidden_size)
        flags = {
            "bias": bias,
            "bidirectional": bidirectional,
            "share_directions": share_directions,
            "residual": residual,
            "go_backwards": go_backwards,
            "learn_initial": learn_initial,
        }
        for name, flag in flags.items():
            if not isinstance(flag, bool | np.bool_):
                raise TypeError(f"{name} must be True or False, got {flag!r}.")
        specs = _specs(cell, num_layers, settings)
        _check_options(len(specs), dropout, merge, flags)
        self.input_size, self.hidden_size, self.num_layers, self.bias = input_size, hidden_size, len(specs), bool(bias)
        self.dropout, self.merge, self.share_directions, self.residual, self.learn_initial = (
            dropout,
            merge,
            share_directions,
            residual,
            learn_initial,
        )
        self.directions = (Direction("", bool(go_backwards)), Direction("_reverse", True))[: 1 + bool(bidirectional)]
        self.recorded = _recorded(return_all_states, specs)
        self.emitted = [spec.outputs for spec in specs]
        kernels = _kernels(specs, self.recorded, dtype=dtype, backend=backend, threads=threads, memory=memory)
        self.dtype, self.memory = kernels[0].dtype, memory
        check_sizes({} if sizes is None else sizes, specs)
        check_projection(proj_size, hidden_size, specs)
        self.layers, self.widths = self._layers(specs, kernels, proj_size, sizes or {})
        self.inputs = {self.layers[0].main: self.layers[0].full(specs[0].inputs[self.layers[0].main])}
        self.required, self.clashing = {self.layers[0].main} - self.layers[0].spec.defaults.keys(), dict[str, str]()
        for depth, layer in enumerate(self.layers):
            self._other_inputs(depth, layer)

    def _layers(
        self, specs: list[Spec], kernels: list[Kernel], proj_size: int, sizes: Mapping[str, int]
    ) -> tuple[tuple[Layer, ...], tuple[Full, ...]]:
        layers: list[Layer] = []
        widths: list[Full] = []
        for depth, (spec, kernel) in enumerate(zip(specs, kernels)):
            if not spec.streams:
                raise ValueError(
                    f"the cell {spec.name!r} has no input, so nothing tells how many steps a layer of it takes: use"
                    " rnnspec.compile."
                )
            below = (self.input_size,) if not depth else widths[-1]
            if len(below) > 1 or (depth and len(below) != len(next(iter(spec.streams.values())))):
                raise ValueError(
                    f"layer {depth - 1} gives arrays of shape {below} a step, which the cell {spec.name!r} can't read."
                )
            own = layer_sizes(spec, below[0] if below else 1, self.hidden_size, proj_size, sizes, depth)
            layers.append(Layer(kernel, own, self.bias))
            widths.append(self._merged(next(iter(layers[-1].outputs.values()))))
            if self.residual and depth and below != widths[-1]:
                raise ValueError(
                    f"residual: layer {depth} reads {below[0]} features and gives {widths[-1][0]}, so they can't be"
                    " added."
                )
        return tuple(layers), tuple(widths)

    def _other_inputs(self, depth: int, layer: Layer) -> None:
        """Files the inputs that a layer reads beside the first. One that has a default may be read
        in different shapes: then it can't be given."""
        for name in layer.others:
            shape = layer.full(layer.spec.inputs[name])
            if name not in layer.spec.defaults:
                self.required.add(name)
            if self.inputs.setdefault(name, shape) != shape:
                self.clashing[name] = (
                    f"input {name!r} has shape {self.inputs[name]} a step, but layer {depth} reads it as {shape}"
                )
                if name in self.required:
                    raise ValueError(f"{self.clashing[name]}.")

    def _merged(self, shape: Full) -> Full:
        if len(self.directions) == 1 or self.merge != "concat":
            return shape
        if len(shape) != 1:
            raise ValueError(
                f"merge='concat' joins vectors, and the output of this cell has shape {shape} a step: choose 'sum',"
                " 'mean' or 'product'."
            )
        return (2 * shape[0],)

    # --- what there is, by name

    def suffix(self, depth: int, direction: int) -> str:
        """The end of names: _l0, _l0_reverse, _l1, ..."""
        return f"_l{depth}{self.directions[direction].suffix}"

    @cached_property
    def shapes(self) -> dict[str, Full]:
        found: dict[str, Full] = {}
        for depth, direction in self.places():
            layer, end = self.layers[depth], self.suffix(depth, direction)
            own = {} if self.share_directions and direction else {f"{n}{end}": s for n, s in layer.shapes.items()}
            if self.learn_initial:
                own |= {f"initial_{n}{end}": s for n, s in layer.states.items()}
            if twice := own.keys() & found.keys():
                raise ValueError(
                    f"two weights would be called {', '.join(sorted(twice))}: rename a parameter of"
                    f" {layer.spec.name!r}."
                )
            found |= own
        return found

    def places(self) -> list[tuple[int, int]]:
        """Every (layer, direction), in the order of states and weights."""
        return [(depth, d) for depth in range(self.num_layers) for d in range(len(self.directions))]

    @cached_property
    def states(self) -> dict[str, Full]:
        first = self.layers[0].states
        if all(layer.states == first and list(layer.states) == list(first) for layer in self.layers):
            return {name: (self.num_layers * len(self.directions), *shape) for name, shape in first.items()}
        return {
            f"{name}_l{depth}": (len(self.directions), *shape)
            for depth, layer in enumerate(self.layers)
            for name, shape in layer.states.items()
        }

    def state_place(self, depth: int, direction: int, name: str) -> tuple[int, int]:
        """Which of `states` holds a state of a layer, and at which place of axis 0."""
        uniform = name in self.states
        index = list(self.states).index(name if uniform else f"{name}_l{depth}")
        return index, depth * len(self.directions) + direction if uniform else direction

    @cached_property
    def outputs(self) -> dict[str, Full]:
        """What the last layer emits, name -> shape of a step, the directions merged."""
        return {o: self._merged(self.layers[-1].outputs[o]) for o in self.emitted[-1]}

    @cached_property
    def steps(self) -> dict[str, Full]:
        """The recorded values, name -> shape of a step."""
        found: dict[str, Full] = {}
        for depth, d in self.places():
            layer = self.layers[depth]
            found |= {f"{n}{self.suffix(depth, d)}": layer.outputs[n] for n in self.recorded[depth]}
        return found

    # --- weights

    def init(self, seed: int = 0) -> dict[str, Array]:
        """Initial weights by name. Layers and directions differ; learnable initial states start at
        zero."""
        found = {name: np.zeros(shape, self.dtype) for name, shape in self.shapes.items()}
        for depth, d in self.places():
            own = (
                seed
                if not depth and not d
                else int(np.random.SeedSequence([int(seed), depth, d]).generate_state(1, np.uint64)[0])
            )
            drawn = {f"{n}{self.suffix(depth, d)}": a for n, a in self.layers[depth].init(own).items()}
            found |= {n: a for n, a in drawn.items() if n in found}
        return found

    def check(self, params: Mapping[str, Any], what: str = "params") -> dict[str, Array]:
        """The weights as arrays; ShapeError names every missing, unexpected and misshapen one,
        DtypeError one of another dtype."""
        if not isinstance(params, Mapping):
            raise DtypeError(f"{what} must be a dict of arrays by name; got {type(params).__name__}.")
        wrong = [f"missing {n!r}" for n in self.shapes if n not in params]
        wrong += [f"unexpected {n!r}{did_you_mean(n, self.shapes)}" for n in params if n not in self.shapes]
        arrays = {n: as_array(f"weight {n!r}", params[n], self.dtype) for n in self.shapes if n in params}
        wrong += [
            f"{n!r} has shape {a.shape}, expected {self.shapes[n]}"
            for n, a in arrays.items()
            if a.shape != self.shapes[n]
        ]
        if wrong:
            raise ShapeError(f"{what}: {'; '.join(wrong)}.")
        return arrays

    def weights(self, params: Mapping[str, Any] | StackWeights) -> StackWeights:
        """The parameters of each cell and the initial states, by place: views of the arrays where
        that can be."""
        if isinstance(params, StackWeights):
            return params
        arrays = self.check(params)
        cells: list[Mapping[str, Array]] = []
        initial: list[Mapping[str, Array]] = []
        for depth, d in self.places():
            layer, end = self.layers[depth], self.suffix(depth, d)
            own = self.suffix(depth, 0 if self.share_directions else d)
            cells.append(
                cells[-1]
                if self.share_directions and d
                else layer.parameters({n: arrays[f"{n}{own}"] for n in layer.shapes})
            )
            initial.append({n: arrays[f"initial_{n}{end}"] for n in layer.states} if self.learn_initial else {})
        return StackWeights(tuple(cells), tuple(initial))

    def pack(self, params: Mapping[str, Any]) -> StackWeights:
        """Copies of the weights, packed for the kernels once: go in place of params to calls that
        use the same ones again."""
        own = self.weights(params)
        cells: list[Mapping[str, Array] | Weights] = []
        for (depth, d), values in zip(self.places(), own.cells):
            cells.append(cells[-1] if self.share_directions and d else self.layers[depth].kernel.pack(values))
        return StackWeights(tuple(cells), tuple({n: a.copy() for n, a in values.items()} for values in own.initial))

    # --- calls

    def forward(
        self,
        params: Mapping[str, Any] | StackWeights,
        x: Any,
        state: Any = None,
        lengths: Any = None,
        *,
        resets: Any = None,
        training: bool = True,
        seed: Seed = 0,
    ) -> StackRun:
        """Runs a sequence and keeps the tapes.

        x: [T, B, ...], or name -> array where the cells read more than one. state: the arrays of
        `states`, each with the rows as axis 1 ([L * D, B, ...]), None where zero (or the learned
        one). lengths: [B] integers, the steps of each row. resets: [T, B] booleans, whether a row
        restarts at the initial state before that step. training: whether dropout and noise act,
        drawn from `seed` (a whole number, or several). The same arguments give the same numbers,
        for any number of threads.
        """
        return forward.forward(
            self,
            self.weights(params),
            *self._call(x, state, lengths, resets),
            training=training,
            seed=seeds(seed),
            call="forward",
        )

    def infer(
        self,
        params: Mapping[str, Any] | StackWeights,
        x: Any,
        state: Any = None,
        lengths: Any = None,
        *,
        resets: Any = None,
        training: bool = False,
        seed: Seed = 0,
    ) -> StackRun:
        """The same without tapes: the StackRun that comes back is not for `backward`."""
        return forward.forward(
            self,
            self.weights(params),
            *self._call(x, state, lengths, resets),
            training=training,
            seed=seeds(seed),
            call="infer",
        )

    def record(
        self,
        params: Mapping[str, Any] | StackWeights,
        x: Any,
        state: Any = None,
        lengths: Any = None,
        *,
        resets: Any = None,
        training: bool = True,
        seed: Seed = 0,
    ) -> tuple[StackRun, list[Array]]:
        """`forward` for who keeps what backward needs himself: rows of bytes, uint8 [n], that
        `resume` takes."""
        run = forward.forward(
            self,
            self.weights(params),
            *self._call(x, state, lengths, resets),
            training=training,
            seed=seeds(seed),
            call="record",
        )
        return run, kept.pack(self, run)

    def resume(
        self,
        params: Mapping[str, Any] | StackWeights,
        x: Any,
        state: Any,
        lengths: Any,
        arrays: list[Array],
        *,
        resets: Any = None,
        training: bool = True,
        seed: Seed = 0,
    ) -> StackRun:
        """The run for `backward` of an earlier `record`, by a Stack made of the same arguments,
        from the same arguments and what was kept.

        It has no outputs. The arrays are not copied, and must not be written to. Of x only the
        shape is read, unless memory is "low".
        """
        return kept.unpack(
            self,
            arrays,
            self.weights(params),
            *self._call(x, state, lengths, resets),
            training=training,
            seed=seeds(seed),
        )

    def backward(
        self, run: StackRun, dy: Any = None, dstate: Any = None, dsteps: Mapping[str, Any] | None = None
    ) -> StackGradients:
        """Gradients from those of the outputs, of the final state and of recorded steps; what is
        left out counts as zero.

        dy: [T, B, ...], or name -> array where there is more than one output. The tapes are read,
        not consumed.
        """
        if not isinstance(run, StackRun) or not run.kept:
            raise TypeError("backward needs the run that forward(...) returned; infer keeps no tape.")
        lead = (run.steps_taken, run.rows)
        outputs = self._arrays("gradient of output", dy, {o: lead + s for o, s in self.outputs.items()})
        steps = self._arrays("gradient of step value", dict(dsteps or {}), {n: lead + s for n, s in self.steps.items()})
        final = self.states_in(dstate, run.rows, "gradient of final state")
        return StackGradients(*backward.backward(self, run, outputs, final, steps))

    def _call(self, x: Any, state: Any, lengths: Any, resets: Any) -> tuple[Any, ...]:
        inputs = self.inputs_in(x)
        steps, rows = next(iter(inputs.values())).shape[:2]
        checked = check_lengths(lengths, steps, rows)
        again = resets_in(resets, steps, rows)
        pieces = {}
        for reverse in {d.reverse for d in self.directions}:
            split = again is not None or (reverse and checked is not None)
            pieces[reverse] = cut(steps, rows, checked, again, reverse) if split else None
        return inputs, self.states_in(state, rows), checked, pieces

    def inputs_in(self, x: Any) -> dict[str, Array]:
        """The inputs by name, checked."""
        given = self._arrays("input", x, {n: (None, None, *s) for n, s in self.inputs.items()})
        if missing := [n for n in self.inputs if n in self.required and n not in given]:
            raise ShapeError(
                f"missing input {', '.join(map(repr, missing))}. These layers read {', '.join(self.inputs)}."
            )
        if not given:
            raise ShapeError(
                "no input is given, so nothing tells the number of steps and rows. These layers read"
                f" {', '.join(self.inputs)}."
            )
        if clashing := [why for n, why in self.clashing.items() if n in given]:
            raise ShapeError(f"{'; '.join(clashing)}: leave it out, and it has its default in every layer.")
        leads = {n: a.shape[:2] for n, a in given.items()}
        if len(set(leads.values())) > 1:
            raise ShapeError(
                "inputs have different numbers of steps and rows (T, B):"
                f" {', '.join(f'{n} {s}' for n, s in leads.items())}."
            )
        return given

    def _arrays(self, what: str, given: Any, known: Mapping[str, tuple[int | None, ...]]) -> dict[str, Array]:
        """Arrays by name, checked; one alone may come without its name."""
        if given is None:
            return {}
        if not isinstance(given, Mapping):
            known_alone = [n for n in known if what != "input" or n in self.required] or list(known)
            if len(known_alone) != 1:
                raise ShapeError(
                    f"there are {len(known)} arrays of the kind {what}: give a dict by name ({', '.join(known)})."
                )
            given = {known_alone[0]: given}
        if unknown := [n for n in given if n not in known]:
            raise ShapeError(
                f"unknown {what} {', '.join(map(repr, unknown))}. There are: {', '.join(known) or 'none'}."
            )
        arrays = {n: as_array(f"{what} {n!r}", a, self.dtype) for n, a in given.items() if a is not None}
        for name, array in arrays.items():
            shape = known[name]
            if array.ndim != len(shape) or any(s not in (None, n) for s, n in zip(shape, array.shape)):
                shown = ", ".join(
                    letter if s is None else str(s) for letter, s in zip(("T", "B", *map(str, shape)), shape)
                )
                raise ShapeError(f"{what} {name!r} must have shape ({shown}), got {array.shape}.")
        return arrays

    def states_in(self, state: Any, rows: int | None, what: str = "state") -> tuple[Array | None, ...]:
        """The arrays of a state, checked, one for each of `states`. rows: None for arrays without a
        batch axis, which get one."""
        names = list(self.states)
        if state is None:
            return (None,) * len(names)
        given = state if isinstance(state, tuple | list) else (state,)
        if isinstance(state, Mapping) or len(given) != len(names):
            form = (
                f"one array ({names[0]})" if len(names) == 1 else f"a tuple of {len(names)} arrays ({', '.join(names)})"
            )
            got = "a dict" if isinstance(state, Mapping) else f"{len(given)} array{'s' * (len(given) != 1)}"
            raise ShapeError(f"{what} must be {form}; got {got}.")
        found: list[Array | None] = []
        for (name, (first, *rest)), value in zip(self.states.items(), given):
            array = None if value is None else as_array(f"{what} {name!r}", value, self.dtype)
            expected = (first, *(() if rows is None else (rows,)), *rest)
            if array is not None and array.shape != expected:
                raise ShapeError(f"{what} {name!r} must have shape {expected}, got {array.shape}.")
            found.append(array if array is None or rows is not None else array[:, None])
        return tuple(found)


def _specs(cell: Cell | Sequence[Cell], num_layers: int | None, settings: Mapping[str, Any]) -> list[Spec]:
    """The spec of every layer."""
    if num_layers is not None:
        whole("num_layers", num_layers)
    if isinstance(cell, str | os.PathLike | Spec):
        if isinstance(cell, Spec) and settings:
            raise TypeError(
                f"choices and constants ({', '.join(settings)}) are given to rnnspec.load, which made this Spec."
            )
        return [cell if isinstance(cell, Spec) else load(cell, **settings)] * (num_layers or 1)
    if not isinstance(cell, Sequence) or not cell or not all(isinstance(c, str | os.PathLike | Spec) for c in cell):
        raise TypeError(
            f"cell must be a name, a path, a Spec, or a list of these, one for each layer; got {type(cell).__name__}."
        )
    if settings:
        raise TypeError(
            f"choices and constants ({', '.join(settings)}) of a list of cells: give Specs, as rnnspec.load('rnn',"
            " phi='relu') makes them."
        )
    if num_layers not in (None, len(cell)):
        raise ValueError(f"num_layers is {num_layers}, but there is a list of {len(cell)} cells.")
    return [c if isinstance(c, Spec) else load(c) for c in cell]


def _check_options(depth: int, dropout: float, merge: str, flags: Mapping[str, bool]) -> None:
    if (
        isinstance(dropout, bool | np.bool_)
        or not isinstance(dropout, int | float | np.floating)
        or not 0.0 <= dropout <= 1.0
    ):
        raise ValueError(f"dropout must be a probability between 0 and 1, got {dropout!r}.")
    if dropout and depth == 1:
        warnings.warn(f"dropout={dropout} acts between layers, and there is only one: it does nothing.", stacklevel=4)
    if merge not in MERGES:
        raise ValueError(f"merge must be one of {', '.join(map(repr, MERGES))}; got {merge!r}.")
    if not flags["bidirectional"]:
        if merge != "concat":
            raise ValueError(f"merge={merge!r} joins two directions, and there is one: it needs bidirectional=True.")
        if flags["share_directions"]:
            raise ValueError("share_directions gives two directions one set of weights: it needs bidirectional=True.")
    elif flags["go_backwards"]:
        raise ValueError("go_backwards is for layers of one direction; bidirectional=True has the reverse one already.")
    if flags["residual"] and depth == 1:
        raise ValueError("residual adds to what a layer gives what the layer below gave: it needs two layers or more.")


def _recorded(asked: bool | Sequence[str], specs: Sequence[Spec]) -> list[tuple[str, ...]]:
    """The values that each layer records."""
    if isinstance(asked, bool | np.bool_):
        return [tuple(spec.states) if asked else () for spec in specs]
    if isinstance(asked, str) or not isinstance(asked, Iterable) or not all(isinstance(name, str) for name in asked):
        raise TypeError(
            "return_all_states must be True, False or a list of names of states and intermediate values, got"
            f" {asked!r}."
        )
    timed = [{e.target for e in spec.equations if e.timed} for spec in specs]
    for name in asked:
        if not any(name in known for known in timed):
            known = sorted(set().union(*timed))
            raise ValueError(
                f"return_all_states: no cell here computes {name!r} at each step.{did_you_mean(name, known)} There are:"
                f" {', '.join(known)}."
            )
    return [tuple(n for n in dict.fromkeys(asked) if n in known) for known in timed]


def _kernels(specs: Sequence[Spec], recorded: Sequence[tuple[str, ...]], **options: Any) -> list[Kernel]:
    """The kernel of every layer; layers of one cell share theirs."""
    made: list[tuple[Spec, Kernel]] = []
    kernels = []
    for spec, names in zip(specs, recorded):
        more = tuple(n for n in names if n not in spec.outputs)
        full = replace(spec, outputs=spec.outputs + more) if more else spec
        kernel = next((k for s, k in made if s is full or s == full), None)
        if kernel is None:
            kernel = compile(full, **options)
            made.append((full, kernel))
        kernels.append(kernel)
    return kernels


def resets_in(resets: Any, steps: int, rows: int) -> Array | None:
    """Resets as booleans [T, B], checked; None where there are none."""
    if resets is None:
        return None
    array = as_resets(resets)
    if array.shape != (steps, rows):
        raise ShapeError(f"resets must have shape ({steps}, {rows}) = [T, B], got {array.shape}.")
    return array if array.any() else None
