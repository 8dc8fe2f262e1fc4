"""A sequence that arrives step by step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy import ndarray as Array

from rnnspec.engine import arrays as checked
from rnnspec.engine.call import Cell, Named, counts_of, sizes_of, states_without_count
from rnnspec.engine.frozen import Frozen, Sizes
from rnnspec.engine.groups import first_of, groups_of, refuse_groups, told_of
from rnnspec.engine.noise import mean
from rnnspec.engine.weights import Weights
from rnnspec.errors import ShapeError
from rnnspec.language.sizes import check_size_value, full_shape, sizes_in, with_default_sizes
from rnnspec.language.spec import STEP, Shape

T = TypeVar("T")
INTERRUPTED = -1  # in place of the step's number
LOST = "a step of this stream was interrupted, and its states are lost: call reset(states), or start another stream."
NOTHING: Mapping[str, Array] = {}


class Stepper(Protocol):
    """What runs single steps of some rows, and holds their states. inputs, outputs: the arrays that
    a step reads and writes, name -> [B, ...], always the same."""

    inputs: Named
    outputs: Named

    def run(self, t: int) -> None:
        """Runs a step, for row b the one of number t + counts[b]."""

    def start_at(self, counts: Array | None) -> None:
        """Sets counts, int64 [B]; None: all 0. Of a cell that does not count they are of no use."""

    def states(self) -> Named:
        """Copies of the states now, [B, width]."""

    def load(self, states: Mapping[str, Array]) -> None:
        """Puts the states at those given, [B, ...]; zero where left out."""


class Owner(Protocol):
    """What a Stream asks of the kernel that made it."""

    def pack(self, params: Mapping[str, Any] | Weights, /) -> Weights:
        """The parameters, packed."""

    def refresh(self, stepper: Any, weights: Weights) -> None:
        """Has its stepper go on with other weights."""


class Written(Frozen[str, T]):
    """A dict of arrays that are changed in place."""

    refusal: ClassVar[str] = (
        "a state of a stream is changed in place, and by no other dict or array in its stead: "
        "stream.states['h'][...] = value. dict(...) is a dict that can be changed, and that no stream looks at."
    )

    def __setitem__(self, name: str, array: T) -> None:  # type: ignore[override]
        if self.get(name) is not array:  # after `states["h"] *= 0.5` it is
            self._refuse()

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


class States(Written[Array]):
    """The states of a stream between two of its steps, name -> array: the next step starts from
    what stands in them then. own: arrays that nobody else has."""

    def __init__(self, own: Mapping[str, Array]):
        super().__init__({name: array.view() for name, array in own.items()})
        self.own = dict(own)  # whose shape nobody else changes

    def retire(self) -> None:
        """Lets nobody write to the arrays any more: a step was made, and what would be written to
        them now would be lost."""
        for array in self.values():
            array.flags.writeable = False


class Stepping(ABC):
    """What streams have in common: the number of the step, and the states, which the caller may
    have and write to."""

    def __init__(self) -> None:
        self._t = 0
        self._lent: States | None = None  # the states, where the caller has them

    @property
    def t(self) -> int:
        """How many steps were taken since the start, or the last `reset` of all rows."""
        return self._t

    @property
    def states(self) -> States:
        """The states before the next step, by name, and under "t" the count of steps where one is
        carried.

        The next step starts from these arrays: what is written to them before it counts. It leaves
        them as they are and makes others, as `reset` does; then they can't be written to any more.
        """
        self._check()
        if self._lent is None:
            self._lent = States(self._copies())
        return self._lent

    def _step(self, inputs: Any) -> None:
        t, self._t = self._t, INTERRUPTED
        if t == INTERRUPTED:
            raise RuntimeError(LOST)
        try:
            if self._lent is not None:
                self._take_back(self._lent.own, t)
            self._take(inputs, t)
        except Exception:  # refused before anything was computed
            self._t = t
            raise
        self._t = t + 1
        if self._lent is not None:
            self._end_loan()

    def _check(self) -> None:
        if self._t == INTERRUPTED:
            raise RuntimeError(LOST)

    def _end_loan(self) -> None:
        """What was handed out is now of the past."""
        if self._lent is not None:
            self._lent.retire()
        self._lent = None

    @abstractmethod
    def _take(self, inputs: Any, t: int) -> None:
        """Runs the step of number t; raises before it computes anything."""

    @abstractmethod
    def _copies(self) -> Named:
        """Copies of the states and of the count of steps, by name."""

    @abstractmethod
    def _take_back(self, states: Mapping[str, Array], t: int) -> None:
        """Goes on from these states, the count of steps among them, with the step of number t."""


class Stream(Stepping):
    """The states of some rows, moved on by one step at a time: made by `kernel.stream(params,
    rows=B)`.

    A step plans, packs and allocates nothing. outputs: name -> [B, ...], the same arrays after
    every step, in a dict that can't be changed: copy what must outlive the next one. Every row has
    a count of its steps, which goes on from that of the states it is given, else from 0: it is the
    `t` of equations. One thread at a time may use a stream; different streams do not meet.
    """

    def __init__(
        self, owner: Owner, cell: Cell, rows: int, sizes: Sizes, stepper: Stepper, states: Mapping[str, Any] | None
    ):
        super().__init__()
        self.owner, self.cell, self.rows, self.sizes, self.stepper = owner, cell, rows, sizes, stepper
        # others' names for the kernel's memory, which the stepper holds
        self.outputs = Frozen({name: array.view() for name, array in stepper.outputs.items()})
        spec = cell.spec
        noise = mean(spec, sizes, 1, rows, cell.dtype, [n for n in spec.noise if n in spec.inputs])
        self._mean = {name: array[0] for name, array in noise.items()}
        self._inputs, self._run = stepper.inputs, stepper.run
        self._ahead = np.zeros(rows, np.int64)  # of each row's count, beside the stream's own
        self.reset(states)

    def __repr__(self) -> str:
        return f"Stream({self.cell.spec.name}, rows={self.rows}, t={self.t})"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "a Stream can't be copied or pickled: keep stream.states, and start another with kernel.stream(weights,"
            " states, rows=...)."
        )

    def step(self, inputs: Mapping[str, Array] = NOTHING) -> dict[str, Array]:
        """One step. inputs: name -> [B, ...], none for a cell without inputs; those with a default
        may be left out, and noise, which is what is expected of it then. Returns `outputs`."""
        self._step(inputs)
        return self.outputs

    def _take(self, inputs: Mapping[str, Array], t: int) -> None:
        own, defaults = self._inputs, self.cell.spec.defaults
        if self._mean and isinstance(inputs, Mapping):
            inputs = self._mean | {n: a for n, a in inputs.items() if a is not None}
        given = inputs if type(inputs) is dict and inputs.keys() == own.keys() else self._checked(inputs)
        for name, array in own.items():
            value = given.get(name)
            if value is None and name in defaults:
                plain = defaults[name]
                array.T[...] = t + self._ahead if plain is None else plain
                continue
            if type(value) is not np.ndarray or value.shape != array.shape or value.dtype != array.dtype:
                value = self._checked(inputs)[name]
            array[...] = value
        self._run(t)

    @property
    def counts(self) -> Array:
        """The number of each row's next step, int64 [B]: how many it has taken since its start or
        its last `reset`, beside those that its states came with."""
        self._check()
        if self._lent is not None and STEP in self._lent.own:
            return self._lent.own[STEP].copy()
        return self._ahead + self._t

    def _copies(self) -> Named:
        return self._states() | ({STEP: self.counts} if self.cell.spec.counts else {})

    def _take_back(self, states: Mapping[str, Array], t: int) -> None:
        if self.cell.spec.counts:
            self._ahead = checked.check_counts(states[STEP], (self.rows,)) - t
            self.stepper.start_at(self._ahead)
        self.stepper.load({name: states[name] for name in self.cell.states})

    def _states(self) -> Named:
        shapes = self.cell.states
        return {
            name: array.reshape(self.rows, *self.sizes.full(shapes[name]))
            for name, array in self.stepper.states().items()
        }

    def refresh(self, params: Mapping[str, Any] | Weights) -> None:
        """Goes on with other parameters, of the same shapes: these are read now, and packed. The
        states and the counts stay as they are. Raises ShapeError and DtypeError."""
        self._check()
        weights = self.owner.pack(params)
        all_sizes(self.cell, weights.held, self.sizes)
        self.owner.refresh(self.stepper, weights)

    def reset(self, states: Mapping[str, Any] | None = None, *, rows: Any = None) -> None:
        """Starts again from these states, zero where left out; the count of steps is among them.

        rows: which rows do, the others go on: booleans [B], or the numbers of some rows [R]. Then
        states are [R, ...], one for each of these rows, in their order. Raises ShapeError and
        DtypeError for arrays, ValueError for rows that there are not.
        """
        cell, which = self.cell, None if rows is None else some_rows(rows, self.rows)
        if which is not None:
            self._check()
        arrays, count = states_without_count(cell, states), self.rows if which is None else len(which)
        self._fit("state", cell.states, arrays, count)
        counts = counts_of(cell, states, count)
        if self._lent is not None and which is not None:
            self._take_back(self._lent.own, self._t)
        if which is None:
            self.stepper.load(arrays)
            self._t, self._ahead = 0, np.zeros(self.rows, np.int64) if counts is None else counts
        else:
            whole = self._states()
            for name, array in whole.items():
                array[which] = arrays.get(name, 0)
            self.stepper.load(whole)
            self._ahead[which] = (0 if counts is None else counts) - self._t
        self.stepper.start_at(self._ahead)
        self._end_loan()

    def _checked(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """The inputs as arrays that fit, or the error that says what does not."""
        spec, dtype = self.cell.spec, self.cell.dtype
        arrays = checked.named("input", inputs, spec.inputs, dtype, required=True, optional=spec.defaults)
        self._fit("input", spec.inputs, arrays, self.rows)
        return arrays

    def _fit(self, kind: str, shapes: Mapping[str, Shape], arrays: Mapping[str, Array], rows: int) -> None:
        """Raises ShapeError unless each array is [rows, ...] of the sizes of this stream."""
        checked.infer_sizes(
            self.cell.spec,
            [
                (f"{kind} '{n}'", (str(rows), *checked.numbers(shapes[n], self.sizes)), a.shape)
                for n, a in arrays.items()
            ],
        )


def some_rows(rows: Any, count: int) -> Array:
    """The numbers of some of so many rows, int64 [R]. Raises ValueError for what tells no rows."""
    array = np.asarray(rows)
    if array.dtype == np.bool_ and array.shape == (count,):
        return np.flatnonzero(array)
    array = array.astype(np.int64) if array.shape == (0,) else np.atleast_1d(array)
    if array.dtype.kind not in "iu" or array.ndim != 1 or ((array < 0) | (array >= count)).any():
        raise ValueError(
            f"rows must be {count} booleans, or numbers of rows from 0 to {count - 1}; got"
            f" {np.array2string(array)[:60]} (shape {array.shape}, dtype {array.dtype})."
        )
    if len(np.unique(array)) < len(array):
        raise ValueError("rows names a row twice.")
    return array.astype(np.int64)


def whole_rows(rows: Any) -> int:
    """A number of rows, as `stream` takes it. Raises ValueError for what is none."""
    if isinstance(rows, bool) or not isinstance(rows, int | np.integer) or rows < 0:
        raise ValueError(f"rows must be a whole number of at least 0, got {rows!r}.")
    return int(rows)


def step_arrays(cell: Cell, sizes: Mapping[str, int], rows: int) -> tuple[Named, Named]:
    """Zeros for the inputs and outputs of one step, name -> [B, ...]."""
    shapes = {name: cell.spec.shapes[name] for name in cell.spec.outputs}
    inputs, outputs = (
        {name: np.zeros((rows, *full_shape(shape, sizes)), cell.dtype) for name, shape in group.items()}
        for group in (cell.spec.inputs, shapes)
    )
    return inputs, outputs


def all_sizes(cell: Cell, params: Mapping[str, Array], given: Mapping[str, int]) -> dict[str, int]:
    """The value of every size, from the shapes of the parameters and from those given by name.
    Raises ShapeError for a size that there is not, that has two values, or that has none."""
    spec, groups = cell.spec, groups_of(params, cell.spec.parameters)
    if not cell.grouped:
        refuse_groups(groups, f"a stream of '{spec.name}'", "compile it with backend='cpu'")
    with told_of(groups, params):
        sizes = sizes_of(cell, (first_of(params, groups), {}, {}), ("T", "B"), "B")
    names = sizes_in(spec.shapes.values())
    for name, value in given.items():
        if name not in names:
            raise ShapeError(
                f"'{spec.name}' has no size {name!r}. Its sizes are: {', '.join(sorted(names)) or 'none'}; rows= is the"
                " number of rows."
            )
        check_size_value(name, value)
        if sizes.setdefault(name, value) != value:
            raise ShapeError(f"size {name} is {value} here, but {sizes[name]} by the shapes of the weights.")
    sizes = with_default_sizes(spec.sizes, sizes)
    if missing := sorted(names - set(sizes)):
        raise ShapeError(
            f"the parameters of '{spec.name}' do not tell the size{'s' * (len(missing) > 1)} {', '.join(missing)}: "
            f"give {', '.join(f'{n}=...' for n in missing)}."
        )
    return sizes
