"""Several blocks that share the units of their rows (tier 2): the PTX of cells, run in the
interpreter with all blocks at once and what orders them modelled, planted faults, the launch, and
the interpreter's own grid barrier.

Compiled and interpreted, not run on a GPU.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from cells import case, expected
from cuda_budgets import GRID_TABLE, STANDARD, granted, measure
from cuda_sources import loop_kernel, ptx_of
from emulated import assert_clean, gpu, needs_compiler, plant
from ptx.machine import Machine
from ptx.module import PtxError, parse
from ptx.space import Global
from test_cuda_cells import SCHEDULES, check
from tolerances import CUDA, assert_close

import rnnspec
from bench.cubins import ptxas
from rnnspec.backends.cuda.choice import DEVICES, MOST_REGISTERS, choose
from rnnspec.backends.cuda.launch import execution as launch
from rnnspec.backends.cuda.launch.driver import BlockedError, CudaError
from rnnspec.backends.cuda.loop.facts import Facts
from rnnspec.lowering.pipeline import stages

needs_compiler()
FORMS = ("lstm", "gru_reset_before", "on_lstm")  # one stage, two, and stages that need whole rows
PROCESSORS = 5  # two groups of two blocks, one processor over


def cuda(name: str, **options):
    return rnnspec.compile(name, backend="cuda", tier=2, **options)


@pytest.mark.parametrize(
    "name", [n if n in FORMS else pytest.param(n, marks=pytest.mark.slow) for n in rnnspec.spec_names()]
)
def test_a_cell_on_several_blocks(name):
    with gpu(processors=PROCESSORS) as library:
        kernel = cuda(name)
        check(name, library, kernel, (2, 4, 3), SCHEDULES)
        assert all(
            kernel.choice(mode, 3, **case(kernel, 1, 3).sizes).shape.blocks > 1
            for mode in ("forward", "infer", "backward")
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", STANDARD)
@pytest.mark.parametrize("size", [128, 256])
def test_a_standard_cell_at_larger_sizes(name, size):
    with gpu(seed=size, processors=16) as library:
        check(name, library, cuda(name), (2, 4, 3), H=size)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "processors"), [("lstm", 6), ("gru_reset_before", 4)])
def test_weights_in_shared_memory(name, processors):
    """So few blocks that registers do not hold them; of lstm's the last has fewer units."""
    with gpu(seed=6, processors=processors) as library:
        kernel = cuda(name)
        assert kernel.choice("forward", 3, D=3, H=256).shape.weights == "shared"
        check(name, library, kernel, (2, 4, 3), H=256)


@pytest.mark.slow
@pytest.mark.parametrize("name", STANDARD)
def test_a_standard_cell_in_float64_on_sm_80(name):
    with gpu(seed=5, capability=(8, 0), shared=166912, processors=PROCESSORS) as library:
        check(name, library, cuda(name, dtype="float64"), None)


# --- which shape ---


def chosen(cell: str, size: int, rows: int, arch: str = "sm_90", mode: str = "forward", **options):
    spec = rnnspec.load(cell)
    facts = Facts(getattr(stages(spec), mode))
    return choose(facts, dict.fromkeys(spec.sizes, size), 4, rows, *DEVICES[arch], **options)


@pytest.mark.parametrize(("arch", "largest"), [("sm_80", 896), ("sm_90", 1024)])
@pytest.mark.parametrize("rows", [1, 16, 1024])
@pytest.mark.parametrize("mode", ["forward", "backward"])
def test_large_sizes_take_several_blocks_and_larger_ones_launch_after_launch(arch, largest, rows, mode):
    for size in (256, 511, largest):
        choice = chosen("lstm", size, rows, arch, mode)
        assert choice.tier == 2, choice
        assert choice.shape.blocks <= DEVICES[arch][0] and 4 * choice.shape.shared <= DEVICES[arch][1]
    assert chosen("lstm", 16, rows, arch, mode).tier == 1
    assert chosen("lstm", 4096, rows, arch, mode).tier == 3


