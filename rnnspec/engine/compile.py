"""Compiling a cell: `compile`, and which backend's kernels it gives."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec

import numpy as np

from rnnspec.engine.kernel import Kernel
from rnnspec.engine.settings import known_memory, whole_threads
from rnnspec.errors import BackendUnavailable
from rnnspec.language.load import load
from rnnspec.language.spec import Spec
from rnnspec.storage.locks import making


def compile(
    spec: Spec | str | os.PathLike[str],
    /,
    *,
    dtype: str = "float32",
    backend: str = "cpu",
    threads: int | None = None,
    memory: str = "full",
    tier: int | None = None,
    **settings: object,
) -> Kernel:
    """A Kernel for a cell.

    spec: a Spec, or a name or path for `load` (`settings` are its choices and constants).
    dtype: "float32" or "float64".
    backend: "cpu"; "cuda", an NVIDIA GPU (see rnnspec.engine.cuda); "auto", a GPU where there is
        one that will do and numba-cuda is installed, else the CPU, and the CPU too where `threads`
        or memory="low" ask for it.
    threads: how many threads of the CPU a call may use, where they pay, as measured on this
        machine; None for RNNSPEC_THREADS or all processors this process may use.
    memory: what `forward` keeps for `backward`. "full": what it computed; "low": the states of some
        sqrt(T) steps, from which `backward` runs forward once more (a third more time, and inputs
        must not be changed in between).
    tier: which kernels a GPU runs, as `rnnspec show NAME --stage cuda` lists them; None for what
        fits.

    Machine code is made at the first call of each kind (forward, backward, infer), once for all
    shapes, and kept on disk.

    Raises SpecError for a bad spec, UnsupportedError for one that the kernels can't run yet,
    ValueError for other dtypes, BackendUnavailable, with the reason, for a backend that can't run
    here.
    """
    spec, number = _loaded(spec, settings), _number(dtype)
    threads, memory = whole_threads(threads), known_memory(memory)
    if backend not in _BACKENDS:
        raise BackendUnavailable(f"there is no backend {backend!r}: choose {', '.join(map(repr, _BACKENDS))}.")
    with making:  # backends are imported when first asked for
        return _BACKENDS[backend](spec, number, threads, memory, tier)


def _loaded(spec: object, settings: Mapping[str, object]) -> Spec:
    if not isinstance(spec, Spec | str | os.PathLike):
        raise TypeError(f"compile takes a Spec, a cell's name or the path of a YAML file; got {type(spec).__name__}.")
    if not isinstance(spec, Spec):
        return load(spec, **settings)
    if settings:
        raise TypeError(
            f"choices and constants ({', '.join(settings)}) are given to rnnspec.load, which made this Spec."
        )
    return spec


def _number(dtype: str | None) -> np.dtype:
    try:
        name = np.dtype(dtype).name if dtype is not None else "None"
    except TypeError:
        name = str(dtype)
    if name not in ("float32", "float64"):
        raise ValueError(f"dtype {name!r} is not supported: choose 'float32' or 'float64'.")
    return np.dtype(name)


def _cpu(spec: Spec, dtype: np.dtype, threads: int | None, memory: str, tier: int | None) -> Kernel:
    if tier is not None:
        raise ValueError("tier chooses among the kernels of a GPU: leave it out on the CPU.")
    from rnnspec.engine.cpu import CpuKernel

    return CpuKernel(spec, dtype, threads, memory)


def _cuda(spec: Spec, dtype: np.dtype, threads: int | None, memory: str, tier: int | None) -> Kernel:
    from rnnspec.engine.cuda import CudaKernel, check_settings

    check_settings(threads, memory)
    return CudaKernel(spec, dtype, tier)


def _auto(spec: Spec, dtype: np.dtype, threads: int | None, memory: str, tier: int | None) -> Kernel:
    if threads is not None or memory != "full":  # no GPU has these, so they ask for the CPU
        return _cpu(spec, dtype, threads, memory, tier)
    if find_spec("numba_cuda") is None:  # a driver alone compiles nothing
        return _cpu(spec, dtype, threads, memory, None)
    try:
        return _cuda(spec, dtype, threads, memory, tier)
    except BackendUnavailable:
        return _cpu(spec, dtype, threads, memory, None)


_BACKENDS = {"cpu": _cpu, "cuda": _cuda, "auto": _auto}
