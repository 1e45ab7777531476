"""Metric objects of torchmetrics in a run, and their states, which no state_dict holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import torch

_MAX_ITEMS = 64
"""Items of the largest container that is searched."""
_HOLDERS = (nn.Module, dict, list, tuple)
"""Types that are metric objects or hold some."""

_OF_TORCH = frozenset({"_parameters", "_buffers", "_modules"})


def metric_parts(module: nn.Module, owners: Mapping[str, object]) -> dict[str, Any]:
    """Return a module's submodules by name, and the metric objects that are no submodules.

    Those are searched for among the attributes of the module, of its submodules and of `owners`,
    and in lists, tuples and dicts that are attributes.

    Args:
        module: the module.
        owners: other objects that may hold metric objects, such as callbacks, by name.
    """
    parts: dict[str, Any] = dict(module.named_modules())
    known = {id(part) for part in parts.values()}
    # the attributes of a metric object are its own state, so no others are looked for there
    keepers = [(name, part) for name, part in parts.items() if not is_metric_object(part)]
    for owner_name, owner in [*keepers, *owners.items()]:
        for name, value in list(getattr(owner, "__dict__", {}).items()):
            if name in _OF_TORCH or not isinstance(value, _HOLDERS):
                continue
            if not value and not isinstance(value, nn.Module):  # most are torch's dicts of hooks
                continue
            path = f"{owner_name}.{name}" if owner_name else name
            for metric_name, metric in _metrics_in(path, value, 2):
                if id(metric) not in known:
                    known.add(id(metric))
                    parts[metric_name] = metric
    return parts


def metric_states(parts: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the states of the metric objects among submodules and other parts, by name.

    A metric object has torchmetrics' `metric_state`, a dict of tensors and lists of tensors, and
    `update_count`.
    """
    return {
        # the very tensors, which the next update may change in place: a caller that waits clones
        name: {"values": dict(part.metric_state), "updates": part.update_count}
        for name, part in parts.items()
        if is_metric_object(part)
    }


def load_metric_states(
    parts: Mapping[str, Any], states: Mapping[str, dict[str, Any]], device: torch.device
) -> None:
    """Restore states into the metric objects of the same names; other objects stay as they are.

    Args:
        parts: metric objects by name.
        states: the states that `metric_states` returned.
        device: the device to put them on.
    """
    for name, state in states.items():
        part = parts.get(name)
        if not hasattr(part, "metric_state"):
            continue
        for attribute, value in state["values"].items():
            is_one = isinstance(value, Tensor)
            moved = value.to(device) if is_one else [item.to(device) for item in value]
            setattr(part, attribute, moved)
        # torchmetrics has no public way to set the count, on which means depend, or to drop the
        # cached value
        part.__dict__["_update_count"] = state["updates"]
        part.__dict__["_computed"] = None


def lost_metrics(epoch: Iterable[Mapping[str, Any]], parts: Mapping[str, Any]) -> list[str]:
    """Return the metrics of an unfinished epoch whose metric object this run does not have.

    Args:
        epoch: the saved metrics of the epoch, from the state of a `MetricStore`.
        parts: the objects that `metric_parts` returned in this run.
    """
    return [
        item["name"]
        for item in epoch
        if item.get("has_metric") and not is_metric_object(parts.get(item["metric"]))
    ]


def _metrics_in(path: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield path and object of each metric object in a module or a container, nested to `depth`."""
    if isinstance(value, nn.Module):
        for name, part in value.named_modules(prefix=path):
            if is_metric_object(part):
                yield name, part
    elif depth and isinstance(value, dict | list | tuple) and len(value) <= _MAX_ITEMS:
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(item, _HOLDERS):
                yield from _metrics_in(f"{path}[{key!r}]", item, depth - 1)


def is_metric_object(part: object) -> bool:
    """Return whether an object is a metric object, with torchmetrics' names."""
    # by the class first: most parts are modules, which search all they hold for a missing name
    return hasattr(type(part), "metric_state") and hasattr(part, "update_count")
