"""ONNX through our kernels: an RNN, GRU or LSTM node (`run`, `cells`), or a model file (`load`)."""

from __future__ import annotations

from rnnspec.interop.onnx_cells import NodeError
from rnnspec.interop.onnx_model import Model, load
from rnnspec.interop.onnx_nodes import cells, run

__all__ = ["Model", "NodeError", "cells", "load", "run"]
