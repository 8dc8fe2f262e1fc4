"""The one place where the CUDA compiler is imported (with numba_passes.py, which makes it fast):
numba-cuda, whose successor would be too.

Kernels are compiled to PTX; running them (driver.py) needs no compiler. What texts call beside
Python: `select` and `larger`; `add_products` and its like, for which a thousand lines would take
minutes to compile; and, for blocks that wait for each other, `arrive`, `arrived` and `fresh`, which
the compiler neither moves nor drops, and which the cache of a processor does not answer.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from rnnspec.backends.cuda.compile.numba_passes import few_passes
from rnnspec.errors import BackendUnavailable
from rnnspec.storage.locks import Lock

if not hasattr(np, "row_stack"):  # numba-cuda 0.30 imports it; NumPy 2.5 took it away
    np.row_stack = np.vstack  # type: ignore[attr-defined]

try:
    import numba.cuda.dispatcher
    import numba_cuda  # noqa: F401 - Numba's own target, which it replaces, knows no launch bounds
    from llvmlite import ir
    from numba import config, cuda, float32, float64, int32, int64, types, uint32, uint64
    from numba.cuda import cgutils, libdevice
    from numba.cuda.extending import intrinsic
except ImportError as error:
    raise BackendUnavailable(
        f"backend 'cuda' needs numba-cuda to compile its kernels, and importing it failed: {error}. "
        "Install it with: pip install 'rnnspec[cuda]'."
    ) from error

__all__ = [
    "add_kept_products",
    "add_products",
    "arrive",
    "arrived",
    "compile_ptx",
    "cuda",
    "float32",
    "float64",
    "fresh",
    "int32",
    "int64",
    "larger",
    "libdevice",
    "select",
    "uint32",
    "uint64",
]

REALS = {"float32": float32, "float64": float64}
IN_GLOBAL = 1  # the address space, as LLVM numbers them


@cuda.jit(device=True)
def select(condition: Any, yes: Any, no: Any) -> Any:
    return yes if condition else no


@cuda.jit(device=True)
def larger(a: Any, b: Any) -> Any:
    """NaN if either is."""
    return a if a >= b or a != a else b


def _adding(kept: bool) -> Any:
    def adding(typing: Any, values: Any, at: Any, apart: Any, sums: Any, *weights: Any) -> Any:
        """(values, at, apart, sums, *weights) -> sums[r] + the sum over k of weights[k] *
        values[at + r * apart + k], for each r; kept: a value of 0 leaves its weight out, be that
        NaN.

        at and apart are whole vectors of 16 bytes, of which each is one load."""
        whole = 128 // values.dtype.bitwidth

        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            start = context.make_array(values)(context, builder, value=args[0]).data
            totals, factors = (
                cgutils.unpack_tuple(builder, args[i], count) for i, count in ((3, len(sums)), (4, len(weights)))
            )
            rows = [
                builder.gep(start, [builder.add(args[1], builder.mul(args[2], args[2].type(r)))])
                for r in range(len(totals))
            ]
            for first in range(0, len(factors), whole):
                for r, row in enumerate(rows):
                    count, place = min(whole, len(factors) - first), builder.gep(row, [args[1].type(first)])
                    for factor, element in zip(factors[first:], _elements(builder, place, count, whole)):
                        term, zero = builder.fmul(factor, element), ir.Constant(element.type, 0.0)
                        if kept:
                            term = builder.select(builder.fcmp_ordered("==", element, zero), zero, term)
                        totals[r] = builder.fadd(totals[r], term)
            return context.make_tuple(builder, sums, totals)

        return sums(values, at, apart, sums, types.StarArgTuple(weights)), code

    return intrinsic(adding)


add_products, add_kept_products = _adding(False), _adding(True)


def _elements(builder: Any, place: Any, count: int, whole: int) -> list[Any]:
    """The first numbers of a vector."""
    if count < whole:
        return [builder.load(builder.gep(place, [ir.IntType(64)(i)])) for i in range(count)]
    vector = builder.load(builder.bitcast(place, ir.VectorType(place.type.pointee, whole).as_pointer()), align=16)
    return [builder.extract_element(vector, ir.IntType(32)(i)) for i in range(whole)]


def _add_products(values: Any, at: int, apart: int, sums: tuple[float, ...], *weights: float) -> tuple[float, ...]:
    found = list(sums)
    for r in range(len(found)):
        for k, weight in enumerate(weights):
            found[r] = found[r] + weight * values[int(at + r * apart) + k]
    return tuple(found)


def _add_kept_products(values: Any, at: int, apart: int, sums: tuple[float, ...], *weights: float) -> tuple[float, ...]:
    found = list(sums)
    for r in range(len(found)):
        for k, weight in enumerate(weights):
            value = values[int(at + r * apart) + k]
            found[r] = found[r] + (weight * value if value != 0 else value)
    return tuple(found)


if config.ENABLE_CUDASIM:  # where Python itself runs the texts
    add_products, add_kept_products = _add_products, _add_kept_products


def _instruction(text: str, constraints: str, result: Any, builder: Any, pointer: Any, index: Any) -> Any:
    """Emits one PTX instruction that has the address of an element in global memory as its last
    operand."""
    element = builder.gep(pointer, [index])
    place = builder.addrspacecast(element, ir.PointerType(element.type.pointee, addrspace=IN_GLOBAL))
    kind = ir.FunctionType(result, [place.type])
    return builder.call(ir.InlineAsm(kind, text, f"{constraints}l,~{{memory}}", side_effect=True), [place])


@intrinsic
def arrive(typing: Any, counters: Any, index: Any) -> Any:
    """arrive(counters, index): adds one."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _instruction("red.relaxed.gpu.global.add.u64 [$0], 1;", "", ir.VoidType(), builder, *args)
        return context.get_dummy_value()

    return types.void(counters, index), code


