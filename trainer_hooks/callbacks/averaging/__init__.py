"""Callbacks that average a module's weights during training."""
