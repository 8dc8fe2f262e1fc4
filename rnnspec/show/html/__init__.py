"""Cells as HTML: formulas as MathML, drawings and tables, for notebooks and for pages."""
