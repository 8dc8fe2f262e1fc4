"""What is checked of CUDA kernels without a GPU: their PTX line by line, what ptxas says, and that
the interpreter finds planted faults."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from cells import case, expected
from cuda_budgets import DEVICES, MODES, SIZES, STANDARD, TABLE, granted, measure
from cuda_sources import kernels, loop_kernel, ptx_of
from emulated import assert_clean, gpu, needs_compiler, plant
from ptx.driver import FakeLibrary
from ptx.machine import Machine
from ptx.module import PtxError, parse
from ptx.operations import _fma
from ptx.space import Global
from tolerances import CUDA, assert_close

import rnnspec
from bench.cubins import assemble, ptxas
from rnnspec.backends.cuda.compile.build import build
from rnnspec.backends.cuda.emit import products
from rnnspec.backends.cuda.launch import launcher

needs_compiler()
REGISTERS, MOST = 65536, 255
BARRIERS = 3  # of lstm's loop kernel forward


def test_the_compiler_of_others_is_left_as_it_was():
    from numba.core.types.functions import BaseFunction
    from numba.cuda import compiler

    from rnnspec.backends.cuda.compile.numba_passes import few_passes

    before = compiler.CUDACompiler, BaseFunction.get_call_type
    with pytest.raises(ZeroDivisionError), few_passes():
        assert compiler.CUDACompiler is not before[0] and BaseFunction.get_call_type is not before[1]
        raise ZeroDivisionError
    assert (compiler.CUDACompiler, BaseFunction.get_call_type) == before


@pytest.mark.parametrize("make", [products.product_source, products.outer_source])
def test_products_load_vectors(make):
    ptx = build(make("float32"), (9, 0))[0].decode()
    assert ".f64" not in ptx and ".local" not in ptx and ptx.count("ld.shared.v4") >= 2


def test_the_operand_of_a_loop_product_is_read_in_vectors():
    ptx = ptx_of(loop_kernel("lstm", "forward", 64))
    assert ptx.count("ld.shared.v4.f32") == 64  # 64 terms of 4 rows, four at a time
    assert ptx.count("ld.shared.f32") <= 12  # four sums and a state for each row


@pytest.mark.parametrize(
    ("cell", "mode", "size"), [k if k[0] == "lstm" else pytest.param(*k, marks=pytest.mark.slow) for k in TABLE]
)
@pytest.mark.parametrize("arch", DEVICES)
def test_ptxas_agrees_with_the_table_of_budgets(cell, mode, size, arch):
    if ptxas() is None:
        pytest.skip("ptxas is not installed")
    registers, shared, *spilled = TABLE[cell, mode, size][arch]
    found = measure(cell, mode, size, arch)
    assert found.spilled <= sum(spilled)
    assert granted(found.registers) <= granted(registers) and found.shared == shared
    assert found.registers <= MOST and found.registers * found.threads <= REGISTERS and found.shared <= DEVICES[arch][1]


def test_the_table_of_budgets_has_every_standard_cell():
    assert set(TABLE) == {(cell, mode, size) for cell in STANDARD for mode in MODES for size in SIZES}


@pytest.mark.parametrize("name", ["nas", pytest.param("lstm_projected", marks=pytest.mark.slow)])
def test_H67_a_block_never_needs_more_registers_than_there_are(name):
    """In float64, where a number takes two. That these kernels run is for a GPU to tell
    (test_cuda_launch.py)."""
    if ptxas() is None:
        pytest.skip("ptxas is not installed")
    for about, source in kernels(name, "float64"):
        needed = assemble(ptx_of(source).encode(), "sm_90").registers * source.threads
        assert needed <= REGISTERS, about


# --- planted faults ---


def runs_clean(seed: int = 1) -> None:
    """Five rows: a whole tile, and one of which three quarters are filled up."""
    with gpu(seed=seed, processors=1) as library:
        kernel = rnnspec.compile("lstm", backend="cuda", tier=1)
        c = case(kernel, 3, 5, lengths=[3, 1, 2, 3, 1])
        run = c.forward()
        assert_clean(library)
        want = expected(c, "lstm")
        assert_close(run.outputs, want.outputs, CUDA["float32"])
        assert_close(run.final, want.final, CUDA["float32"])


def test_the_case_of_the_planted_faults_is_clean():
    runs_clean()


@pytest.mark.parametrize("number", range(BARRIERS))
def test_a_dropped_barrier_is_found(monkeypatch, number):
    """Of those in the loop kernel's PTX."""

    def planted(source, target):
        ptx, entry = build(source, target)
        if "tile_lengths" not in source.arguments:
            return ptx, entry
        parts = ptx.decode().split("bar.sync \t0;")
        if len(parts) != BARRIERS + 1:
            raise LookupError(f"a kernel with {len(parts) - 1} barriers")
        return (
            "".join(p + ("" if i in (number, BARRIERS) else "bar.sync \t0;") for i, p in enumerate(parts)).encode(),
            entry,
        )

    monkeypatch.setattr(launcher, "build", planted)
    with pytest.raises((AssertionError, PtxError)):
        for seed in range(3):
            runs_clean(seed)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("if row0 + r_H_0 < n:", "if True:"),  # the guard of the rows that fill up a tile
        ("length_H_0 = length_H_0 if thread", "length_H_0 = limit if thread"),  # the guard of rows that have ended
        ("sh[r_H_0 * U8 + u_H_0 + U0] = total", "sh[r_H_0 * U4 + u_H_0 + U0] = total"),  # a wrong distance of rows
        ("t * n + b_H_0", "t * n + n"),  # and in global memory
        ("h_then = U32 - h_now", "h_then = h_now"),  # a state that is overwritten while others read it
    ],
)
def test_a_planted_fault_is_found(monkeypatch, before, after):
    plant(monkeypatch, "tile_lengths", before, after)
    with pytest.raises((AssertionError, PtxError)):
        runs_clean()


