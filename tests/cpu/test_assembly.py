"""What LLVM makes of tiles, vector functions and kernels for processors of every kind, read as
assembly: none of them has to be at hand."""

from __future__ import annotations

import itertools
import re
from functools import cache

import assembly
import llvmlite.binding as llvm
import pytest
from llvmlite import ir

import rnnspec
from rnnspec.backends.cpu import machine
from rnnspec.backends.cpu.emit.emission import Target
from rnnspec.backends.cpu.emit.kernel import emit
from rnnspec.backends.cpu.frontend import lower
from rnnspec.backends.cpu.processor import CHAINS, FEW_ROWS, GROUPS, VECTORS, Processor
from rnnspec.backends.cpu.runtime import tile
from rnnspec.backends.cpu.runtime.loops import loop, unrolled
from rnnspec.backends.cpu.runtime.vector_math import PRIMITIVES
from rnnspec.backends.cpu.runtime.vectors import I64, load_vector, multiply_add, spread, store_vector, vector_of
from rnnspec.lowering.pipeline import stages
from rnnspec.lowering.program import Program
from rnnspec.storage.sources import import_source

X86, LINUX_ARM, MAC_ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "arm64-apple-macosx"
# triple, bytes of a vector register, registers, multiply-add in one instruction
KINDS = {
    "haswell": (X86, 32, 16, True),
    "znver3": (X86, 32, 16, True),
    "skylake-avx512": (X86, 64, 32, True),
    "sapphirerapids": (X86, 64, 32, True),
    "apple-m1": (MAC_ARM, 16, 32, True),
    "neoverse-n1": (LINUX_ARM, 16, 32, True),
    "x86-64": (X86, 16, 16, False),
}
ARITHMETIC = re.compile(r"v?(add|mul|sub|div|sqrt)p[sd]|vfn?m(add|sub)\w+p[sd]|f(add|mul|sub|div|sqrt|ml[as])")
KERNELS = (("lstm", "forward"), ("gru", "backward"), ("indrnn", "infer"))
DTYPES = ("float32", "float64")
TILE = re.compile(r"_?(?P<kind>product|outer)_tile_(?P<size>\d+(x\d+)+)$")


@cache
def made_by(name: str) -> Processor:
    return machine.processor(KINDS[name][0], name)


def alone(text: str) -> list[assembly.Loop]:
    """The innermost loops of a module that LLVM need not go over again."""
    names = [f.name for f in llvm.parse_assembly(text).functions if not f.is_declaration]
    return found_in(machine.assembly(["declare void @nothing()"], names, [text]))


def found_in(text: str) -> list[assembly.Loop]:
    return [each for name, lines in assembly.functions(text).items() for each in assembly.loops(name, lines)]


def test_the_reader_reads() -> None:
    """An outer loop that calls, an inner one that does not and whose tail lies elsewhere."""
    text = """
    .globl f
f:                                      // @f
    cbz x0, .LBB0_4
.LBB0_1:                                // =>This Loop Header: Depth=1
    bl memcpy
    mov x8, #16
.LBB0_2:                                //   Parent Loop BB0_1 Depth=1
    ldp q0, q1, [x1, #32]
    fmla v2.4s, v0.4s, v1.s[0]
    str q2, [sp, #16]
    tbnz w3, #0, .LBB0_5
.LBB0_3:
    subs x8, x8, #1
    b.ne .LBB0_2
    subs x0, x0, #1
    b.ne .LBB0_1
.LBB0_4:
    ret
.LBB0_5:
    bl sinf
    b .LBB0_3
"""
    (each,) = found_in(text)
    assert (each.function, each.multiply_adds, each.loads, each.calls) == ("f", 1, 2, ())
    assert each.stack == put_aside(each) == ("str q2, [sp, #16]",) and len(each.lines) == 6


