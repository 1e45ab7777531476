"""Callbacks that keep a run from harm."""
