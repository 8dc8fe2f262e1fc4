"""Kernels as objects that are called: arrays are checked, noise is drawn, weights are packed."""
