"""Runs a program on a device: lays buffers out and launches stage after stage, all on one stream.

In: a program's kernels, arrays on the device, sizes. Out: arrays on the device. Buffers hold all
steps, n rows to a step (n: rows of the batch); what the forward program saves is the tape.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.cuda.choice import TierChoice
from rnnspec.backends.cuda.compile.source import Source
from rnnspec.backends.cuda.emit import products
from rnnspec.backends.cuda.emit.stage import THREADS, has_work
from rnnspec.backends.cuda.launch.code import CudaCode
from rnnspec.backends.cuda.launch.driver import BlockedError
from rnnspec.backends.cuda.launch.launcher import Launcher, up
from rnnspec.backends.cuda.launch.memory import DeviceArray
from rnnspec.backends.cuda.loop.facts import Shape
from rnnspec.backends.cuda.loop.grid import APART
from rnnspec.language.sizes import evaluate_size
from rnnspec.lowering.program import BufferPlace, CarriedState, OuterSum, Panel, Stage
from rnnspec.lowering.signature import gradient_sums
from rnnspec.symbolic.graph import size_of

BLOCKS = 8  # of a stage's kernel, for each processor, at most
LEAF = 256  # numbers that are added up one after another, and sums of so many: errors grow with a logarithm
OUTER_ROWS = 256  # of one part of a sum of outer products, at least
PATIENCE = 1 << 24  # how often a block looks whether the others have come: some seconds, and a step takes microseconds


@dataclass
class Execution:
    """One run of a program. params, inputs: by name, contiguous; a missing input counts as zero.
    states: before the first step [n, width]. lengths: [n] or None. counts: the number of each row's
    first step, [n], None where nothing reads it. tape: what the forward program saved, by buffer;
    of a forward program that keeps one, filled by `run`."""

    code: CudaCode
    launcher: Launcher
    choice: TierChoice
    sizes: Mapping[str, int]
    steps: int
    n: int
    lengths: Array | None
    params: Mapping[str, DeviceArray]
    inputs: Mapping[str, DeviceArray]
    states: Mapping[str, DeviceArray]
    tape: dict[str, DeviceArray] = field(default_factory=dict)
    counts: Array | None = None

    def __post_init__(self) -> None:
        program = self.code.program
        self.ends = np.full(self.n, self.steps) if self.lengths is None else self.lengths
        self.lengths_array = self.launcher.indices(self.ends)
        self.counts_array = None if self.counts is None else self.launcher.indices(self.counts)
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
            self.outer(outer)
        for name, value in program.outputs.items():
            self.outputs[name] = self.taken(program.places[value], self.size(size_of(program.graph, value)))

    def histories(self) -> dict[str, DeviceArray]:
        """Every state after every step, [T, B, width], zero past a row's end; of a run that kept
        its tape."""
        program = self.code.program
        return {s.name: self.taken(BufferPlace(s.buffer, 1), self.size(s.size)) for s in program.states}

    def taken(self, place: BufferPlace, width: int) -> DeviceArray:
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

    def address(self, place: BufferPlace) -> int:
        """Where the rows of a place begin: of a history, those before each step or after it."""
        program, start = self.code.program, self.buffer(place.buffer).address
        step = self.n * self.size(program.buffers[place.buffer].size) * self.launcher.dtype.itemsize
        return start + step if program.after_step(place) else start

    def values(self, source: Source, **given: int) -> dict[str, int]:
        """The arguments of a kernel by key."""
        found = given if self.counts_array is None else {"counts": self.counts_array.address, **given}
        for key in source.arguments:
            if key in found:
                continue
            kind, _, rest = key.partition(" ")
            match kind:
                case "rows":
                    name, shift = rest.rsplit(" ", 1)
                    found[key] = self.address(BufferPlace(name, int(shift)))
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

    def begin(self, state: CarriedState) -> None:
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

    def finish(self, state: CarriedState) -> None:
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

    def stage(
        self, stage: Stage, first: int, count: int, t0: int, panels: list[tuple[dict[str, int], int]] | None = None
    ) -> None:
        """A stage over rows: its products, then the rest. first, count: which rows of the
        buffers, counted over all steps; t0: the step of the first; panels: what `panel` made, if it
        was made before."""
        if not count:
            return
        common = {"first": first, "count": count, "t0": t0, "n": self.n, "lengths": self.lengths_array.address}
        made = panels if panels is not None else [self.panel(stage, panel) for panel in stage.panels]
        for panel, (values, gates) in zip(stage.panels, made, strict=True):
            source = products.product_source(self.launcher.dtype.name, self.code.program.is_kept(panel))
            blocks = gates * up(count, products.SIDE) * up(values["units"], products.SIDE)
            self.launcher(source, blocks, {**values, **common})
        if not has_work(stage):
            return
        source, processors = self.code.stage(stage), self.launcher.device.processors
        if stage.rowwise:
            self.launcher(source, min(count, processors * 2 * BLOCKS), self.values(source, **common))
            return
        size = self.size(stage.size)
        across = min(THREADS, 1 << max(0, size - 1).bit_length())
        down, groups = THREADS // across, up(size, across)
        parts = min(up(count, down), max(1, BLOCKS * processors // max(1, groups)))
        chunk = up(up(count, parts), down) * down
        if gradient_sums(self.code.program.graph, stage):
            chunk = min(chunk, LEAF * down)  # what a thread adds up one after another
        parts = up(count, chunk)
        summed = [
            (parameter, self.launcher.new(parts * down, size))
            for parameter, _ in gradient_sums(self.code.program.graph, stage)
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
        """Adds the rows of `parts` to a gradient, those of many in pieces."""
        total = self.gradients[parameter]
        while parts.shape[0] > LEAF:
            many = parts
            parts = self.launcher.new(up(many.shape[0], LEAF), total.size)
            given = {"target": parts.address, "parts": many.address, "count": many.shape[0], "size": total.size}
            self.launcher.move("fold_parts", parts.shape[0] * total.size, **given, piece=LEAF)
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
                matrices.append(self.params[program.source_of(term.matrix)].address)
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
        vectors = [self.params[self.code.program.source_of(name)] for name in names]
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

    def outer(self, outer: OuterSum) -> None:
        parameter, left, right = outer.parameter, outer.left, outer.right
        program, rows = self.code.program, self.steps * self.n
        kept = program.kept(outer)
        height, width = (self.size(size_of(program.graph, v)) for v in (left, right))
        tiles = up(height, products.SIDE) * up(width, products.SIDE)
        if not rows or not tiles:
            return
        wanted = max(1, 2 * self.launcher.device.processors // tiles)
        chunk = min(max(OUTER_ROWS, up(rows, wanted)), LEAF * products.LEAF)
        parts = self.launcher.new(up(rows, chunk), height * width)
        self.launcher(
            products.outer_source(self.launcher.dtype.name, kept),
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
