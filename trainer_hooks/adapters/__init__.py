"""Callbacks and trainers that are written with the names of other frameworks."""
