"""The properties that `rnnspec check` checks, each a function of one cell."""
