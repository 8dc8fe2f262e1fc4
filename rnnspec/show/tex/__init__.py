"""A cell's equations, its gradients and its declarations as LaTeX."""

PARTS = ("forward", "backward", "parameters", "document")
CONSTANTS = ("symbols", "numbers")
