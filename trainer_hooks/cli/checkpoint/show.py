"""`trainer-hooks checkpoint show FILE`: what is in it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from torch import Tensor

from trainer_hooks._text import Branch, show_table, show_tree
from trainer_hooks.checkpoint import (
    dtype_name,
    inspect_file,
    mapping,
    place_in_words,
    sections_of,
    tensor_bytes,
)
from trainer_hooks.cli.values import JsonWriter, counted, flat, printable, shortened, size_text
from trainer_hooks.clock import EpochStage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from trainer_hooks.checkpoint import Contents

__all__ = ["show", "told_of"]

_SHOWN = 20
"""Lines of one callback state or of one group of values."""

_SMALL = 64
"""Bytes below which a section has no line of its own in the table."""


def show(path: Path, *, lists_tensors: bool, is_json: bool) -> int:
    """Print what is in a file and return the exit code.

    Raises:
        UnusableFileError: it cannot be looked into.
    """
    told = told_of(inspect_file(path))
    if is_json:
        print(json.dumps(JsonWriter().write(told), indent=2, allow_nan=False))
        return 0
    show_tree(Branch(printable(path), tuple(_branches(told))))
    print()
    _show_sections(told)
    if lists_tensors:
        print()
        _show_tensors(told["weights"]["list"])
    return 0


def told_of(file: Contents) -> dict[str, Any]:
    """Return all there is to tell of a file."""
    contents = file.as_saved()
    own, data = contents.own, contents.data
    tensors = {name: item for name, item in contents.weights.items() if isinstance(item, Tensor)}
    return {
        "path": contents.path,
        "kind": str(contents.kind),
        "bytes": contents.size,
        "format": file.format or None,
        "version": own.get("version"),
        "lightning_version": data.get("pytorch-lightning_version"),
        "counters": _counters(contents),
        "is_resumable": contents.is_resumable,
        "place": place_in_words(contents),
        "sections": [
            {"name": part.name, "bytes": part.size, "share": part.size / max(1, contents.size)}
            for part in sections_of(file)
        ],
        "weights": {
            "tensors": len(tensors),
            "elements": sum(tensor.numel() for tensor in tensors.values()),
            "dtypes": dict(Counter(map(dtype_name, tensors.values()))),
            "others": [name for name in contents.weights if name not in tensors],
            "list": [_tensor(name, tensor) for name, tensor in tensors.items()],
        },
        "hyperparameters": mapping(data.get("hyper_parameters")),
        "config": mapping(data.get("config")),
        "metrics": mapping(mapping(own.get("metrics")).get("callback_metrics")),
        "optimizers": [_optimizer(state) for state in _listed(data.get("optimizer_states"))],
        "schedulers": _listed(data.get("lr_schedulers")),
        "setup": mapping(own.get("setup")),
        "training_loaders": _listed(mapping(own.get("stream")).get("shape")),
        "callbacks": contents.callbacks,
        "state_versions": mapping(own.get("state_versions")),
        "plugins": [record for record in _listed(own.get("plugins")) if mapping(record)],
        "random_states": list(mapping(own.get("rng"))),
        "gradients": list(mapping(own.get("gradients"))),
    }


def _counters(contents: Contents) -> dict[str, Any]:
    named = {"epoch": "epoch", "global_step": "optimizer_steps"}
    found = {new: contents.data[old] for old, new in named.items() if old in contents.data}
    progress = dict(contents.progress)
    if progress.get("stage") == EpochStage.ENDED:  # it is whole, but for being counted
        progress["epochs_completed"] = progress.get("epochs_completed", 0) + 1
    return {**found, **progress}


def _tensor(name: str, tensor: Tensor) -> dict[str, Any]:
    return {
        "name": name,
        "shape": list(tensor.shape),
        "dtype": dtype_name(tensor),
        "bytes": tensor_bytes(tensor),
    }


def _optimizer(state: Any) -> dict[str, Any]:
    """Tell of an optimizer's state."""
    groups = [mapping(group) for group in _listed(mapping(state).get("param_groups"))]
    kept = [mapping(values) for values in mapping(mapping(state).get("state")).values()]
    return {
        "groups": [
            {
                "parameters": len(_listed(group.get("params"))),
                **{name: value for name, value in group.items() if name != "params"},
            }
            for group in groups
        ],
        "kept_for": len(kept),
        "kept": list(dict.fromkeys(name for values in kept for name in values)),
    }


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _branches(told: dict[str, Any]) -> Iterator[Branch]:
    """Give the lines of the page; what a file does not have is left out."""
    yield Branch(f"{told['kind']}{_versions(told)}, {size_text(told['bytes'])}")
    yield Branch(f"can be resumed from: {printable(told['place'])}")
    yield from _group("counters", told["counters"].items())
    yield _weights(told["weights"])
    yield from _group("hyperparameters", told["hyperparameters"].items())
    yield from _group("config", flat(_chosen(told["config"])))
    yield from _group("metrics", told["metrics"].items())
    yield from _optimizers(told)
    yield from _conditions(told)
    yield from _callbacks(told)
    plugins = [" ".join(map(str, _plugin(record))) for record in told["plugins"]]
    if plugins:
        yield Branch("plugins", tuple(Branch(printable(line)) for line in plugins))
    if told["random_states"]:
        yield Branch(f"random states: {printable(', '.join(map(str, told['random_states'])))}")
    if told["gradients"]:
        yield Branch(f"gradients: of {counted(len(told['gradients']), 'parameter')}")


