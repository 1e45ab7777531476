"""Checkpoint files and folders: encode, write, seal, verify, read, migrate, inspect, compare."""
