"""Data modules, loaders, and the way of a batch from a loader to the device."""
