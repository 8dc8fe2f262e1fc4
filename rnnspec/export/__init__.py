"""Cells and layers as programs that need no Python: `c` makes one file of C99 and its header,
`wasm` WebAssembly of that, `learner` C that learns, `onnx` a model of ONNX."""

from rnnspec.export.c import CSource, c
from rnnspec.export.learn import Learner, learner
from rnnspec.export.onnx import OnnxModel, onnx
from rnnspec.export.wasm import WasmModule, wasm

__all__ = ["CSource", "Learner", "OnnxModel", "WasmModule", "c", "learner", "onnx", "wasm"]