def test_a_device_without_cooperative_launches_has_no_tier_2():
    assert chosen("lstm", 512, 16, together=1).tier == 3
    with pytest.raises(
        ValueError, match=r"tier 2 can't run 'lstm' at .*no blocks that wait for each other. Use tier=3"
    ):
        chosen("lstm", 512, 16, tier=2, together=1)
    with pytest.raises(
        ValueError, match=r"each of several blocks would need [\d,]+ bytes of shared memory, and has 232,448"
    ):
        chosen("lstm", 8192, 16, tier=2)


def test_an_elementwise_cell_waits_for_nothing():
    assert not chosen("indrnn", 256, 16, tier=2).shape.exchange
    assert chosen("lstm", 256, 16, tier=2).shape.exchange


# --- the text ---


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_what_other_blocks_wrote_is_not_read_through_the_cache(dtype):
    ptx = ptx_of(loop_kernel("lstm", "forward", 16, dtype=dtype, tier=2))
    kind = "v4.f32" if dtype == "float32" else "v2.f64"
    assert (
        ptx.count(f"ld.relaxed.gpu.global.{kind}") >= 1
        and ptx.count("red.relaxed.gpu.global.add.u64") >= 1
        and ptx.count("membar.gl") == 2
    )
    assert ".local" not in ptx and (".f64" in ptx) == (dtype == "float64")


BUDGETS = [(*kernel, arch) for kernel, archs in GRID_TABLE.items() for arch in archs]


@pytest.mark.parametrize(
    ("cell", "mode", "size", "arch"),
    [
        key if key == ("lstm", "forward", 128, "sm_90") else pytest.param(*key, marks=pytest.mark.slow)
        for key in BUDGETS
    ],
)
def test_ptxas_agrees_with_the_table_of_budgets(cell, mode, size, arch):
    if ptxas() is None:
        pytest.skip("ptxas is not installed")
    found, (registers, shared) = measure(cell, mode, size, arch, tier=2), GRID_TABLE[cell, mode, size][arch]
    assert found.spilled == 0
    assert (
        granted(found.registers) <= granted(registers)
        and found.registers <= MOST_REGISTERS
        and found.shared == shared <= DEVICES[arch][1]
    )


# --- planted faults ---


def runs_clean(seed: int = 1, **options) -> None:
    """Five rows of lstm in two tiles, at H = 5 on blocks of three units each: the second has
    two."""
    with gpu(seed=seed, processors=PROCESSORS, **options) as library:
        kernel = cuda("lstm")
        c = case(kernel, 3, 5, lengths=[3, 1, 2, 3, 1])
        shape = kernel.choice("infer", 5, **c.sizes).shape
        if (shape.blocks, shape.rows) != (2, 4):
            raise LookupError(f"the faults are planted in another shape than {shape}")
        out = kernel.infer(c.params, c.inputs, c.states, c.lengths)
        assert_clean(library)
        want = expected(c, "lstm")
        assert_close(out.outputs, want.outputs, CUDA["float32"])
        assert_close(out.final, want.final, CUDA["float32"])


def test_the_case_of_the_planted_faults_is_clean():
    for seed in range(3):
        runs_clean(seed)


def is_grid(ptx: str) -> bool:
    return "red.relaxed" in ptx


def without(text: str, number: int):
    """Drops one of the places where an instruction stands in the grid kernel."""

    def change(ptx: str) -> str:
        if not is_grid(ptx):
            return ptx
        parts = ptx.split(text)
        if number + 1 >= len(parts):
            raise LookupError(f"{text} stands in {len(parts) - 1} places")
        return text.join(parts[: number + 1]) + text.join(["", *parts[number + 1 :]])[len(text) :]

    return change


