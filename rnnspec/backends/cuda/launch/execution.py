"""Runs programs on a device: compiles what is missing, lays buffers out, launches stage after
stage, all on one stream.

In: a Program, arrays on the device, sizes. Out: arrays on the device. Buffers hold all steps, n
rows to a step (n: rows of the batch); what the forward program saves is the tape.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.cuda.choice import Choice, choose
from rnnspec.backends.cuda.compile.build import architecture, build
from rnnspec.backends.cuda.compile.source import Source
from rnnspec.backends.cuda.emit import products
from rnnspec.backends.cuda.emit.moves import THREADS, runtime_source
from rnnspec.backends.cuda.emit.stage import THREADS as STAGE_THREADS
from rnnspec.backends.cuda.emit.stage import has_work, stage_source, sums
from rnnspec.backends.cuda.launch.driver import BlockedError, Device
from rnnspec.backends.cuda.launch.memory import DeviceArray, new_array
from rnnspec.backends.cuda.loop.facts import Facts, Shape
from rnnspec.backends.cuda.loop.grid import APART
from rnnspec.backends.cuda.loop.kernel import loop_source
from rnnspec.language.sizes import evaluate_size
from rnnspec.lowering.program import Panel, Place, Program, Stage, State
from rnnspec.lowering.signature import layout
from rnnspec.symbolic.graph import Read, operands, size_of

BLOCKS = 8  # of a stage's kernel, for each processor, at most
OUTER_ROWS = 256  # of one part of a sum of outer products, at least
PATIENCE = 1 << 24  # how often a block looks whether the others have come: some seconds, and a step takes microseconds


def up(count: int, size: int) -> int:
    """How many pieces of a size it takes."""
    return -(-count // size)


@dataclass
class CudaCode:
    """A program and its kernels, made when they are first needed."""

    program: Program
    dtype: np.dtype
    digest: str
    sources: dict[Any, Source] = field(default_factory=dict)
    choices: dict[Any, Choice] = field(default_factory=dict)

    @cached_property
    def facts(self) -> Facts:
        return Facts(self.program)

    @cached_property
    def layout(self) -> dict[str, Any]:
        """As of a CPU kernel (backends/cpu/layout.py): what is read, carried, emitted and
        summed."""
        graph, stages = self.program.graph, list(self.program.stages())

        def source(name: str) -> str:
            node = graph.nodes[name]
            return node.source if isinstance(node, Read) and node.kind == "parameter" else ""

        accumulations = [acc for stage in stages for panel in stage.panels for acc in panel.accumulations]
        biases = [f"bias {' + '.join(source(b) for b in acc.biases)}" for acc in accumulations if acc.biases]
        panels = (
            [{"matrices": tuple(tuple((source(t.matrix), t.transposed) for t in acc.terms) for acc in accumulations)}]
            if accumulations
            else []
        )
        read = {o for stage in stages for n in (*stage.nodes, *stage.rowwise) for o in operands(graph.nodes[n])}
        read |= {v for stage in stages for v, _ in (*stage.stores, *stage.sums)}
        vectors = [f"vector {source(n)}" for n in graph.nodes if n in read and source(n)]
        return layout(self.program, 1, list(dict.fromkeys([*biases, *vectors])), panels)

    def stage(self, stage: Stage) -> Source:
        if id(stage) not in self.sources:
            self.sources[id(stage)] = stage_source(self.program, stage, self.dtype.name, self.digest)
        return self.sources[id(stage)]

    def texts(self) -> str:
        """The texts of its stages' kernels."""
        return "\n".join(self.stage(stage).text for stage in self.program.stages() if has_work(stage))

    def choice(self, device: Device, rows: int, sizes: Mapping[str, int], tier: int | None) -> Choice:
        """Which kernels run the loop (choice.py)."""
        key = (device, rows, tuple(sizes.items()), tier)
        if key not in self.choices:
            together = device.processors if device.cooperative else 1
            self.choices[key] = choose(
                self.facts, sizes, self.dtype.itemsize, rows, device.processors, device.shared, tier, together
            )
        return self.choices[key]

    def loop(self, choice: Choice, sizes: Mapping[str, int]) -> Source:
        assert choice.shape is not None
        key = (choice.shape.rows, choice.shape.blocks, choice.shape.threads, choice.shape.weights, tuple(sizes.items()))
        if key not in self.sources:
            self.sources[key] = loop_source(self.program, self.facts, choice.shape, sizes, self.dtype.name, self.digest)
        return self.sources[key]


