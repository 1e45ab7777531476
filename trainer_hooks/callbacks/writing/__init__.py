"""Callbacks that write what a module predicts."""
