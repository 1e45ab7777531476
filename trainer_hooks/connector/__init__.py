"""The connector: which callbacks take part, in which order, under which state key.

It never sees the Trainer and imports no torch.
"""
