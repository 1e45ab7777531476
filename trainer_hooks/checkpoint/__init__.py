"""Checkpoint files and folders: encode, write, seal, verify, read, inspect, compare."""