def _versions(told: dict[str, Any]) -> str:
    parts = []
    if told["version"] is not None:
        parts.append(f" {told['version']}, format {told['format']}")
    if told["lightning_version"] is not None:
        parts.append(f"laid out as Lightning {told['lightning_version']}")
    return printable(", ".join(parts) if told["version"] else "".join(f", {p}" for p in parts))


def _weights(weights: dict[str, Any]) -> Branch:
    dtypes = ", ".join(f"{dtype} ({count})" for dtype, count in weights["dtypes"].items())
    text = f"weights: {counted(weights['tensors'], 'tensor')}"
    text += f", {counted(weights['elements'], 'element')}"
    others = weights["others"]
    more = (Branch(f"no tensors: {printable(', '.join(map(str, others)))}"),) if others else ()
    return Branch(f"{text}, {dtypes}" if dtypes else text, more)


def _optimizers(told: dict[str, Any]) -> Iterator[Branch]:
    branches = tuple(
        Branch(
            f"{number}: {_class(told, 'optimizers', number)}{_kept(found)}",
            tuple(Branch(_options(group)) for group in found["groups"]),
        )
        for number, found in enumerate(told["optimizers"])
    )
    if branches:
        yield Branch("optimizers", branches)
    if told["schedulers"]:
        lines = [
            _class(told, "schedulers", number) + _options(mapping(state))
            for number, state in enumerate(told["schedulers"])
        ]
        yield Branch(
            "schedulers", tuple(Branch(f"{number}: {line}") for number, line in enumerate(lines))
        )


def _kept(optimizer: dict[str, Any]) -> str:
    names = printable(", ".join(map(str, optimizer["kept"])) or "nothing")
    return f"keeps {names} for {counted(optimizer['kept_for'], 'parameter')}"


def _class(told: dict[str, Any], kind: str, number: int) -> str:
    """Return the class of an optimizer or scheduler; older files do not tell it."""
    known = _listed(told["setup"].get(kind))
    name = mapping(known[number]).get("class") if number < len(known) else None
    return f"{printable(name)}, " if name else ""


def _conditions(told: dict[str, Any]) -> Iterator[Branch]:
    """Give what the training was set up with beside that."""
    if "precision" in told["setup"]:
        yield Branch(f"precision: {printable(told['setup']['precision'])}")
    lines = [_options(mapping(shape)) for shape in told["training_loaders"]]
    if lines:
        yield Branch("training loader", tuple(Branch(line) for line in lines if line))


def _options(options: dict[Any, Any]) -> str:
    """Return the options that say something: those that are switched off are left out."""
    return ", ".join(
        f"{printable(name)} {shortened(value)}"
        for name, value in options.items()
        if value is not None and value is not False
    )


def _callbacks(told: dict[str, Any]) -> Iterator[Branch]:
    branches = []
    for key, state in told["callbacks"].items():
        version = told["state_versions"].get(key)
        title = printable(key) + ("" if version is None else f" (state version {version})")
        values = state.items() if isinstance(state, dict) else [("state", state)]
        branches.append(Branch(title, tuple(_lines(values))))
    if branches:
        yield Branch("callbacks", tuple(branches))


def _plugin(record: dict[str, Any]) -> Iterator[str]:
    yield f"{record.get('distribution')} {record.get('version')}:"
    yield f"{record.get('class')} by entry point {record.get('entry_point')!r},"
    yield f"state key {record.get('state_key')}"


def _chosen(config: dict[Any, Any]) -> dict[Any, Any]:
    """Return a config without the options of the Trainer that are at their defaults."""
    from trainer_hooks.trainer.options import TrainerConfig

    defaults = {field.name: field.default for field in fields(TrainerConfig)}
    trainer = mapping(config.get("trainer"))
    chosen = {n: v for n, v in trainer.items() if n not in defaults or v != defaults[n]}
    return {**config, "trainer": chosen} if trainer else config


def _group(title: str, values: Iterable[tuple[Any, Any]]) -> Iterator[Branch]:
    branches = tuple(_lines(values))
    if branches:
        yield Branch(title, branches)


def _lines(values: Iterable[tuple[Any, Any]]) -> Iterator[Branch]:
    items = list(values)
    for name, value in items[:_SHOWN]:
        yield Branch(f"{printable(name)}: {shortened(value)}")
    if len(items) > _SHOWN:
        yield Branch(f"and {len(items) - _SHOWN} more (--json tells all)", is_faint=True)


def _show_sections(told: dict[str, Any]) -> None:
    sections = sorted(told["sections"], key=lambda part: part["bytes"], reverse=True)
    rows = [
        [printable(part["name"]), f"{part['bytes']:,}", f"{part['share']:.1%}"]
        for part in sections
        if part["bytes"] >= _SMALL
    ]
    small = len(sections) - len(rows)
    if small:
        rest = sum(part["bytes"] for part in sections if part["bytes"] < _SMALL)
        rows.append([f"({counted(small, 'small one')})", f"{rest:,}", ""])
    show_table(["section", "bytes", "share"], rows, right={1, 2}, whole={1, 2})


def _show_tensors(tensors: list[dict[str, Any]]) -> None:
    rows = [
        [printable(row["name"]), str(tuple(row["shape"])), row["dtype"], f"{row['bytes']:,}"]
        for row in tensors
    ]
    show_table(["tensor", "shape", "dtype", "bytes"], rows, right={3}, whole={3})
