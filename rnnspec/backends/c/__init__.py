"""C99: one step of a cell as a function, with nothing but itself."""
