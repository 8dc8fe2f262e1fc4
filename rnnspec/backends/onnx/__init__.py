"""A step as operators of ONNX: plain data, for which the package `onnx` is not needed."""
