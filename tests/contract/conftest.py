"""The fixture of the pytest plugin, also where the package is not installed."""

from trainer_hooks.testing.pytest_plugin import callback_contract  # noqa: F401
