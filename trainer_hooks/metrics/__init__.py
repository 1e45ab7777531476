"""Logged metrics: aggregated over an epoch, reduced over ranks, and kept as a history."""
