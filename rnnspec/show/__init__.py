"""Cells as text, LaTeX, JSON and drawings."""
