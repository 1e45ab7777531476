"""Metric objects of torchmetrics in a run, and their states, which no state_dict holds."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from trainer_hooks.runtime.parameter_names import plain_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

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
    # the layer inside a wrapper of torch has the same plain name, and comes later
    parts: dict[str, Any] = {plain_name(name): part for name, part in module.named_modules()}
    part_ids = {id(part) for part in parts.values()}
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
                if id(metric) not in part_ids:
                    part_ids.add(id(metric))
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
        part = parts.get(plain_name(name))
        if not hasattr(part, "metric_state"):
            continue
        values = {
            attribute: value.to(device)
            if isinstance(value, Tensor)
            else [item.to(device) for item in value]
            for attribute, value in state["values"].items()
        }
        _set_state(part, values, state["updates"])


def object_state(metric: Any) -> dict[str, dict[str, Any]]:
    """Return a copy of the state of a metric object and of those inside it, as wrappers have."""
    return {
        name: {
            # lists are copied, since a reset clears them in place; their tensors never change
            "values": {
                attribute: value.clone() if isinstance(value, Tensor) else list(value)
                for attribute, value in state["values"].items()
            },
            "updates": state["updates"],
        }
        for name, state in metric_states(_nested_objects(metric)).items()
    }


def set_object_state(metric: Any, state: Mapping[str, dict[str, Any]]) -> None:
    """Set the state of a metric object, and of those inside it, that `object_state` returned."""
    for name, part in _nested_objects(metric).items():
        if name in state:
            _set_state(part, state[name]["values"], state[name]["updates"])


@contextmanager
def holding_state(metric: Any, state: Mapping[str, dict[str, Any]]) -> Iterator[None]:
    """Give a metric object another state in the `with` block, as `object_state` returns it."""
    before = object_state(metric)
    set_object_state(metric, state)
    try:
        yield
    finally:
        set_object_state(metric, before)


def merge_object_states(
    metric: Any, states: Sequence[Mapping[str, dict[str, Any]]]
) -> dict[str, dict[str, Any]]:
    """Return the state of a metric object over the batches of several states.

    Args:
        metric: the object; its state stays.
        states: the states, as `object_state` returns them.
    """
    return {
        name: _merge_states(part, [state[name] for state in states])
        for name, part in _nested_objects(metric).items()
        if all(name in state for state in states)
    }


def _merge_states(part: Any, states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the merged state of a metric object, by the reductions that it names."""
    # torchmetrics has no public way to merge states of an object whose update needs its whole state
    reductions: dict[str, Any] = part.__dict__["_reductions"]
    merged: dict[str, Any] = {}
    updates = [state["updates"] for state in states]
    for attribute, reduce in reductions.items():
        values = [state["values"][attribute] for state in states]
        present = getattr(part, attribute)
        if isinstance(present, list):
            merged[attribute] = [item.to(part.device) for value in values for item in value]
        else:
            stacked = torch.stack([value.to(present.device) for value in values])
            if getattr(reduce, "__name__", "") == "dim_zero_mean" and len(set(updates)) > 1:
                # as torchmetrics merges a batch into a mean: each state counts by its updates
                stacked = torch.cat(
                    [v[None].expand(n, *v.shape) for v, n in zip(stacked, updates, strict=True)]
                )
            elif reduce is None and any(updates):
                # such an object combines the states as it computes, and divides by their counts
                stacked = stacked[[count > 0 for count in updates]]
            merged[attribute] = reduce(stacked) if reduce is not None else stacked
    return {"values": merged, "updates": sum(updates)}


def _set_state(part: Any, values: Mapping[str, Any], updates: int | None) -> None:
    for attribute, value in values.items():
        setattr(part, attribute, list(value) if isinstance(value, list) else value)
    # torchmetrics has no public way to set the count, on which means depend, or to drop the cached
    # value
    part.__dict__["_update_count"] = updates
    part.__dict__["_computed"] = None


def _nested_objects(metric: Any) -> dict[str, Any]:
    """Return a metric object under the name "", and those inside it by their names."""
    parts = dict(metric.named_modules()) if isinstance(metric, nn.Module) else {"": metric}
    return {name: part for name, part in parts.items() if is_metric_object(part)}


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
