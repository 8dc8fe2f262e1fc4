"""numba-cuda's compiler without what kernels of ours do not need. With it they compile in half the
time or less, to as many instructions.

Two thirds of that time went into looking the same dozen overloads of operators up again for every
statement, and into passes for closures, literals, dead branches and single assignment, which LLVM
makes again anyway.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache
from typing import Any

_KNOWN: dict[Any, Any] = {}


@cache
def _passes() -> type:
    from numba.cuda import compiler
    from numba.cuda.core.compiler_machinery import PassManager

    class Passes(compiler.CompilerBase):  # type: ignore[misc]
        def define_pipelines(self) -> list[Any]:
            manager = PassManager("rnnspec")
            for step in (
                compiler.CUDATranslateBytecode,
                compiler.FixupArgs,
                compiler.IRProcessing,
                compiler.NopythonTypeInference,
                compiler.IRLegalization,
                compiler.CreateLibrary,
                compiler.CUDANativeLowering,
                compiler.CUDABackend,
            ):
                manager.add_pass(step, step.__name__)
            manager.finalize()
            return [manager]

    return Passes


@contextlib.contextmanager
def few_passes() -> Iterator[None]:
    """In here numba-cuda compiles so; other threads' compilations wait."""
    from numba.core.types.functions import BaseFunction
    from numba.cuda import compiler
    from numba.cuda.core.compiler_lock import global_compiler_lock

    resolve = BaseFunction.get_call_type

    def get_call_type(function: Any, context: Any, args: Any, kws: Any) -> Any:
        key = id(function), id(context), tuple(args), tuple(kws.items()) if kws else ()
        if key not in _KNOWN:
            _KNOWN[key] = (
                resolve(function, context, args, kws),
                function,
                context,
            )  # these live as long as their ids are in use
        return _KNOWN[key][0]

    with global_compiler_lock:
        passes = compiler.CUDACompiler
        compiler.CUDACompiler, BaseFunction.get_call_type = _passes(), get_call_type
        try:
            yield
        finally:
            compiler.CUDACompiler, BaseFunction.get_call_type = passes, resolve
