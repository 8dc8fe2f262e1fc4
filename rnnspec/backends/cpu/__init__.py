"""Kernels for the CPU: texts for Numba, compiled once for all sizes, run on the library's own
threads."""
