"""Whether two cells are the same function: `rnnspec diff`."""