@pytest.mark.parametrize(
    ("text", "number"), [("membar.gl;", 0), ("membar.gl;", 1), *(("bar.sync \t0;", i) for i in range(5))]
)
def test_a_dropped_fence_or_barrier_is_found(text, number):
    with pytest.raises((AssertionError, PtxError)):
        runs_clean(change=without(text, number))


def test_a_read_through_the_cache_is_found():
    with pytest.raises(AssertionError, match="through the cache"):
        runs_clean(change=lambda ptx: ptx.replace("ld.relaxed.gpu.global.v4.f32", "ld.global.v4.f32"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("arrived(counters, block) < expected", "arrived(counters, block) < U1"),  # the grid barrier: waits for nobody
        ("expected += U2", "expected += U1"),  # or not for all
        ("(group * U2 + (s & U1))", "(group * U2)"),  # one copy of the exchange
        ("mine_H_0 = thread + U0 < ", "mine_H_0 = u_H_0 == u_H_0 or thread < "),  # the guard of units beyond the last
        ("exchange[swap + r_H_0 * U8", "exchange[swap + r_H_0 * U4"),  # a wrong distance of rows
        ("first_H = part * U3", "first_H = part * U2"),  # blocks whose units overlap
    ],
)
def test_a_planted_fault_is_found(monkeypatch, before, after):
    plant(monkeypatch, "counters", before, after)
    monkeypatch.setattr(launch, "PATIENCE", 1000)
    with pytest.raises((AssertionError, PtxError, BlockedError)):
        runs_clean()


# --- the launch ---


def test_blocks_that_do_not_come_are_an_error_and_no_hang(monkeypatch):
    monkeypatch.setattr(launch, "PATIENCE", 50)
    with pytest.raises(BlockedError, match=r"did not run all 4 blocks of 'lstm' at once.*tier=3"):
        runs_clean(
            change=lambda ptx: re.sub(r"(red\.relaxed\S+\s+\[\S+\]), 1;", r"\1, 0;", ptx, count=1)
        )  # the first is the barrier's


def test_nothing_to_do_launches_nothing_that_fails():
    """H66 of the list of known faults."""
    with gpu(processors=PROCESSORS):
        own, cpu = cuda("lstm"), rnnspec.compile("lstm")
        for steps, rows, lengths in ((3, 0, None), (0, 2, None), (3, 2, [0, 0])):
            c = case(own, steps, rows, lengths=lengths)
            run, other = c.forward(), cpu.forward(c.params, c.inputs, c.states, c.lengths)
            assert_close(run.outputs, other.outputs, 0.0)
            assert_close(run.final, other.final, 0.0)
            assert_close(c.backward(run).states, cpu.backward(other, c.dy, final=c.dfinal).states, 0.0)


