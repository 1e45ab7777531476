"""The options of a Trainer, their rules and their defaults."""
