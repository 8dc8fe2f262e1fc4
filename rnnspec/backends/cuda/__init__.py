"""Kernels for NVIDIA GPUs: texts for Numba, in three tiers."""
