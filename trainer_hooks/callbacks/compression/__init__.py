"""Callbacks that compress a module: pruning and quantization."""
