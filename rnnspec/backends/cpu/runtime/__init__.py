"""What every kernel calls: vectors, register tiles, moves of rows, passes of training."""