@dataclass(frozen=True)
class Launcher:
    """A device and a stream, for one kind of number."""

    device: Device
    dtype: np.dtype
    stream: int

    def __call__(self, source: Source, blocks: int, values: Mapping[str, int], *, together: bool = False) -> None:
        """Starts a kernel; none, if it has no blocks. values: by the keys of its arguments;
        together: all blocks have to run at once."""
        if blocks:
            shared = source.shared * self.dtype.itemsize
            function = self.device.function(source, lambda: build(source, architecture(self.device.capability)), shared)
            launch = self.device.launch_together if together else self.device.launch
            launch(function, blocks, source.threads, shared, self.stream, [values[k] for k in source.arguments])

    def move(self, name: str, numbers: int, /, **values: int) -> None:
        """Starts a kernel of runtime.py with a thread for each of so many numbers."""
        self(runtime_source(name, self.dtype.name), up(numbers, THREADS), values)

    def new(self, *shape: int) -> DeviceArray:
        return new_array(self.device, shape, self.dtype, self.stream)

    def zeros(self, *shape: int) -> DeviceArray:
        array = self.new(*shape)
        self.device.zero(array.address, prod(shape) * self.dtype.itemsize, self.stream)
        return array

    def counters(self, count: int) -> DeviceArray:
        array = new_array(self.device, (count,), np.dtype(np.uint64), self.stream)
        self.device.zero(array.address, 8 * count, self.stream)
        return array

    def upload(self, array: Array) -> DeviceArray:
        self.device.use()
        host = np.ascontiguousarray(array)
        found = new_array(self.device, array.shape, host.dtype, self.stream)
        self.device.to_device(found.address, host, self.stream)
        return found

    def indices(self, values: Any) -> DeviceArray:
        return self.upload(np.asarray(values, np.uint64))

    def packed(self, array: DeviceArray, *, copy: bool = False) -> DeviceArray:
        """The array with its numbers one after another. copy: even if they are."""
        if array.contiguous and not copy:
            return array
        item, found = self.dtype.itemsize, self.new(*array.shape)
        shape, strides = (1, 1, 1, *array.shape), (0, 0, 0, *array.strides)
        height, middle, width = shape[-3:]
        for number, index in enumerate(np.ndindex(shape[3:-3])):  # arrays of up to three axes go at once
            start = sum(i * s for i, s in zip(index, strides[3:-3]))
            self.move(
                "copy",
                height * middle * width,
                target=found.address + number * height * middle * width * item,
                source=array.address + start,
                height=height,
                middle=middle,
                width=width,
                by_first=strides[-3] // item,
                by_second=strides[-2] // item,
                by_third=strides[-1] // item,
            )
        return found


