"""Module and DataModule, which users subclass, with their logging, optimizers and schedulers."""
