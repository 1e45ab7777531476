"""Callbacks that end a run."""
