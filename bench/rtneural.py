"""RTNeural's compile-time layers beside the exported C: same weights, same inputs.

The headers are the user's (a checkout of RTNeural); the driver below is compiled against them by
g++ -O3 -march=native, once per backend whose library the compiler finds. Weights go in as Keras
has them: [inputs, gates * H], LSTM's gates i, f, c, o with one bias, GRU's z, r, h with two.
"""

from __future__ import annotations

import argparse
import ctypes
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

NEEDED = ("RTNeural/lstm/lstm.h", "RTNeural/gru/gru.h")
COMPILER = "g++"
BUILD = ("-std=c++17", "-O3", "-march=native", "-fPIC", "-shared", "-fno-gnu-unique")
# Eigen refuses a fixed matrix above 128 KiB, which could lie on a stack; the driver's is static
MACROS = ("-DEIGEN_STACK_ALLOCATION_LIMIT=0",)
# where a checkout has the libraries of its backends, and where systems have Eigen
INCLUDES = ("", "modules", "modules/Eigen", "modules/xsimd/include")
SYSTEM = ("/usr/include/eigen3", "/usr/local/include/eigen3")
# a backend's macro, the header of its library, and the alignment of its vectors: 64 bytes are
# AVX-512's, which -march=native may bring
BACKENDS = {"eigen": ("RTNEURAL_USE_EIGEN", "Eigen/Dense", 32), "xsimd": ("RTNEURAL_USE_XSIMD", "xsimd/xsimd.hpp", 64)}
# above the rounding of a tanh and exp of a few units in the last place, over the compared steps
TOLERANCE, COMPARED = 1e-4, 64


class Kind(NamedTuple):
    """A layer of RTNeural: its class, its gates as places in torch's order, and its biases."""

    layer: str
    gates: tuple[int, ...]
    biases: int


KINDS = {"lstm": Kind("LSTMLayerT", (0, 1, 2, 3), 1), "gru": Kind("GRULayerT", (1, 0, 2), 2)}

DRIVER = """\
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>
@HEADERS@

namespace {
using Rows = std::vector<std::vector<float>>;
constexpr int hidden = @HIDDEN@, gates = @GATES@, biases = @BIASES@;
struct Stack {
@MEMBERS@
};
alignas(64) Stack stack;

Rows rows(const float*& from, int count) {
    Rows made;
    for (int i = 0; i < count; ++i, from += gates * hidden) made.emplace_back(from, from + gates * hidden);
    return made;
}

template <typename Layer>
void load(Layer& layer, const float*& from) {
    layer.setWVals(rows(from, Layer::in_size));
    layer.setUVals(rows(from, hidden));
    Rows bias = rows(from, biases);
    if constexpr (biases == 1) layer.setBVals(bias[0]);
    else layer.setBVals(bias);
    layer.reset();
}
}

extern "C" void driver_load(const float* weights) {
@LOADS@
}

extern "C" void driver_block(std::size_t steps, const float* x, float* y) {
    for (std::size_t t = 0; t < steps; ++t, y += hidden) {
#if RTNEURAL_USE_EIGEN
        Eigen::Matrix<float, 1, 1> in;
        in(0) = x[t];
#else
        xsimd::simd_type<float> in[1] = {xsimd::simd_type<float>(x[t])};
#endif
@STEPS@
#if RTNEURAL_USE_EIGEN
        std::copy(stack.@LAST@.outs.data(), stack.@LAST@.outs.data() + hidden, y);
#else
        const float* from = reinterpret_cast<const float*>(stack.@LAST@.outs);
        std::copy(from, from + hidden, y);
#endif
    }
}
"""


def driver(cell: str, layers: int, hidden: int) -> str:
    """The C++ of a stack with one input. cell: one of KINDS."""
    kind = KINDS[cell]
    sizes, names = [1, *[hidden] * (layers - 1)], [f"l{i}" for i in range(layers)]
    inputs = ["in", *(f"stack.{n}.outs" for n in names[:-1])]
    parts = {
        "HEADERS": "\n".join(f"#include <{name}>" for name in NEEDED),
        "HIDDEN": str(hidden),
        "GATES": str(len(kind.gates)),
        "BIASES": str(kind.biases),
        "MEMBERS": "\n".join(
            f"    RTNeural::{kind.layer}<float, {size}, {hidden}> {n};" for n, size in zip(names, sizes, strict=True)
        ),
        "LOADS": "\n".join(f"    load(stack.{n}, weights);" for n in names),
        "STEPS": "\n".join(f"        stack.{n}.forward({x});" for n, x in zip(names, inputs, strict=True)),
        "LAST": names[-1],
    }
    text = DRIVER
    for name, part in parts.items():
        text = text.replace(f"@{name}@", part)
    return text


