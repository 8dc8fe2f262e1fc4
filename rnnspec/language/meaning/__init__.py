"""What the things that a file says mean together: a Document to a Spec."""
