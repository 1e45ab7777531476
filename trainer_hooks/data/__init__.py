"""Data: hooks for loaders and batch transfer, loaders, the data stream and its random state."""
