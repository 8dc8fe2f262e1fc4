"""The whole time loop as the text of one kernel, on one block or on several."""
