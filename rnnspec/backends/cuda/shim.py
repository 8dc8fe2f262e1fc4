"""The one place where the CUDA compiler is imported (with numba_passes.py, which makes it fast): numba-cuda, whose successor would be too.

Kernels are compiled to PTX; running them (driver.py) needs no compiler. `select` and `larger` are what texts call beside Python.
"""
from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from rnnspec.backends.cuda.numba_passes import few_passes
from rnnspec.errors import BackendUnavailable

if not hasattr(np, "row_stack"):  # numba-cuda 0.30 imports it; NumPy 2.5 took it away
    np.row_stack = np.vstack  # type: ignore[attr-defined]

try:
    import numba.cuda.dispatcher
    import numba_cuda  # noqa: F401 - Numba's own target, which it replaces, knows no launch bounds
    from numba import cuda, float32, float64, int32, int64, types, uint32, uint64
    from numba.cuda import libdevice
except ImportError as error:
    raise BackendUnavailable(f"backend 'cuda' needs numba-cuda to compile its kernels, and importing it failed: {error}. "
                             "Install it with: pip install 'rnnspec[cuda]'.") from error

__all__ = ["compile_ptx", "cuda", "float32", "float64", "int32", "int64", "larger", "libdevice", "select", "uint32", "uint64"]

REALS = {"float32": float32, "float64": float64}


@cuda.jit(device=True)
def select(condition: Any, yes: Any, no: Any) -> Any:
    return yes if condition else no


@cuda.jit(device=True)
def larger(a: Any, b: Any) -> Any:
    """NaN if either is."""
    return a if a >= b or a != a else b


@contextlib.contextmanager
def _device(capability: tuple[int, int]) -> Iterator[None]:
    """Compiling asks which device is current, to know its capability: in here it is the one that the code is for, be there a device or not."""
    with _LOCK:
        asked = numba.cuda.dispatcher.get_current_device
        numba.cuda.dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=capability, id=0)
        try:
            yield
        finally:
            numba.cuda.dispatcher.get_current_device = asked


_LOCK = threading.Lock()


def compile_ptx(kernel: Callable[..., None], dtype: str, kinds: Sequence[str], capability: tuple[int, int], threads: int) -> tuple[str, str]:
    """The PTX of a kernel, and the name of its entry. kinds: of its arguments, "real*", "real**", "index*" or "index"."""
    real = REALS[dtype]
    kind_types = {"real*": types.CPointer(real), "real**": types.CPointer(types.CPointer(real)), "index*": types.CPointer(uint64), "index": uint64}
    try:
        with _device(capability), few_passes():
            made, _ = cuda.compile(kernel, types.void(*(kind_types[k] for k in kinds)), cc=capability, device=False, abi="numba", output="ptx",
                                   launch_bounds=threads)
    except Exception as error:
        if "libNVVM" in str(error) or ("nvvm" in str(error).lower() and "not found" in str(error).lower()):
            raise BackendUnavailable(f"backend 'cuda' can't compile: {error}. Install the compiler with: pip install 'rnnspec[cuda]'.") from error
        raise
    text = made if isinstance(made, str) else made.decode()
    entry = re.search(r"\.entry\s+([\w$]+)", text)
    assert entry is not None
    return text, entry[1]