def weights(cell: str, params: Mapping[str, np.ndarray], layers: int) -> np.ndarray:
    """All numbers as `driver_load` reads them, from parameters that torch's module would have."""
    kind, parts = KINDS[cell], []
    for i in range(layers):
        w, u, b, c = (
            np.concatenate([np.split(params[f"{name}_l{i}"], len(kind.gates))[gate] for gate in kind.gates])
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        parts += [w.T, u.T, b + c] if kind.biases == 1 else [w.T, u.T, b, c]
    return np.concatenate([part.ravel() for part in parts]).astype(np.float32)


def folder(text: str) -> str:
    """--rtneural's argument. Raises argparse.ArgumentTypeError where headers or g++ are missing."""
    missing = [name for name in NEEDED if not (Path(text) / name).is_file()]
    if missing:
        raise argparse.ArgumentTypeError(
            f"{text} has no {' and no '.join(missing)}: expected a checkout of RTNeural, the folder above RTNeural/"
        )
    if shutil.which(COMPILER) is None:
        raise argparse.ArgumentTypeError(f"there is no {COMPILER} on the path, which compiles RTNeural's layers")
    if not backends(text):
        raise argparse.ArgumentTypeError(
            f"{COMPILER} finds neither {' nor '.join(header for _, header, _ in BACKENDS.values())}, in {text}/modules"
            " or elsewhere: install Eigen or xsimd"
        )
    return str(Path(text).resolve())


def _includes(checkout: str) -> list[str]:
    places = [*(Path(checkout) / part for part in INCLUDES), *map(Path, SYSTEM)]
    return [f"-I{place}" for place in places if place.is_dir()]


def backends(checkout: str) -> list[str]:
    """Those of BACKENDS whose library the compiler finds."""

    def found(header: str) -> bool:
        command = [COMPILER, "-std=c++17", *_includes(checkout), "-E", "-x", "c++", "-", "-o", "/dev/null"]
        return subprocess.run(command, input=f"#include <{header}>\n", text=True, capture_output=True).returncode == 0

    return [name for name, (_, header, _) in BACKENDS.items() if found(header)]


def calls(checkout: str, case: tuple[str, int, int], layer: Any, x: np.ndarray, place: Path) -> dict[str, Any]:
    """Per backend what `bench.export` times: name -> (call, steps). Values are compared first.

    case: a cell of KINDS, layers, H; layer: the rnnspec.Recurrent of it with one input;
    x: [T, 1, 1] float32.
    """
    cell, layers, _ = case
    (place / "driver.cpp").write_text(driver(*case))
    numbers, want = weights(cell, layer.params, layers), layer.infer(x[:COMPARED])[0][:, 0]
    return {f"RTNeural {name}": _call(checkout, name, numbers, x, want, place) for name in backends(checkout)}


def _call(checkout: str, backend: str, numbers: np.ndarray, x: np.ndarray, want: np.ndarray, place: Path) -> Any:
    macro, _, alignment = BACKENDS[backend]
    file = place / f"{backend}.so"
    macros = [*MACROS, f"-D{macro}=1", f"-DRTNEURAL_DEFAULT_ALIGNMENT={alignment}"]
    command = [COMPILER, *BUILD, *macros, *_includes(checkout), "driver.cpp", "-o", str(file)]
    subprocess.run(command, cwd=place, check=True)
    library = ctypes.CDLL(str(file))
    y = np.zeros((len(x), want.shape[1]), np.float32)
    pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (numbers, x, y)]
    library.driver_load(pointers[0])
    block, count = library.driver_block, ctypes.c_size_t(len(x))
    block(count, *pointers[1:])
    np.testing.assert_allclose(y[: len(want)], want, atol=TOLERANCE, err_msg=f"RTNeural with {backend}")
    # y is named that it lives as long as the call
    return lambda y=y: block(count, *pointers[1:]), len(x)
