"""Callbacks that save the run."""
