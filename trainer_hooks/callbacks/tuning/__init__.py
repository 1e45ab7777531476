"""Callbacks that choose learning rate, batch size and accumulation window."""