@intrinsic
def arrived(typing: Any, counters: Any, index: Any) -> Any:
    """arrived(counters, index): what stands there now."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _instruction("ld.relaxed.gpu.global.u64 $0, [$1];", "=l,", ir.IntType(64), builder, *args)

    return uint64(counters, index), code


@intrinsic
def fresh(typing: Any, values: Any, index: Any) -> Any:
    """fresh(values, index): the 16 bytes from there on, as two or four numbers; they may be what
    another block has just written."""
    real, letter, kind, count = (
        (values.dtype, "f", "f32", 4) if values.dtype == float32 else (values.dtype, "d", "f64", 2)
    )
    found = types.UniTuple(real, count)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        text = f"ld.relaxed.gpu.global.v{count}.{kind} {{{', '.join(f'${i}' for i in range(count))}}}, [${count}];"
        result = ir.LiteralStructType([context.get_value_type(real)] * count)
        loaded = _instruction(text, f"={letter}," * count, result, builder, *args)
        return context.make_tuple(builder, found, [builder.extract_value(loaded, i) for i in range(count)])

    return found(values, index), code


@contextlib.contextmanager
def _device(capability: tuple[int, int]) -> Iterator[None]:
    """Compiling asks which device is current, to know its capability: in here it is the one that
    the code is for, be there a device or not."""
    with _LOCK:
        asked = numba.cuda.dispatcher.get_current_device
        numba.cuda.dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=capability, id=0)
        try:
            yield
        finally:
            numba.cuda.dispatcher.get_current_device = asked


_LOCK = Lock()


def compile_ptx(
    kernel: Callable[..., None], dtype: str, kinds: Sequence[str], capability: tuple[int, int], threads: int
) -> tuple[str, str]:
    """The PTX of a kernel, and the name of its entry. dtype: "float32" or "float64", which "real"
    is; kinds: of its arguments, "real*", "real**", "index*" or "index"; capability: of the GPU that
    it is for; threads: the most of a block."""
    real = REALS[dtype]
    kind_types = {
        "real*": types.CPointer(real),
        "real**": types.CPointer(types.CPointer(real)),
        "index*": types.CPointer(uint64),
        "index": uint64,
    }
    try:
        with _device(capability), few_passes():
            made, _ = cuda.compile(
                kernel,
                types.void(*(kind_types[k] for k in kinds)),
                cc=capability,
                device=False,
                abi="numba",
                output="ptx",
                launch_bounds=threads,
            )
    except Exception as error:
        if "libNVVM" in str(error) or ("nvvm" in str(error).lower() and "not found" in str(error).lower()):
            raise BackendUnavailable(
                f"backend 'cuda' can't compile: {error}. Install the compiler with: pip install 'rnnspec[cuda]'."
            ) from error
        raise
    text = made if isinstance(made, str) else made.decode()
    entry = re.search(r"\.entry\s+([\w$]+)", text)
    assert entry is not None
    return text, entry[1]
