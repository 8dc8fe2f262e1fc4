"""The machine that kernels are made for, and LLVM's work on them: texts of modules to an object
file, an object file to addresses.

No Numba here: a process that finds its object files on disk never imports it. LLVM runs once over a
whole module, without its vectorisers: everything is vectors already.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm
from llvmlite import ir

from rnnspec.backends.cpu import foreign
from rnnspec.backends.cpu.processor import Processor
from rnnspec.storage.cache import cpu

# of `outer`: rows summed in one go, columns of A and of B packed for them; 192 to 384 rows and 96
# to 384 columns of A differ by 5 %
BLOCK_K, BLOCK_M, BLOCK_N = 256, 96, 256
# and elements between the columns of tiles, or all would fall on the same lines of the first cache
APART = 16


# which terms of a product count: all; those whose factor from A, or from B, is not 0. 0 * NaN is
# then 0: what a branch that was not taken multiplies leaves no trace
ALL, WHERE_A, WHERE_B = 0, 1, 2


# numbers that tell `pack` (runtime/moves.py) of one matrix or vector: its address and two strides,
# and what depends on sizes alone
JOB = 14
# and that tell `row_sums` (runtime/products.py) of one outer product
ROW_JOB = 13


def descriptor_fields(operands: int) -> int:
    """How many fields the descriptor of a panel has (runtime/products.py says which)."""
    return 48 + 4 * operands


@cache
def host() -> Processor:
    """The processor that `cpu()` names: this machine's."""
    return processor(llvm.get_process_triple(), *cpu())


@cache
def brand() -> str:
    """The processor's name, as its maker has it."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(errors="replace"), re.MULTILINE)
    except OSError:  # not Linux
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()


@cache
def processor(triple: str, name: str, features: str = "") -> Processor:
    """A processor by LLVM's names, this machine's or another.

    LLVM is asked by compiling a multiply-add of 64 bytes and looking at the registers it chose:
    names and feature lists (NUMBA_CPU_NAME, tuning that prefers 256 bits) then need no
    interpretation of ours.
    """
    wide = ir.VectorType(ir.FloatType(), 16)
    module = ir.Module()
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [wide.as_pointer()] * 3), "probe")
    builder = ir.IRBuilder(function.append_basic_block())
    values = [builder.load(pointer, align=4) for pointer in function.args]
    multiply_add = ir.Function(module, ir.FunctionType(wide, [wide] * 3), "llvm.fmuladd.v16f32")
    builder.store(builder.call(multiply_add, values), function.args[2], align=4)
    builder.ret_void()
    text = _target_machine(triple, name, features).emit_assembly(llvm.parse_assembly(str(module)))
    size = 64 if "%zmm" in text else 32 if "%ymm" in text else 16
    x86 = "%xmm" in text or size > 16
    registers = 16 if x86 and size < 64 else 32
    return Processor(triple, name, features, size, registers, "vfmadd" in text or "fmla" in text)


_TARGET: ContextVar[Processor | None] = ContextVar("target", default=None)


def target() -> Processor:
    """The processor that code is being made for: `host()`, but within `made_for`."""
    return _TARGET.get() or host()


@contextmanager
def made_for(other: Processor) -> Iterator[Processor]:
    """Code that is made within is another processor's: to look at, for it cannot be loaded here."""
    token = _TARGET.set(other)
    try:
        yield other
    finally:
        _TARGET.reset(token)


def _target_machine(triple: str, name: str, features: str) -> llvm.TargetMachine:
    if triple == llvm.get_process_triple():
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    else:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    x86 = triple.startswith(("x86", "i386", "i686"))
    reloc = "static" if x86 else "default"  # as Numba's: LLVM's linker in memory asks for it
    return llvm.Target.from_triple(triple).create_target_machine(
        name, features, opt=3, reloc=reloc, codemodel="jitdefault", jit=True
    )


def object_file(texts: Sequence[str], names: Sequence[str], finished: Sequence[str] = ()) -> bytes:
    """The machine code of LLVM modules linked together, of which the functions `names` can be
    called.

    finished: modules that are written as well as LLVM could. Its work on the many variants of a
    product costs more than all else, and its unrolling of their loops asks for more registers than
    there are: for Zen 3 a sum of most tiles stood in memory, at half the speed.
    """
    machine, module = _compiled(texts, names, finished)
    content = bytes(machine.emit_object(module))
    foreign.refuse_others(foreign.undefined(content))
    return content


def assembly(texts: Sequence[str], names: Sequence[str], finished: Sequence[str] = ()) -> str:
    """What `object_file` makes, for people and tests to read."""
    machine, module = _compiled(texts, names, finished)
    return str(machine.emit_assembly(module))


def _compiled(
    texts: Sequence[str], names: Sequence[str], finished: Sequence[str]
) -> tuple[llvm.TargetMachine, llvm.ModuleRef]:
    made = target()
    machine = _target_machine(made.triple, made.name, made.features)
    module, rest = _linked(texts), [llvm.parse_assembly(text) for text in finished]
    for part in (module, *rest):
        part.triple, part.data_layout = made.triple, str(machine.target_data)
    _hide(module, names)
    options = llvm.create_pipeline_tuning_options(speed_level=2)  # 3 takes half as much again, for nothing
    options.loop_vectorization = options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    few = llvm.create_new_module_pass_manager()
    few.add_instruction_combine_pass()
    few.add_simplify_cfg_pass()
    for part in rest:
        few.run(part, builder)
        module.link_in(part)
    _hide(module, names)
    return machine, module


def _linked(texts: Sequence[str]) -> llvm.ModuleRef:
    module, *others = [llvm.parse_assembly(text) for text in texts]
    for other in others:
        module.link_in(other)
    module.verify()
    return module


def _hide(module: llvm.ModuleRef, names: Sequence[str]) -> None:
    for value in (*module.functions, *module.global_variables):
        if not value.is_declaration and value.name not in names:
            value.linkage = llvm.Linkage.internal


@dataclass(frozen=True, eq=False)
class MachineCode:
    """Functions of an object file in memory, which it stays in while somebody holds this.

    addresses: of the functions, in the order in which they were asked for. size: of the object
    file, in bytes.
    """

    name: str
    addresses: tuple[int, ...]
    size: int
    engine: llvm.ExecutionEngine = field(repr=False)


def load(name: str, content: bytes, functions: Iterable[str]) -> MachineCode:
    """The functions of an object file, in memory. name: a few words for people."""
    # sections may end up too far from each other there; as in Numba
    lmm = platform.machine().lower() in ("arm64", "aarch64")  # "ARM64" on Windows
    here = host()
    engine = llvm.create_mcjit_compiler(
        llvm.parse_assembly(""), _target_machine(here.triple, here.name, here.features), use_lmm=lmm
    )
    foreign.find(foreign.undefined(content))
    engine.add_object_file(llvm.ObjectFileRef.from_data(content))
    engine.finalize_object()
    return MachineCode(name, tuple(engine.get_function_address(f) for f in functions), len(content), engine)
