"""Callbacks that put modules where, and as, they are to run."""
