"""The hook catalogue, the relay that fires it, the order of callbacks, and installed plugins."""