@pytest.mark.parametrize("name", KINDS)
def test_registers_are_known(name: str) -> None:
    known, (triple, size, registers, fma) = made_by(name), KINDS[name]
    assert (known.register_bytes, known.registers, known.fma) == (size, registers, fma)
    assert (known.triple, known.name) == (triple, name)
    assert known.lanes == {"float32": size // 4, "float64": size // 8}


@pytest.mark.parametrize("name", KINDS)
def test_tiles_fit_the_registers(name: str) -> None:
    known = made_by(name)
    for rows, vectors, groups in known.product_sizes():
        width = vectors * groups
        assert rows * width + min(rows, width) + 1 + (not known.fma) <= known.registers
        assert rows <= known.rows(width) and vectors <= VECTORS and groups <= GROUPS
    assert {(r, v) for r, v, _ in known.product_sizes()} >= {(r, v) for v in (1, 2, 3, 4) for r in (1, 2)}
    for rows in range(1, FEW_ROWS + 1):
        for vectors in range(1, VECTORS + 1):
            sums = rows * vectors * known.groups(rows, vectors)
            assert sums >= min(CHAINS, rows * vectors * GROUPS)


@pytest.mark.parametrize("name", KINDS)
def test_there_is_a_tile_for_every_number_of_rows(name: str) -> None:
    """A call for a size that has no tile would do nothing."""
    known = made_by(name)
    sizes, outer = set(known.product_sizes()), set(known.outer_sizes())
    for rows, vectors, most in itertools.product(range(1, 100), range(1, VECTORS + 1), range(1, GROUPS + 1)):
        groups = known.groups(rows, vectors, most)
        pieces = -(-rows // known.rows(vectors * groups))
        n = -(-rows // pieces)
        larger = pieces - (n * pieces - rows)
        assert groups <= most and larger * n + (pieces - larger) * (n - 1) == rows
        assert {(n, vectors, groups)} | ({(n - 1, vectors, groups)} if larger < pieces else set()) <= sizes
    for total, widest in itertools.product(range(1, 100), (VECTORS, known.outer_vectors)):
        panels = -(-total // widest)
        cuts = [total * p // panels for p in range(panels + 1)]
        assert {(known.rows(-(-total // panels)), b - a) for a, b in itertools.pairwise(cuts)} <= outer


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", KINDS)
def test_sums_stay_in_registers(name: str, dtype: str) -> None:
    """As many loads as a tile has rows and vectors, for as many multiply-adds as it has sums, in
    every turn of its loop. (Tiles that look at every factor, for numbers that are not finite, have
    not the registers for it.)"""
    seen = set()
    with machine.made_for(made_by(name)) as known:
        for each in alone(str(tile.tiles(dtype, ["product", "outer"]))):
            if not each.multiply_adds or not (size := TILE.match(each.function)):
                continue
            rows, *wide = map(int, size["size"].split("x"))
            vectors, groups = (*wide, 1)[:2]
            width = vectors * groups
            assert not each.stack and not each.calls, each
            turns = each.multiply_adds // (rows * width)
            assert turns in (1, unrolled(rows, vectors, groups, known)), each
            assert (each.multiply_adds, each.loads) == (turns * rows * width, turns * (rows + width)), each
            seen.add((size["kind"], (rows, *wide)))
        assert seen == {("product", s) for s in known.product_sizes()} | {("outer", s) for s in known.outer_sizes()}


def unrolled_by_llvm(name: str, text: str) -> list[assembly.Loop]:
    known = made_by(name)
    target = llvm.Target.from_triple(known.triple).create_target_machine(known.name, known.features, opt=3)
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = known.triple, str(target.target_data)
    passes = llvm.create_new_module_pass_manager()
    passes.add_instruction_combine_pass()
    passes.add_loop_unroll_pass()
    passes.add_simplify_cfg_pass()
    passes.run(module, llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(speed_level=2)))
    return found_in(str(target.emit_assembly(module)))


def as_it_was(rows: int, vectors: int) -> str:
    """A tile that reads all factors of a term before it multiplies: c[r, j] = the sum over k < K of
    a[k * rows + r] times vector j of row k of b."""
    module, vector = ir.Module(), vector_of("float32")
    data = vector.element.as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [data, data, data, I64])
    builder = ir.IRBuilder(ir.Function(module, kind, "tile").append_basic_block())
    a, b, c, K = builder.function.args

    def at(start: ir.Value, k: ir.Value, row: int, i: int) -> ir.Value:
        return builder.gep(start, [builder.add(builder.mul(k, I64(row)), I64(i))])

    def term(k: ir.Value, sums: list[ir.Value]) -> list[ir.Value]:
        panel = [
            load_vector(builder, at(b, k, vectors * vector.count, j * vector.count), vector) for j in range(vectors)
        ]
        factors = [spread(builder, builder.load(at(a, k, rows, r)), vector.count) for r in range(rows)]
        pairs = [(factor, column) for factor in factors for column in panel]
        return [multiply_add(builder, *pair, total) for pair, total in zip(pairs, sums, strict=True)]

    sums = loop(builder, K, [ir.Constant(vector, [0.0] * vector.count)] * (rows * vectors), term)
    for i, total in enumerate(sums):
        store_vector(builder, total, builder.gep(c, [I64(i * vector.count)]))
    builder.ret_void()
    return str(module)


def spilled(found: list[assembly.Loop]) -> set[str]:
    """The tiles that keep a sum or a factor on the stack."""
    return {each.function for each in found if each.multiply_adds and each.stack and "where" not in each.function}


def test_a_sum_on_the_stack_is_seen() -> None:
    """As long as LLVM was let unroll the loops of tiles they had half the speed on Zen 3: the loads
    of two terms ask for registers that sums stand in."""
    with machine.made_for(made_by("znver3")):
        assert not spilled(alone(as_it_was(4, 3)))
        assert spilled(unrolled_by_llvm("znver3", as_it_was(4, 3)))
        text = str(tile.tiles("float32", ["product", "outer"]))
        assert not spilled(alone(text))
        assert "_product_tile_8x1x1" in spilled(unrolled_by_llvm("znver3", text))


def over_vectors(function: str, dtype: str) -> ir.Module:
    """for i in range(n): y[i] = function(x[i]), of vectors."""
    module, vector = ir.Module(), vector_of(dtype)
    data = vector.element.as_pointer()
    builder = ir.IRBuilder(
        ir.Function(module, ir.FunctionType(ir.VoidType(), [data, data, I64]), function).append_basic_block()
    )
    x, y, n = builder.function.args

    def body(i: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
        at = builder.mul(i, I64(vector.count))
        value = PRIMITIVES[function](builder, load_vector(builder, builder.gep(x, [at]), vector))
        store_vector(builder, value, builder.gep(y, [at]))
        return []

    loop(builder, n, [], body)
    builder.ret_void()
    return module


def put_aside(each: assembly.Loop) -> tuple[str, ...]:
    """The instructions of a loop that write a vector to the stack. What it reads there may be a
    constant, which might as well lie elsewhere in memory."""
    return tuple(line for line in each.stack if re.search(r"[xyz]mm\d+, [^,]*\(%r[sb]p\)$|^st[rp]\s+q", line))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", KINDS)
def test_functions_stay_in_registers(name: str, dtype: str) -> None:
    """None calls anything (but the C library's sine for arguments that are too large), or puts a
    vector aside."""
    with machine.made_for(made_by(name)):
        for function in PRIMITIVES:
            found = found_in(machine.assembly([str(over_vectors(function, dtype))], [function]))
            assert any(map(ARITHMETIC.match, each.lines) for each in found), function
            for each in found:
                assert not each.calls and not put_aside(each), each


@cache
def program(cell: str, mode: str) -> Program:
    made: Program = getattr(stages(rnnspec.load(cell)), mode)
    return made


@pytest.mark.parametrize("name", KINDS)
def test_kernels_stay_in_registers(name: str) -> None:
    """The work on the units of a step calls nothing, and puts less than one vector aside in forty
    instructions: with 16 registers an LSTM's five functions have not enough."""
    with machine.made_for(made_by(name)) as known:
        for cell, mode in KERNELS:
            text = emit(program(cell, mode), Target("float32", known.lanes["float32"], VECTORS), "test")
            module = import_source(f"{cell}_{mode}", text)
            found = found_in(machine.assembly([lower(text, vars(module), ["kernel"])], ["kernel"]))
            working = [each for each in found if any(map(ARITHMETIC.match, each.lines))]
            assert working, (cell, mode)
            for each in working:
                assert not each.calls and 40 * len(put_aside(each)) < len(each.lines), (cell, mode, each)
