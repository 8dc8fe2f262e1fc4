"""Runs a model in ONNX Runtime beside our kernels, before it is written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.check.tolerances import PACK, PACK_STEADY, ROUNDING
from rnnspec.errors import RnnspecError, UnsupportedError, visible
from rnnspec.export.onnx_graph import Written
from rnnspec.export.onnx_net import Net

STEPS, ROWS, DRAWS = 24, 3, 8
Arrays = dict[str, Array]


class ExportError(RnnspecError):
    """A model that does not give what our kernels give."""


@dataclass(frozen=True)
class Checked:
    """runtime: the version of ONNX Runtime; errors: output -> largest difference, relative to the
    largest value of the run."""

    runtime: str
    errors: Mapping[str, float]


def runtime_package() -> Any:
    """The package `onnxruntime`. Raises UnsupportedError where it is not installed."""
    try:
        import onnxruntime
    except ImportError as error:
        raise UnsupportedError(
            "a model is run in ONNX Runtime before it is written: pip install 'rnnspec[onnx]'"
        ) from error
    return onnxruntime


def session(content: bytes, name: str, dtype: str, library: str = "") -> Any:
    """A session on the CPU. library: a file of further operators. Raises UnsupportedError where
    ONNX Runtime has no kernel for a node."""
    runtime = runtime_package()
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    if library:
        try:
            options.register_custom_ops_library(library)
        except Exception as error:  # a library for another machine, say
            raise UnsupportedError(
                f"ONNX Runtime {runtime.__version__} can't load the operator that was compiled:"
                f" {visible(str(error))[:500]}"
            ) from error
    with _named(name, dtype):
        return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


@contextmanager
def _named(name: str, dtype: str) -> Iterator[None]:
    """An error of ONNX Runtime that is about a kernel it lacks, as one of ours; some are lacking
    only when a node runs."""
    try:
        yield
    except Exception as error:
        lacks = re.search(r"implementation for (\w+)\(\d+\) node with name '([^']*)'", str(error)) or re.search(
            r"running (\w+) node\. Name:'([^']*)' Status Message: \w+ operator does not support", str(error)
        )
        if lacks is None:
            raise
        raise UnsupportedError(
            f"ONNX Runtime {runtime_package().__version__} has no kernel of {lacks[1]} in {dtype}, which the node"
            f" '{lacks[2]}' of {name} needs.{' Export it in float32.' if dtype == 'float64' else ''}"
        ) from error


def check(content: bytes, written: Written, net: Net, seed: int = 0, library: str = "") -> Checked:
    """Compares all outputs with those of our kernels, on sequences of STEPS steps of ROWS rows, of
    different lengths where the model reads lengths. Raises ExportError where they differ by more
    than what a conformance pack allows, UnsupportedError for a node without a kernel."""
    ready = session(content, net.name, net.dtype.name, library)
    given, expected = _steady(written, net, seed)
    with _named(net.name, net.dtype.name):
        found = dict(zip(written.outputs, ready.run(None, given)))
    errors, most, scale = {}, PACK[net.dtype.name][0], _largest(expected.values()) or 1.0
    for name, right in zip(written.outputs, expected.values()):
        if found[name].shape != right.shape:
            raise ExportError(f"{net.name}: '{name}' has the shape {found[name].shape}, expected {right.shape}.")
        errors[name] = float(np.abs(found[name].astype(np.float64) - right).max(initial=0.0)) / scale
        if not errors[name] <= most:
            raise ExportError(
                f"{net.name}: '{name}' differs by {errors[name]:.2g} of the largest value in ONNX Runtime"
                f" {runtime_package().__version__}, and {most:.2g} are allowed. Nothing was written."
            )
    return Checked(str(runtime_package().__version__), errors)


def _steady(written: Written, net: Net, seed: int) -> tuple[Arrays, Arrays]:
    """Inputs at which all outputs are finite, and which rounded otherwise move them by a part of
    what is allowed; and the outputs there."""
    unit, most = ROUNDING[net.dtype.name], PACK[net.dtype.name][0] * PACK_STEADY
    for draw in range(DRAWS):
        rng = np.random.default_rng([seed, draw])
        given = _inputs(written, net, rng, 0.1 if draw % 4 == 3 else -1.0)
        expected = _expected(written, net, given)
        if not all(np.isfinite(a).all() for a in expected.values()):
            continue
        moved = {n: a if a.dtype != net.dtype else a * (1 + unit * rng.integers(-2, 3, a.shape)).astype(a.dtype)
                 for n, a in given.items()}  # fmt: skip
        gaps = [a - b for a, b in zip(_expected(written, net, moved).values(), expected.values())]
        if _largest(gaps) <= most * _largest(expected.values()):
            return given, expected
    raise ExportError(
        f"{net.name} was not compared: in {DRAWS} draws no inputs were found at which it is finite and rounding alone"
        " does not move it by more than is allowed."
    )


def _largest(arrays: Iterable[Array]) -> float:
    return max((float(np.abs(a).max(initial=0.0)) for a in arrays), default=0.0)


def _inputs(written: Written, net: Net, rng: np.random.Generator, low: float) -> Arrays:
    """Inputs by the model's names."""
    dims = {"T": STEPS, "B": ROWS}
    values: dict[str, Array] = {}
    for name, (dtype, shape) in written.inputs.items():
        full = tuple(dims[n] if isinstance(n, str) else n for n in shape)
        if name == written.lengths:
            values[name] = np.linspace(1, STEPS, ROWS).astype(np.int64)[::-1].copy()
        elif dtype == "int64":
            most = len(net.table) if net.table is not None and name in written.sequences.values() else 4
            values[name] = rng.integers(0, most, full)
        else:
            values[name] = rng.uniform(low, 1.0, full).astype(dtype)
    return values


def _expected(written: Written, net: Net, values: Arrays) -> Arrays:
    """What our kernels give, in the model's order."""
    inputs = {own: values[name] for own, name in written.sequences.items()}
    inputs = {own: np.swapaxes(a, 0, 1) if net.batch_first else a for own, a in inputs.items()}
    states = {own: values[name] for own, name in written.states.items()}
    with np.errstate(all="ignore"):
        made = net.definition(inputs, states, values.get(written.lengths))
    expected = {}
    for name in (*(("y",) if net.head else net.outputs), *(f"final_{s}" for s in net.states)):
        turn = net.batch_first and name in net.outputs
        expected[name] = np.swapaxes(made[name], 0, 1) if turn else made[name]
    return expected
