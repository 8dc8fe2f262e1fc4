"""Text to PTX and machine code of a GPU."""
