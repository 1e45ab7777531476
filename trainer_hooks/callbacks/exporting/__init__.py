"""Modules as others can run them, and runs as others can compare them."""
