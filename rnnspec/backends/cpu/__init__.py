"""Kernels for the CPU: texts for Numba, compiled once for all sizes, run on threads of the library's own."""
