"""Drawings of cells as SVG: a step, its backward pass, three steps in a row."""

VIEWS = ("step", "backward", "unrolled")
