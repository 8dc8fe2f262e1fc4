"""Stages of a program as texts of kernels that are launched one by one."""
