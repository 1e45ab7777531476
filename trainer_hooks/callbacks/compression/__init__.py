"""Callbacks that make a module smaller: pruning and quantization."""
