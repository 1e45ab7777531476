"""Checkpoints: what they hold, and writing and reading them safely."""
