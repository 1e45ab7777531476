"""The checkpoint that a run starts from: found, read, checked and restored."""
