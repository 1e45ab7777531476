"""The runtime of a run: device, precision, ranks, strategies, random state."""
