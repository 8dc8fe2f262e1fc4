"""Program to the text of a kernel."""
