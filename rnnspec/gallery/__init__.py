"""`rnnspec gallery`: pages of cells, made from their specs, that need nothing but a browser."""
