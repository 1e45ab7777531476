"""Callbacks that choose how much is run, and when."""
