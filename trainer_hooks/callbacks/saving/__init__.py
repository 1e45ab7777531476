"""Callbacks that save and load checkpoints of a run, and the retention of saved files."""
