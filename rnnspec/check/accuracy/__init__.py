"""How far kernels and functions are from values of 50 digits, in units in the last place."""
