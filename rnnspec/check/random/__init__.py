"""Random specs, valid and broken, and sending them through every stage."""