def test_tiles_that_do_not_fit_at_once_run_one_launch_after_another():
    with gpu(seed=4, processors=3) as library:
        kernel = cuda("lstm")
        c = case(kernel, 3, 17, lengths=[3, 1, 2, 3, 1, 0, 2, 3, 3, 1, 1, 2, 3, 0, 2, 1, 3])
        shape = kernel.choice("infer", 17, **c.sizes).shape
        out, want = kernel.infer(c.params, c.inputs, c.states, c.lengths), expected(c, "lstm")
        assert_close(out.outputs, want.outputs, CUDA["float32"])
        assert_close(out.final, want.final, CUDA["float32"])
        assert_clean(library)
        assert (
            sum("lstm" in report.kernel for report in library.reports)
            == -(-17 // (shape.rows * (3 // shape.blocks)))
            > 1
        )


def test_more_blocks_than_fit_are_refused():
    with gpu(processors=PROCESSORS) as library:
        kernel = cuda("lstm")
        c = case(kernel, 2, 2)
        kernel.choice("infer", 2, **c.sizes)
        library.attributes[16] = 1
        with pytest.raises(CudaError) as caught:
            kernel.infer(c.params, c.inputs)
    assert caught.value.code == 720


def test_an_ordinary_launch_of_blocks_that_wait_is_found(monkeypatch):
    with gpu(processors=PROCESSORS) as library:
        monkeypatch.setattr(
            library, "cuLaunchCooperativeKernel", lambda *args: library.cuLaunchKernel(*args, None), raising=False
        )
        kernel = cuda("lstm")
        c = case(kernel, 2, 2)
        with pytest.raises(PtxError, match="ordinary launch"):
            kernel.infer(c.params, c.inputs)


# --- the interpreter's grid barrier ---

GRID = """
.version 9.0
.target sm_90
.address_size 64
.visible .entry kernel(
	.param .u64 p0, .param .u64 p1
)
.maxntid 32, 1, 1
{
	.reg .b32 	%r<6>;
	.reg .b64 	%rd<7>;
	.reg .pred 	%p<3>;
	ld.param.u64 	%rd1, [p0];
	ld.param.u64 	%rd2, [p1];
	mov.u32 	%r1, %tid.x;
	mov.u32 	%r2, %ctaid.x;
	mad.lo.s32 	%r3, %r2, 32, %r1;
	mul.wide.u32 	%rd3, %r3, 4;
	add.s64 	%rd4, %rd1, %rd3;
	xor.b32 	%r4, %r2, 1;
	mad.lo.s32 	%r4, %r4, 32, %r1;
	mul.wide.u32 	%rd5, %r4, 4;
	add.s64 	%rd5, %rd1, %rd5;
	st.global.u32 	[%rd4], %r3;
	bar.sync 	0;
	setp.ne.u32 	%p1, %r1, 0;
	@%p1 bra 	JOIN;
	membar.gl;
	red.relaxed.gpu.global.add.u64 	[%rd2], 1;
AGAIN:
	ld.relaxed.gpu.global.u64 	%rd6, [%rd2];
	setp.lt.u64 	%p2, %rd6, 2;
	@%p2 bra 	AGAIN;
	fence.acq_rel.gpu;
JOIN:
	bar.sync 	1;
	ld.relaxed.gpu.global.u32 	%r5, [%rd5];
	st.global.u32 	[%rd4+256], %r5;
	ret;
}
"""


def run(before: str = "", after: str = "", seed: int = 0, together: bool = True):
    """Two blocks: each writes its words, waits for the other, and reads what that wrote."""
    assert before in GRID
    memory = Global()
    words, counter = memory.allocate(512), memory.allocate(8)
    memory.write(counter, np.zeros(8, np.uint8))
    report = Machine(parse(GRID.replace(before, after)), memory, 2, 32, 0, [words, counter], seed, {}, together).run()
    return report, memory.span(words + 256, 256).view(np.uint32)


def test_blocks_wait_for_each_other():
    for seed in range(5):
        report, out = run(seed=seed)
        assert report.clean and out.tolist() == [*range(32, 64), *range(32)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("membar.gl;", ""),
        ("fence.acq_rel.gpu;", ""),
        ("bar.sync 	0;", ""),
        ("bar.sync 	1;", ""),
        ("@%p2 bra 	AGAIN;", ""),
        ("ld.relaxed.gpu.global.u32", "ld.global.u32"),
        ("ld.relaxed.gpu.global.u64", "ld.global.u64"),
        ("red.relaxed.gpu.global.add.u64 	[%rd2], 1;", "st.global.u64 	[%rd2], 2;"),
    ],
)
def test_what_does_not_order_blocks_is_a_race(before, after):
    assert run(before, after)[0].races


def test_blocks_that_wait_forever_are_a_deadlock(monkeypatch):
    monkeypatch.setattr("ptx.machine.IN_VAIN", 100)
    with pytest.raises(PtxError, match="deadlock"):
        run("%rd6, 2;", "%rd6, 3;")
    with pytest.raises(PtxError, match="ordinary launch"):
        run(together=False)
