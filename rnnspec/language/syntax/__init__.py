"""Text to trees with places, and trees to text."""