# --- the interpreter itself ---

SOURCE = """
.version 9.0
.target sm_90
.address_size 64
.extern .shared .align 16 .b8 sm[];
.visible .entry kernel(
	.param .u64 p0
)
.maxntid 64, 1, 1
{
	.reg .b32 	%r<6>;
	.reg .b64 	%rd<6>;
	ld.param.u64 	%rd1, [p0];
	mov.u32 	%r1, %tid.x;
	mul.wide.u32 	%rd2, %r1, 4;
	mov.u64 	%rd3, sm;
	add.s64 	%rd3, %rd3, %rd2;
	BODY
	ret;
}
"""


def run(body: str, threads: int = 32, blocks: int = 1, words: int = 32, seed: int = 0):
    memory = Global()
    address = memory.allocate(4 * words)
    machine = Machine(parse(SOURCE.replace("BODY", body)), memory, blocks, threads, 256, [address], seed, {})
    report = machine.run()
    return report, memory.span(address, 4 * words).view(np.uint32)


GLOBAL = "add.s64 %rd4, %rd1, %rd2;"


def test_a_kernel_runs():
    report, out = run(
        f"st.shared.u32 [%rd3], %r1; bar.sync 0; ld.shared.u32 %r2, [%rd3]; {GLOBAL} add.s32 %r2, %r2, 1; st.global.u32"
        " [%rd4], %r2;"
    )
    assert report.clean and out.tolist() == list(range(1, 33))


def test_a_fused_product_is_rounded_once():
    rng = np.random.default_rng(0)
    a, b, c = (rng.uniform(-1, 1, 200) for _ in range(3))
    c[:100] = -(a * b)[:100]  # what is left is the rounding error of the product
    exact = [float(Fraction(x) * Fraction(y) + Fraction(z)) for x, y, z in zip(a.tolist(), b.tolist(), c.tolist())]
    np.testing.assert_array_equal(_fma(("fma", "rn", "f64"), np.float64, a, b, c), exact)
    assert _fma(("fma", "rn", "f64"), np.float64, 1e308, 10.0, 1.0) == np.inf and (a * b + c != exact).any()


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("st.shared.u32 [sm], %r1;", "races"),  # all threads write one word
        ("st.shared.u32 [%rd3], %r1; ld.shared.u32 %r2, [sm];", "races"),  # one reads what another writes
        ("st.global.u32 [%rd1], %r1;", "races"),
        ("ld.shared.u32 %r2, [%rd3]; add.s32 %r3, %r2, 1;", "uninitialised"),
        (f"{GLOBAL} ld.global.u32 %r2, [%rd4]; add.s32 %r3, %r2, 1;", "uninitialised"),
    ],
)
def test_races_and_uninitialised_reads_are_found(body, found):
    assert getattr(run(body)[0], found)


def test_blocks_of_one_launch_are_not_ordered():
    body = f"{GLOBAL} st.global.u32 [%rd4], %r1; bar.sync 0; ld.global.u32 %r2, [%rd4];"
    assert run(body)[0].clean and run(body, blocks=2)[0].races


@pytest.mark.parametrize(
    "body",
    [
        f"{GLOBAL} st.global.u32 [%rd4+4], %r1;",  # one past the end
        f"{GLOBAL} st.global.u32 [%rd4+2], %r1;",  # not aligned
        "ld.shared.u32 %r2, [%rd3+160];",
        "setp.eq.u32 %p1, %r1, 0; @%p1 bra L1; bar.sync 0; L1:",  # a barrier that one thread does not reach
        "frobnicate.b32 %r1, %r2;",
    ],
)
def test_what_a_gpu_would_not_do_is_refused(body):
    with pytest.raises(PtxError):
        run(body if "%p1" not in body else body.replace("setp", ".reg .pred %p<2>; setp", 1))


def test_nothing_is_launched_beyond_the_limits_of_a_device():
    library = FakeLibrary()
    import ctypes

    arguments = [ctypes.c_uint(v) for v in (1, 1, 1, 32, 1, 1, 50_000)]
    assert (
        library.cuLaunchKernel(ctypes.c_void_p(1), *arguments, ctypes.c_void_p(0), [], None) != 0
    )  # over 48 KB, and nobody asked for it
