"""The command `checkpoint`: what is in a file, and what may be done with it."""
