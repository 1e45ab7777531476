"""Metric objects that a module holds: their states, which its own state_dict leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

__all__ = ["load_metric_states", "metric_states"]


def metric_states(parts: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the states of the metric objects among a module's parts, by name.

    Metric objects are told by torchmetrics' `metric_state`, a dict of tensors and lists of tensors,
    and `update_count`.
    """
    return {
        name: {"values": dict(part.metric_state), "updates": part.update_count}
        for name, part in parts.items()
        if hasattr(part, "metric_state") and hasattr(part, "update_count")
    }


def load_metric_states(
    parts: Mapping[str, Any], states: Mapping[str, dict[str, Any]], device: torch.device
) -> None:
    """Put the states back into the objects of the same names; others stay as they are."""
    for name, state in states.items():
        part = parts.get(name)
        if not hasattr(part, "metric_state"):
            continue
        for attribute, value in state["values"].items():
            setattr(part, attribute, _on(device, value))
        # torchmetrics has no public way to set either; means depend on the count
        part.__dict__["_update_count"] = state["updates"]
        part.__dict__["_computed"] = None


def _on(device: torch.device, value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.to(device)
    return [item.to(device) for item in value]