@dataclass
class Execution:
    """One run of a program. params, inputs: by name, contiguous; a missing input counts as zero.
    states: before the first step [n, width]. lengths: [n] or None. first_step: the number of the
    first step. tape: what the forward program saved, by buffer; of a forward program that keeps
    one, filled by `run`."""

    code: CudaCode
    launcher: Launcher
    choice: Choice
    sizes: Mapping[str, int]
    steps: int
    n: int
    lengths: Array | None
    params: Mapping[str, DeviceArray]
    inputs: Mapping[str, DeviceArray]
    states: Mapping[str, DeviceArray]
    tape: dict[str, DeviceArray] = field(default_factory=dict)
    first_step: int = 0

    def __post_init__(self) -> None:
        program = self.code.program
        self.ends = np.full(self.n, self.steps) if self.lengths is None else self.lengths
        self.lengths_array = self.launcher.indices(self.ends)
        self.own: dict[str, DeviceArray] = {}
        self.gradients = {
            name: self.launcher.zeros(*(self.size(s) for s in shape))
            for name, shape in self.code.layout["gradients"].items()
        }
        self.final = {s.name: self.launcher.new(self.n, self.size(s.size)) for s in program.states}
        self.start = {
            s.name: self.states.get(s.name) or self.launcher.zeros(self.n, self.size(s.size)) for s in program.states
        }
        self.outputs: dict[str, DeviceArray] = {}
        for source, buffer in program.inputs.items():
            given = self.inputs.get(source)
            where = self.tape if program.buffers[buffer].saved else self.own
            where[buffer] = (
                given
                if given is not None
                else self.launcher.zeros(self.steps * self.n, self.size(program.buffers[buffer].size))
            )

    def run(self) -> None:
        """Fills `outputs`, `final`, `gradients` and the tape."""
        program, rows = self.code.program, self.steps * self.n
        for state in program.states if self.choice.tier == 3 else self.code.facts.ready:
            self.begin(state)
        for stage in program.before:
            self.stage(stage, 0, rows, 0)
        if self.n:
            (self.step_by_step if self.choice.tier == 3 else self.whole_loop)()
        for stage in program.after:
            self.stage(stage, 0, rows, 0)
        for state in program.states:
            if self.choice.tier == 3 or state not in self.code.facts.inside:
                self.finish(state)
        for outer in program.outers:
            self.outer(outer.parameter, outer.left, outer.right)
        for name, value in program.outputs.items():
            self.outputs[name] = self.taken(program.places[value], self.size(size_of(program.graph, value)))

    def histories(self) -> dict[str, DeviceArray]:
        """Every state after every step, [T, B, width], zero past a row's end; of a run that kept
        its tape."""
        program = self.code.program
        return {s.name: self.taken(Place(s.buffer, 1), self.size(s.size)) for s in program.states}

    def taken(self, place: Place, width: int) -> DeviceArray:
        """A copy of the rows of a place, zero past a row's end."""
        rows, found = self.steps * self.n, self.launcher.new(self.steps, self.n, width)
        self.launcher.move(
            "take",
            rows * width,
            target=found.address,
            source=self.address(place),
            count=rows,
            n=self.n,
            width=width,
            lengths=self.lengths_array.address,
        )
        return found

    def size(self, expression: str) -> int:
        return evaluate_size(expression, self.sizes)

    def buffer(self, name: str) -> DeviceArray:
        """A buffer's memory, made when it is first asked for."""
        buffer = self.code.program.buffers[name]
        where = self.tape if buffer.saved or buffer.taped else self.own
        if name not in where:
            assert not buffer.taped, f"{name} is not on the tape"
            where[name] = self.launcher.new((self.steps + (buffer.kind == "history")) * self.n, self.size(buffer.size))
        return where[name]

    def address(self, place: Place) -> int:
        """Where the rows of a place begin: of a history, those before each step or after it."""
        buffer, program = self.code.program.buffers[place.buffer], self.code.program
        later = buffer.kind == "history" and (place.shift == 1) != (program.reverse and not buffer.taped)
        return self.buffer(place.buffer).address + (
            self.n * self.size(buffer.size) * self.launcher.dtype.itemsize if later else 0
        )

    def values(self, source: Source, **given: int) -> dict[str, int]:
        """The arguments of a kernel by key."""
        found = {"step0": self.first_step, **given}
        for key in source.arguments:
            if key in found:
                continue
            kind, _, rest = key.partition(" ")
            match kind:
                case "rows":
                    name, shift = rest.rsplit(" ", 1)
                    found[key] = self.address(Place(name, int(shift)))
                case "vector":
                    found[key] = self.params[rest].address
                case "size":
                    found[key] = self.size(rest)
                case "start":
                    found[key] = self.start[rest].address
                case "final":
                    found[key] = self.final[rest].address
                case _:
                    raise KeyError(key)
        return found

    # --- the loop
    # ----------------------------------------------------------------------------------------------------

    def whole_loop(self) -> None:
        """Tiers 1 and 2."""
        assert self.choice.shape is not None
        source, rows, blocks = self.code.loop(self.choice, self.sizes), self.choice.shape.rows, self.choice.shape.blocks
        tiles = up(self.n, rows)
        order = np.argsort(-self.ends, kind="stable")
        padded = np.zeros((2, tiles * rows), np.uint64)
        padded[0, : self.n], padded[1, : self.n] = order, self.ends[order]
        table = self.launcher.indices(padded)
        common = {"n": self.n, "order": table.address, "tile_lengths": table.address + 8 * tiles * rows}
        if blocks == 1:
            self.launcher(source, tiles, self.values(source, **common))
        else:
            self.groups(source, self.choice.shape, tiles, common)

    def groups(self, source: Source, shape: Shape, tiles: int, common: dict[str, int]) -> None:
        """Tier 2: as many tiles at once as there are processors for, one launch after another.
        Raises BlockedError, which takes waiting for the device, where the blocks did not meet."""
        at_once = min(tiles, self.launcher.device.processors // shape.blocks)
        together = bool(shape.exchange)
        if together:
            exchange = self.launcher.zeros(
                at_once * 2 * shape.exchange
            )  # vectors of it are fetched with what fills up a row
            counters = self.launcher.counters((tiles + 1) * APART)
            common = common | {"exchange": exchange.address, "counters": counters.address, "patience": PATIENCE}
        for tile in range(0, tiles, at_once):
            count = min(at_once, tiles - tile) * shape.blocks
            self.launcher(source, count, self.values(source, tile0=tile, **common), together=together)
        if together and counters.numpy()[0]:
            raise BlockedError(
                f"the GPU did not run all {at_once * shape.blocks} blocks of '{self.code.program.name}' at once, and"
                f" gave up after {PATIENCE:,} looks. Use tier=3, whose blocks do not wait for each other."
            )

    def step_by_step(self) -> None:
        """Tier 3."""
        program = self.code.program
        ready = [[self.panel(stage, panel) for panel in stage.panels] for stage in program.loop]
        for s in reversed(range(self.steps)) if program.reverse else range(self.steps):
            for stage, panels in zip(program.loop, ready):
                self.stage(stage, s * self.n, self.n, s, panels)

    def begin(self, state: State) -> None:
        """The state before each row's first step, into its history."""
        self.launcher.move(
            "move",
            self.n * self.size(state.size),
            target=self.buffer(state.buffer).address,
            at_target=int(self.code.program.reverse),
            source=self.start[state.name].address,
            at_source=0,
            n=self.n,
            width=self.size(state.size),
            lengths=self.lengths_array.address,
        )

    def finish(self, state: State) -> None:
        """The state after each row's last step, from its history."""
        self.launcher.move(
            "move",
            self.n * self.size(state.size),
            target=self.final[state.name].address,
            at_target=0,
            source=self.buffer(state.buffer).address,
            at_source=1 - int(self.code.program.reverse),
            n=self.n,
            width=self.size(state.size),
            lengths=self.lengths_array.address,
        )

    # --- stages over rows
    # --------------------------------------------------------------------------------------------

    def stage(
        self, stage: Stage, first: int, count: int, t0: int, panels: list[tuple[dict[str, int], int]] | None = None
    ) -> None:
        """A stage over rows: its products, then the rest. panels: what `panel` made, if it was made
        before."""
        if not count:
            return
        common = {"first": first, "count": count, "t0": t0, "n": self.n, "lengths": self.lengths_array.address}
        for values, gates in panels if panels is not None else [self.panel(stage, panel) for panel in stage.panels]:
            blocks = gates * up(count, products.SIDE) * up(values["units"], products.SIDE)
            self.launcher(products.product_source(self.launcher.dtype.name), blocks, {**values, **common})
        if not has_work(stage):
            return
        source, processors = self.code.stage(stage), self.launcher.device.processors
        if stage.rowwise:
            self.launcher(source, min(count, processors * 2 * BLOCKS), self.values(source, **common))
            return
        size = self.size(stage.size)
        across = min(STAGE_THREADS, 1 << max(0, size - 1).bit_length())
        down, groups = STAGE_THREADS // across, up(size, across)
        parts = min(up(count, down), max(1, BLOCKS * processors // max(1, groups)))
        chunk = up(up(count, parts), down) * down
        parts = up(count, chunk)
        summed = [
            (parameter, self.launcher.new(parts * down, size)) for parameter, _ in sums(self.code.program.graph, stage)
        ]
        given = (
            common
            | {"chunk": chunk, "across": across}
            | {f"parts {i}": array.address for i, (_, array) in enumerate(summed)}
        )
        self.launcher(source, groups * parts, self.values(source, **given))
        for parameter, array in summed:
            self.add(parameter, array)

    def add(self, parameter: str, parts: DeviceArray) -> None:
        """Adds the rows of `parts` to a gradient."""
        total = self.gradients[parameter]
        self.launcher.move(
            "add_parts", total.size, target=total.address, parts=parts.address, count=parts.shape[0], size=total.size
        )

    def panel(self, stage: Stage, panel: Panel) -> tuple[dict[str, int], int]:
        """The arguments of `product` for a panel, whatever the rows, and how many accumulations it
        has."""
        program, gates = self.code.program, panel.accumulations
        units, inner = self.size(stage.size), [self.size(size_of(program.graph, o)) for o in panel.operands]
        matrices, strides, targets, starts, modes = [], [], [], [], []
        for acc in gates:
            for term, depth in zip(acc.terms, inner):
                matrices.append(self.params[_parameter(program, term.matrix)].address)
                strides += [1, units] if term.transposed else [depth, 1]
            targets.append(self.address(program.places[acc.value]))
            bias = self.bias(acc.biases) if acc.first and acc.biases else None
            starts.append(targets[-1] if bias is None else bias.address)
            modes.append(
                products.FROM_ITSELF
                if not acc.first
                else products.FROM_BIAS
                if bias is not None
                else products.FROM_ZERO
            )
        tables = {
            "operands": [self.address(program.places[o]) for o in panel.operands],
            "inner": inner,
            "matrices": matrices,
            "strides": strides,
            "targets": targets,
            "starts": starts,
            "modes": modes,
        }
        array = self.launcher.indices([v for table in tables.values() for v in table])
        self.own[f"table {array.address}"] = array
        places = np.cumsum([0, *(len(t) for t in tables.values())])
        values = {name: array.address + 8 * int(at) for name, at in zip(tables, places)}
        return values | {"terms": len(inner), "units": units}, len(gates)

    def bias(self, names: tuple[str, ...]) -> DeviceArray:
        """The sum of some vectors."""
        vectors = [self.params[_parameter(self.code.program, name)] for name in names]
        if len(vectors) == 1:
            return vectors[0]
        key = f"bias {' + '.join(names)}"
        if key not in self.own:
            total = self.own[key] = self.launcher.zeros(vectors[0].size)
            for vector in vectors:
                self.launcher.move(
                    "add_parts", total.size, target=total.address, parts=vector.address, count=1, size=total.size
                )
        return self.own[key]

    def outer(self, parameter: str, left: str, right: str) -> None:
        program, rows = self.code.program, self.steps * self.n
        height, width = (self.size(size_of(program.graph, v)) for v in (left, right))
        tiles = up(height, products.SIDE) * up(width, products.SIDE)
        if not rows or not tiles:
            return
        wanted = max(1, 2 * self.launcher.device.processors // tiles)
        chunk = max(OUTER_ROWS, up(rows, wanted))
        parts = self.launcher.new(up(rows, chunk), height * width)
        self.launcher(
            products.outer_source(self.launcher.dtype.name),
            tiles * parts.shape[0],
            {
                "left": self.address(program.places[left]),
                "right": self.address(program.places[right]),
                "parts": parts.address,
                "height": height,
                "width": width,
                "count": rows,
                "n": self.n,
                "chunk": chunk,
                "lengths": self.lengths_array.address,
            },
        )
        self.add(parameter, parts)


def _parameter(program: Program, name: str) -> str:
    node = program.graph.nodes[name]
    assert isinstance(node, Read)
    return node.source
