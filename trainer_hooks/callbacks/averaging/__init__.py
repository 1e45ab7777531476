"""Callbacks that average a module's weights over its training."""
