"""Cells and layers as programs that need no Python: `c` makes one file of C99 and its header,
`onnx` a model of ONNX."""

from rnnspec.export.c import CSource, c
from rnnspec.export.onnx import OnnxModel, onnx

__all__ = ["CSource", "OnnxModel", "c", "onnx"]
