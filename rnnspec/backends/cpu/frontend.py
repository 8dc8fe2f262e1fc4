"""Numba's front end alone: functions of int64 arguments in Numba's Python become the text of LLVM
modules.

In: functions that return nothing and call nothing but intrinsics, `range` and arithmetic. Out:
texts that, linked, have a C function `void name(int64, ...)` for each; nothing is optimised or
compiled here (native.py does that).

All of Numba costs three times this: LLVM goes over every function once and over every module twice,
wrappers for Python are compiled, and registries are loaded that import all of NumPy's and SciPy's
counterparts. What is kept is its type inference and lowering.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils, codegen, compiler, cpu, typed_passes, typing, untyped_passes
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager
from numba.core.target_extension import CPU, dispatcher_registry, jit_registry, target_override, target_registry

from rnnspec.backends.cpu import machine
from rnnspec.backends.cpu.processor import Processor

TARGET = "rnnspec"


class _Library(codegen.JITCodeLibrary):
    """Keeps the text of what it is given, instead of optimising it."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.texts: list[str] = []

    def add_ir_module(self, module: ir.Module) -> None:
        self.texts.append(cgutils.normalize_ir_text(str(module)))

    def add_linking_library(self, library: Any) -> None:
        raise NotImplementedError(f"{self.name} calls {library.name}: only intrinsics can be called")


class _Codegen(codegen.JITCPUCodegen):
    _library_class = _Library


class _Typing(typing.Context):
    def load_additional_registries(self) -> None:
        """Integers, ranges and intrinsics need no more than what is built in."""


class _Target(cpu.CPUContext):
    def init(self) -> None:
        self.is32bit = False
        self._internal_codegen = _Codegen("rnnspec")

    def load_additional_registries(self) -> None:
        """Imports what the intrinsics and the texts need: these modules register themselves."""
        from numba.cpython import builtins, iterators, numbers, rangeobj, tupleobj  # noqa: F401

    def post_lowering(self, module: ir.Module, library: Any) -> None:
        """Numba's runtime, which counts references, is not linked."""


class _Passes(compiler.CompilerBase):
    """What is left without closures, rewrites, literals, SSA (LLVM makes it again) and reference
    counts."""

    def define_pipelines(self) -> list[PassManager]:
        manager = PassManager("rnnspec")
        for step in (
            untyped_passes.TranslateByteCode,
            untyped_passes.FixupArgs,
            untyped_passes.IRProcessing,
            typed_passes.NopythonTypeInference,
            typed_passes.NativeLowering,
            typed_passes.NoPythonBackend,
        ):
            manager.add_pass(step, step.__name__)
        manager.finalize()
        return [manager]


class _Machine(CPU):
    """The name under which intrinsics find the contexts here, and not those of Numba's own
    compiler."""


@cache
def _registered() -> SimpleNamespace:
    """Where intrinsics look for the contexts."""
    target_registry[TARGET], jit_registry[_Machine] = _Machine, numba.jit
    found = SimpleNamespace(typing_context=None, target_context=None)
    dispatcher_registry[_Machine] = SimpleNamespace(targetdescr=found)
    return found


@cache
def _contexts(made: Processor) -> tuple[_Typing, _Target]:
    """Those of each processor, for what an intrinsic is typed as depends on its lanes."""
    context = _Typing()
    return context, _Target(context, TARGET)


def lower(functions: Mapping[str, Callable[..., None]]) -> list[str]:
    """The texts of LLVM modules with a C function for each of `functions`, by its name."""
    with global_compiler_lock:
        found = _registered()
        context, target = _contexts(machine.target())
        found.typing_context, found.target_context = context, target
        with target_override(TARGET):
            return [text for name, function in functions.items() for text in _lower(name, function, context, target)]


def _lower(name: str, function: Callable[..., None], context: _Typing, target: _Target) -> list[str]:
    flags = compiler.Flags()
    flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
    flags.nrt, flags.error_model = False, "numpy"
    library = target.codegen().create_library(name)
    arguments = (types.int64,) * len(inspect.signature(function).parameters)
    result = compiler.compile_extra(context, target, function, arguments, types.void, flags, {}, library, _Passes)
    library.add_ir_module(_entry(target, name, result.fndesc))
    return library.texts


def _entry(target: _Target, name: str, described: Any) -> ir.Module:
    """A C function that calls one of Numba's calling convention. Its status is dropped: nothing
    there raises."""
    module = target.create_module(name)
    callee = ir.Function(
        module, target.call_conv.get_function_type(described.restype, described.argtypes), described.llvm_func_name
    )
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * len(described.argtypes)), name)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    target.call_conv.call_function(builder, callee, described.restype, described.argtypes, function.args)
    builder.ret_void()
    return module
