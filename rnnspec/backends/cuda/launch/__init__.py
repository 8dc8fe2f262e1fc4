"""Everything about a call on a GPU: the driver, memory, foreign arrays, execution."""
