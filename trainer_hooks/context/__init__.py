"""The run context: the object that the loops of one run work on, with its parts."""
