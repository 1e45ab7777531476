"""What `Module.log` says of a call that it cannot do."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from trainer_hooks._log import warn
from trainer_hooks.errors import MetricError, TrainerHooksWarning

__all__ = ["require_metric", "warn_of_dropped"]


def require_metric(module: object, name: str, value: Any, attribute: str) -> None:
    """Make sure that an attribute is the metric object that is logged.

    Raises:
        MetricError: it is another one, or there is none.
    """
    try:
        found = attrgetter(attribute)(module)
    except (AttributeError, TypeError):
        found = None
    if found is not value:
        raise MetricError(
            f"log({name!r}, metric_attribute={attribute!r}): {type(module).__qualname__} has no "
            "such metric object there. Name the attribute that is what you log, or leave "
            "metric_attribute out."
        )


def warn_of_dropped(name: str) -> None:
    """Say that a value goes nowhere."""
    warn(
        f"log({name!r}) was called on a module that no trainer runs: the value is dropped. "
        "Call it within fit, validate or test.",
        TrainerHooksWarning,
    )
