"""Callbacks that freeze parts of a module, and train them later."""
