"""Everything about a call of a kernel: memory, plans, packed weights, threads."""
