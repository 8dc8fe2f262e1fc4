"""Files, the cache of machine code, and modules made from text. Nothing here knows a cell."""
