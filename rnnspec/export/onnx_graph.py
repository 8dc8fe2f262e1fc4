"""The graph of a model for ONNX: from a Net to nodes, weights and functions, all plain data.

A cell that is one of ONNX's operators is that operator. Any other is a Scan over the steps, whose
body calls a function of the cell's name. Inside of the graph the steps come first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.onnx.ops import Body, Op, Ops
from rnnspec.backends.onnx.step import Function, function
from rnnspec.engine import noise
from rnnspec.errors import UnsupportedError
from rnnspec.export.onnx_native import Native, native
from rnnspec.export.onnx_net import Cell, Full, Level, Net
from rnnspec.export.values import sources
from rnnspec.language.spec import STEP
from rnnspec.lowering.pipeline import stages

DOMAIN = "rnnspec"
# ONNX Runtime has kernels of the recurrent operators for float32 alone (1.18 to 1.32)
NATIVE = "float32"
Value = tuple[str, tuple[str | int, ...]]  # dtype and shape


@dataclass(frozen=True)
class Written:
    """inputs, outputs: name -> dtype and shape; sequences, states: the Net's inputs and states ->
    the model's inputs; lengths: that of the lengths, or ""; weights: name -> array; operators: what
    each cell became, by the suffix of its weights."""

    ops: tuple[Op, ...]
    inputs: Mapping[str, Value]
    outputs: Mapping[str, Value]
    weights: Mapping[str, Array]
    functions: Mapping[str, Function]
    operators: Mapping[str, str]
    sequences: Mapping[str, str]
    states: Mapping[str, str]
    lengths: str


def written(net: Net, lengths: bool, states: bool) -> Written:
    """The graph of a model. lengths: whether it reads how many steps each row has; states: whether
    it reads the states before the first step."""
    if not net.inputs:
        raise UnsupportedError(f"{net.name} reads no sequence that would tell a model of ONNX its steps.")
    return _Graph(net, lengths, states).written()


class _Graph(Ops):
    def __init__(self, net: Net, lengths: bool, states: bool):
        super().__init__()
        self.net, self.dtype = net, net.dtype
        self.weights: dict[str, Array] = {}
        self.functions: dict[str, Function] = {}
        self.operators: dict[str, str] = {}
        self.inputs: dict[str, Value] = {}
        self.outputs: dict[str, Value] = {}
        self.finals: dict[str, dict[int, str]] = {s: {} for s in net.states}
        ends = ["y"] if net.head else list(net.outputs)
        named = {n: f"{n}_out" if n in net.inputs else n for n in (*ends, *(f"final_{s}" for s in net.states))}
        self.ends = {n: self.name(own) for n, own in named.items()}  # before others take their names
        self.sequences: dict[str, str] = {}
        self.given = {n: self._input(n, shape) for n, shape in net.inputs.items()}
        first = next(iter(self.given.values()))
        self.steps = self.add("Shape", first, name="steps", start=0, end=1)
        self.rows = self.add("Shape", first, name="rows", start=1, end=2)
        self.lengths = self.active = ""
        self.before: dict[str, str] = {}
        if lengths:
            self._lengths()
        if states:
            for state, (places, *shape) in net.states.items():
                dtype = "int64" if state == STEP else self.dtype.name
                self.before[state] = self.name(f"initial_{state}")
                self.inputs[self.before[state]] = (dtype, (places, "B", *shape))

    def written(self) -> Written:
        self._layers()
        for state, found in self.finals.items():
            parts = [self.add("Unsqueeze", found[at], self.integers(0)) for at in sorted(found)]
            shape = self.net.states[state]
            kind = "int64" if state == STEP else self.dtype.name
            self._output(f"final_{state}", self.add("Concat", *parts, axis=0), kind, (shape[0], "B", *shape[1:]))
        return Written(
            tuple(self.ops), self.inputs, self.outputs, self.weights, self.functions, self.operators, self.sequences,
            self.before, self.lengths,
        )  # fmt: skip

    # --- what goes in and out

    def _input(self, name: str, shape: Full) -> str:
        net, own = self.net, self.name(name)
        self.sequences[name] = own
        symbol = net.table is not None and name == net.levels[0].main
        mapped = net.map is not None and name == net.levels[0].main
        shape = () if symbol else (net.map[0].shape[1],) if mapped and net.map else shape
        lead = ("B", "T") if net.batch_first else ("T", "B")
        self.inputs[own] = ("int64" if symbol else self.dtype.name, (*lead, *shape))
        return self._exchanged(own, len(shape)) if net.batch_first else own

    def _exchanged(self, value: str, rank: int) -> str:
        return self.add("Transpose", value, perm=[1, 0, *range(2, 2 + rank)])

    def _output(self, name: str, value: str, dtype: str, shape: tuple[str | int, ...]) -> None:
        own = self.ends[name]
        self.add("Identity", value, name=own, exact=True)
        self.outputs[own] = (dtype, shape)

    def _lengths(self) -> None:
        self.lengths = self.name("lengths")
        self.inputs[self.lengths] = ("int64", ("B",))
        numbers = self._numbers_of_steps()
        row = self.add("Unsqueeze", self.lengths, self.integers(0))
        self.active = self.add("Less", self.add("Unsqueeze", numbers, self.integers(1)), row, name="active")

    def _numbers_of_steps(self) -> str:
        """0, 1, ... [T] int64."""
        zero, one = (self.constant(np.array(n, np.int64), f"number_{n}") for n in (0, 1))
        return self.add("Range", zero, self.add("Squeeze", self.steps, self.integers(0)), one)

    def weight(self, name: str, array: Array) -> str:
        own = self.name(name)
        self.weights[own] = np.ascontiguousarray(array, self.dtype)
        return own

    # --- layers

    def _layers(self) -> None:
        net = self.net
        main = self.given.get(net.levels[0].main, "")
        if net.table is not None:
            main = self.add("Gather", self.weight("embedding", net.table), main, axis=0)
        elif net.map is not None:
            main = self._linear("map", main, *net.map)
        found: dict[str, str] = {}
        for level in net.levels:
            below = main
            found = self._level(level, main)
            main = found[level.emitted[0]]
            if level.residual:
                main = found[level.emitted[0]] = self.add("Add", main, below)
        if net.head is None:
            for name, shape in net.outputs.items():
                value = self._exchanged(found[name], len(shape)) if net.batch_first else found[name]
                lead = ("B", "T") if net.batch_first else ("T", "B")
                self._output(name, value, self.dtype.name, (*lead, *shape))
        else:
            self._head(found)

    def _linear(self, name: str, value: str, weight: Array, bias: Array) -> str:
        product = self.add("MatMul", value, self.weight(f"{name}_weight", weight.T))
        return self.add("Add", product, self.weight(f"{name}_bias", bias), name=name)

    def _head(self, found: Mapping[str, str]) -> None:
        head = self.net.head
        assert head is not None
        flat = []
        for name, shape in self.net.outputs.items():
            into = self.integers(0, 0, int(np.prod(shape, dtype=int)))
            flat.append(found[name] if len(shape) == 1 else self.add("Reshape", found[name], into))
        joined = flat[0] if len(flat) == 1 else self.add("Concat", *flat, axis=2)
        lead: tuple[str, ...] = ("T", "B")
        if head.last:
            joined, lead = self._ends(joined, head.reverse), ("B",)
        y = self._linear("head", joined, head.weight, head.bias)
        self._output("y", y, self.dtype.name, (*lead, len(head.bias)))

    def _ends(self, value: str, reverse: Array | None) -> str:
        """A row's last step, [B, F], and the first one in the columns of a reverse direction."""
        one = self.integers(1)
        ends = self.add("Sub", self.lengths or self.add("Expand", self.steps, self.rows), one)
        # a row of no steps is taken at its end, like in our models: step -1 is the last
        ends = self.add("Where", self.add("Less", ends, self.integers(0)), self.add("Sub", self.steps, one), ends)
        at = self.add("Unsqueeze", self.add("Unsqueeze", ends, self.integers(0)), self.integers(2))
        width = self.add("Shape", value, start=2, end=3)
        shape = self.add("Concat", one, self.rows, width, axis=0)
        last = self.add("GatherElements", value, self.add("Expand", at, shape), axis=0)
        last = self.add("Squeeze", last, self.integers(0))
        if reverse is None:
            return last
        first = self.add("Gather", value, self.constant(np.array(0, np.int64)), axis=0)
        return self.add("Where", self.constant(reverse, "of_reverse"), first, last)

    def _level(self, level: Level, main: str) -> dict[str, str]:
        inputs = {**self.given, level.main: main}
        made = [self._direction(cell, level, inputs) for cell in level.cells]
        if len(made) == 1:
            return made[0]
        return {name: self._merged(level.merge, *(one[name] for one in made)) for name in level.emitted}

    def _merged(self, merge: str, first: str, second: str) -> str:
        if merge == "concat":
            return self.add("Concat", first, second, axis=2)
        found = self.add("Mul" if merge == "product" else "Add", first, second)
        return self.add("Mul", found, self.constant(np.array(0.5, self.dtype))) if merge == "mean" else found

    def _direction(self, cell: Cell, level: Level, inputs: Mapping[str, str]) -> dict[str, str]:
        """The outputs [T, B, ...] of a cell; its final states are filed."""
        known = native(cell.spec) if self.dtype == NATIVE else None
        before = {s: self._before(cell, s) for s in cell.places}
        if known is not None:
            self.operators[cell.suffix] = known.form.op
            return self._operator(cell, known, inputs[level.main], before)
        self.operators[cell.suffix] = "Scan"
        return self._scan(cell, level, inputs, before)

    def _before(self, cell: Cell, state: str) -> str:
        """The state before the first step, [B, ...]."""
        name, place = cell.places[state]
        if self.before:
            return self.add("Gather", self.before[name], self.constant(np.array(place, np.int64)), axis=0)
        shape = self.net.states[name][1:]
        full = self.add("Concat", self.rows, self.integers(*shape), axis=0) if shape else self.rows
        if state in cell.initial:
            return self.add("Expand", self.weight(f"initial_{state}{cell.suffix}", cell.initial[state]), full)
        zero = np.zeros(1, np.int64 if state == STEP else self.dtype)
        return self.add("ConstantOfShape", full, value=zero, name=f"initial_{state}{cell.suffix}")

    def _file(self, cell: Cell, state: str, value: str) -> None:
        name, place = cell.places[state]
        self.finals[name][place] = value

    # --- a cell

    def _operator(self, cell: Cell, known: Native, main: str, before: Mapping[str, str]) -> dict[str, str]:
        arrays = known.arrays(cell.params)
        named = {role: self.weight(f"{role}{cell.suffix}", arrays[role]) for role in arrays}
        letters = {letter: state for state, letter in known.states.items()}
        starts = {n: self.add("Unsqueeze", before[s], self.integers(0)) for n, s in letters.items()}
        ends = self.add("Cast", self.lengths, to=np.dtype(np.int32)) if self.lengths else ""
        inputs = [main, named["W"], named["R"], named["B"], ends, starts["h"]]
        inputs += [starts["c"], named.get("P", "")] if "c" in letters else []
        while not inputs[-1]:
            inputs.pop()
        outputs = [self.name(f"Y{cell.suffix}"), *(self.name(f"Y_{n}{cell.suffix}") for n in letters)]
        attributes = {**known.attributes, "hidden_size": arrays["R"].shape[2]}
        attributes |= {"direction": "reverse"} if cell.reverse else {}
        self.put(Op(known.form.op, tuple(inputs), tuple(outputs), attributes))
        for state, value in zip(letters.values(), outputs[1:]):
            self._file(cell, state, self.add("Squeeze", value, self.integers(0)))
        return {cell.spec.outputs[0]: self.add("Squeeze", outputs[0], self.integers(1))}

    def _scan(self, cell: Cell, level: Level, inputs: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
        made, name = self._function(cell)
        values = self._values(cell, made)
        loop, end = Ops(), cell.suffix
        loop.taken = self.taken  # what a body has inside is seen where it stands, so no name is taken twice
        carried = {s: loop.name(f"{s}_prev{end}") for s in before}
        # the main input is there even where a step does not read it: it tells the steps
        read = dict.fromkeys([level.main, *(n for kind, n in made.reads if kind == "input")])
        scanned = {n: loop.name(f"{n}_t{end}") for n in read}
        mask = loop.name(f"active_t{end}") if self.active else ""
        reads = {("state", s): carried[s] for s in carried} | {("input", n): scanned[n] for n in scanned}
        reads |= {("parameter", n): v for n, v in values.items()}
        if STEP in carried:
            reads["step", STEP] = loop.add("Cast", carried[STEP], to=self.dtype)
        results = {r: loop.name(f"{r}{end}") for r in made.results}
        loop.put(Op(name, tuple(reads[key] for key in made.reads), tuple(results.values()), {}, DOMAIN))
        after = {s: self._masked(loop, mask, results[r], carried[s], s, cell) for s, r in made.states.items()}
        if STEP in carried:
            one = loop.add("Cast", mask, to=np.dtype(np.int64)) if mask else self.integers(1)
            after[STEP] = loop.add("Add", carried[STEP], one)
        emitted = {o: self._masked(loop, mask, results[made.outputs[o]], "", o, cell) for o in level.emitted}
        body_inputs = {carried[s]: "int64" if s == STEP else self.dtype.name for s in carried}
        body_inputs |= dict.fromkeys(scanned.values(), self.dtype.name) | ({mask: "bool"} if mask else {})
        body_outputs = {after[s]: "int64" if s == STEP else self.dtype.name for s in carried}
        body_outputs |= dict.fromkeys(emitted.values(), self.dtype.name)
        body = Body(f"{name}{end}", body_inputs, body_outputs, tuple(loop.ops))
        given = [*(before[s] for s in carried), *(inputs[n] for n in scanned), *([self.active] if mask else [])]
        outputs = [self.name(f"{n}_end{end}") for n in carried] + [self.name(f"{o}_all{end}") for o in emitted]
        count = len(scanned) + bool(mask)
        attributes: dict[str, object] = {"num_scan_inputs": count, "body": body}
        if cell.reverse:
            attributes |= {"scan_input_directions": [1] * count, "scan_output_directions": [1] * len(emitted)}
        self.put(Op("Scan", tuple(given), tuple(outputs), attributes))
        for state, value in zip(carried, outputs):
            self._file(cell, state, value)
        return dict(zip(emitted, outputs[len(carried) :]))

    def _masked(self, loop: Ops, mask: str, value: str, otherwise: str, name: str, cell: Cell) -> str:
        """The value where a row is still running, else what it was, or zero. Each has a name of its
        own: a body gives none twice."""
        own = f"{name}_after{cell.suffix}" if otherwise else f"{name}_given{cell.suffix}"
        if not mask:
            return loop.add("Identity", value, name=own)
        rank = len(self.net.states[cell.places[name][0]]) - 1 if otherwise else len(cell.spec.shapes[name])
        for _ in range(rank):
            mask = loop.add("Unsqueeze", mask, self.integers(-1))
        return loop.add("Where", mask, value, otherwise or self.constant(np.zeros((), self.dtype)), name=own)

    def _function(self, cell: Cell) -> tuple[Function, str]:
        """The function of a cell's step and its name; cells of one text share it."""
        drawn = [n for n in cell.spec.noise if n in cell.spec.inputs]
        made = function(stages(cell.spec).infer.graph, self.dtype.name, cell.sizes, drawn)
        for name, other in self.functions.items():
            if str(other) == str(made):
                return other, name
        name = cell.spec.name
        if name in self.functions:
            name = f"{name}{cell.suffix}"
        self.functions[name] = made
        return made, name

    def _values(self, cell: Cell, made: Function) -> dict[str, str]:
        """What a step reads as parameters; of noise what is expected of it, as in `infer`."""
        spec = cell.spec
        expected = {
            n: a[(0, 0) if n in spec.inputs else ...] for n, a in noise.mean(spec, cell.sizes, 1, 1, np.float64).items()
        }
        params = {**cell.params, **{n: a for n, a in expected.items() if n in spec.parameters}}
        known = {**sources(spec, stages(spec).infer.graph, params, cell.sizes), **expected}
        return {n: self.weight(f"{n}{cell.suffix}", known[n]) for kind, n in made.reads if kind == "parameter"}
