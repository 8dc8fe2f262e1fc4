"""Cells and layers as programs that need no Python: `c` makes one file of C99 and its header,
`wasm` WebAssembly of that, `learner` C that learns, `onnx` a model of ONNX, `ort` an operator of
ONNX Runtime."""

from rnnspec.export.c import CSource, c
from rnnspec.export.learn import Learner, learner
from rnnspec.export.onnx import OnnxModel, onnx
from rnnspec.export.ort import OrtModel, ort
from rnnspec.export.wasm import WasmModule, wasm

__all__ = ["CSource", "Learner", "OnnxModel", "OrtModel", "WasmModule", "c", "learner", "onnx", "ort", "wasm"]
