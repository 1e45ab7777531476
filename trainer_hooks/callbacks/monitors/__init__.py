"""Callbacks that log or record how a training runs: rates, norms, memory, traces."""
