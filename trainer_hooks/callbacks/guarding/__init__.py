"""Callbacks that guard a training: non-finite values, loss spikes, memory."""
