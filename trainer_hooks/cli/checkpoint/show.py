"""`trainer-hooks checkpoint show FILE`: print the contents of a checkpoint."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from torch import Tensor

from trainer_hooks._text import Branch, count_with_noun, show_table, show_tree
from trainer_hooks.checkpoint.file import summarize
from trainer_hooks.checkpoint.inspection import (
    CheckpointKind,
    as_mapping,
    describe_position,
    dtype_name,
    inspect_file,
    sections_of,
    tensor_bytes,
)
from trainer_hooks.cli.commands import print_json
from trainer_hooks.cli.values import (
    JsonWriter,
    printable,
    short_text,
    size_text,
)
from trainer_hooks.clock.progress import EpochStage
from trainer_hooks.connector.state_keys import short_state_key, short_state_keys
from trainer_hooks.errors import CheckpointError
from trainer_hooks.loggers.conversion import flattened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from trainer_hooks.checkpoint.inspection import CheckpointContents
    from trainer_hooks.checkpoint.seal import CheckpointSummary

_SHOWN = 20
"""Lines of one callback state or of one group of values."""

_SMALL = 64
"""Bytes below which a section has no line of its own in the table."""


def show(path: Path, *, lists_tensors: bool, is_json: bool) -> int:
    """Print the contents of a checkpoint and return the exit code.

    Raises:
        UnusableFileError: the file cannot be read as a checkpoint.
    """
    told = file_facts(inspect_file(path))
    if is_json:
        print_json(JsonWriter().write(told))
        return 0
    show_tree(Branch(printable(path), tuple(_branches(told))))
    print()
    _show_sections(told)
    if lists_tensors:
        print()
        rows = [
            [printable(row["name"]), str(tuple(row["shape"])), row["dtype"], f"{row['bytes']:,}"]
            for row in told["weights"]["list"]
        ]
        show_table(["tensor", "shape", "dtype", "bytes"], rows, right={3}, whole={3})
    return 0


def file_facts(file: CheckpointContents) -> dict[str, Any]:
    """Return the facts about a checkpoint file as plain data."""
    contents = file.as_saved()
    entries, data, summary = contents.trainer_hooks, contents.data, _summary(contents)
    # a module's get_extra_state may put anything among its weights
    tensors = {name: item for name, item in contents.weights.items() if isinstance(item, Tensor)}
    return {
        "path": contents.path,
        "kind": str(contents.kind),
        "bytes": contents.size,
        "format": file.format or None,
        "version": entries.get("version"),
        "lightning_version": data.get("pytorch-lightning_version"),
        "module": None if summary is None else summary.module or None,
        "saved_at": None if summary is None else summary.saved_at or None,
        "logs": _logs(entries),
        "counters": _counters(contents),
        "is_resumable": contents.is_resumable,
        "place": describe_position(contents),
        "sections": [
            {"name": part.name, "bytes": part.size, "share": part.size / max(1, contents.size)}
            for part in sections_of(file)
        ],
        "weights": {
            "tensors": len(tensors),
            "elements": sum(tensor.numel() for tensor in tensors.values()),
            "dtypes": dict(Counter(map(dtype_name, tensors.values()))),
            "others": [name for name in contents.weights if name not in tensors],
            "list": [
                {
                    "name": name,
                    "shape": list(tensor.shape),
                    "dtype": dtype_name(tensor),
                    "bytes": tensor_bytes(tensor),
                }
                for name, tensor in tensors.items()
            ],
        },
        "hyperparameters": as_mapping(data.get("hyper_parameters")),
        "config": as_mapping(data.get("config")),
        "metrics": as_mapping(as_mapping(entries.get("metrics")).get("callback_metrics")),
        "optimizers": [_optimizer(state) for state in _listed(data.get("optimizer_states"))],
        "schedulers": _listed(data.get("lr_schedulers")),
        "setup": as_mapping(entries.get("setup")),
        "training_loaders": _listed(as_mapping(entries.get("stream")).get("shape")),
        "callbacks": contents.callbacks,
        "state_versions": as_mapping(entries.get("state_versions")),
        "plugins": [record for record in _listed(entries.get("plugins")) if as_mapping(record)],
        "random_states": list(as_mapping(entries.get("rng"))),
        "gradients": list(as_mapping(entries.get("gradients"))),
    }


def _summary(contents: CheckpointContents) -> CheckpointSummary | None:
    """Return the summary of a checkpoint; None of another tool's file, or without it."""
    if contents.kind is not CheckpointKind.OURS:
        return None
    try:
        return summarize(contents.path)
    except CheckpointError:
        return None


def _logs(entries: dict[str, Any]) -> list[str]:
    """Return the folder of each logger, or the id of its run on a server."""
    logs = []
    for record in map(as_mapping, _listed(entries.get("loggers"))):
        state = as_mapping(record.get("state"))
        root, version = state.get("root"), state.get("version")
        if isinstance(root, str) and version is not None:
            folder = f"version_{version}" if isinstance(version, int) else str(version)
            logs.append(str(PurePath(root, folder)))
        elif run_id := state.get("run_id"):
            logs.append(f"{record.get('kind')} run {run_id}")
    return list(dict.fromkeys(logs))


def _counters(contents: CheckpointContents) -> dict[str, Any]:
    named = {"epoch": "epoch", "global_step": "optimizer_steps"}
    counters = {new: contents.data[old] for old, new in named.items() if old in contents.data}
    progress = dict(contents.progress)
    if progress.get("stage") == EpochStage.ENDED:  # it is whole, but for being counted
        progress["epochs_completed"] = progress.get("epochs_completed", 0) + 1
    return {**counters, **progress}


def _optimizer(state: Any) -> dict[str, Any]:
    """Return the facts about an optimizer's state."""
    groups = [as_mapping(group) for group in _listed(as_mapping(state).get("param_groups"))]
    states = [as_mapping(values) for values in as_mapping(as_mapping(state).get("state")).values()]
    return {
        "groups": [
            {
                "parameters": len(_listed(group.get("params"))),
                **{name: value for name, value in group.items() if name != "params"},
            }
            for group in groups
        ],
        "kept_for": len(states),
        "kept": list(dict.fromkeys(name for values in states for name in values)),
    }


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _branches(told: dict[str, Any]) -> Iterator[Branch]:
    """Yield the branches of the printed tree; sections that the file lacks are left out."""
    yield Branch(f"{told['kind']}{_versions(told)}, {size_text(told['bytes'])}")
    yield from _run(told)
    yield Branch(f"can be resumed from: {printable(told['place'])}")
    # a metric is a tensor of one number, of which nobody asks for the type
    metrics = {n: v.item() if _is_scalar(v) else v for n, v in told["metrics"].items()}
    yield from _group("metrics", metrics.items())
    yield _weights(told["weights"])
    yield from _group("hyperparameters", told["hyperparameters"].items())
    config = flattened(_without_defaults(told["config"]), ".").items()
    # of dicts only empty ones are left
    yield from _group("config", ((n, v) for n, v in config if not isinstance(v, dict | None)))
    yield from _optimizers(told)
    if "precision" in told["setup"]:
        yield Branch(f"precision: {printable(told['setup']['precision'])}")
    lines = [_options(as_mapping(shape)) for shape in told["training_loaders"]]
    if lines:
        yield Branch("training loader", tuple(Branch(line) for line in lines if line))
    callbacks = []
    short_keys = short_state_keys(map(str, told["callbacks"]))
    for key, state in told["callbacks"].items():
        version = told["state_versions"].get(key)
        title = printable(short_keys[str(key)]) + (
            "" if version is None else f" (state version {version})"
        )
        values = state.items() if isinstance(state, dict) else [("state", state)]
        callbacks.append(Branch(title, tuple(_lines(values))))
    if callbacks:
        yield Branch("callbacks", tuple(callbacks))
    plugins = [
        f"{record.get('distribution')} {record.get('version')}: {record.get('class')} by "
        f"entry point {record.get('entry_point')!r}, state key "
        f"{short_state_key(str(record.get('state_key')))}"
        for record in told["plugins"]
    ]
    if plugins:
        yield Branch("plugins", tuple(Branch(printable(line)) for line in plugins))
    yield from _group("counters", told["counters"].items())
    if told["random_states"]:
        yield Branch(f"random states: {printable(', '.join(map(str, told['random_states'])))}")
    if told["gradients"]:
        yield Branch(f"gradients: of {count_with_noun(len(told['gradients']), 'parameter')}")


def _run(told: dict[str, Any]) -> Iterator[Branch]:
    """Yield the branches that tell whose checkpoint it is, from when, and how far it got."""
    if told["module"]:
        yield Branch(f"module: {printable(told['module'])}")
    if told["saved_at"]:
        saved = datetime.fromtimestamp(told["saved_at"] / 1e9, tz=UTC).astimezone()
        yield Branch(f"saved: {saved:%Y-%m-%d %H:%M:%S %Z}")
    if told["logs"]:
        yield Branch(f"logs: {printable(', '.join(told['logs']))}")
    names = {
        "epochs_completed": "epoch", "steps_completed": "optimizer step",
        "samples_completed": "sample",
    }  # fmt: skip
    counters = told["counters"]
    amounts = [
        count_with_noun(counters[name], noun)
        for name, noun in names.items()
        if isinstance(counters.get(name), int)
    ]
    if amounts:
        yield Branch(f"trained: {', '.join(amounts)}")


def _is_scalar(value: Any) -> bool:
    return isinstance(value, Tensor) and value.numel() == 1 and not value.is_meta


def _versions(told: dict[str, Any]) -> str:
    parts = []
    if told["version"] is not None:
        parts.append(f" {told['version']}, format {told['format']}")
    if told["lightning_version"] is not None:
        parts.append(f"laid out as Lightning {told['lightning_version']}")
    return printable(", ".join(parts) if told["version"] else "".join(f", {p}" for p in parts))


def _weights(weights: dict[str, Any]) -> Branch:
    dtypes = ", ".join(f"{dtype} ({count})" for dtype, count in weights["dtypes"].items())
    text = f"weights: {count_with_noun(weights['tensors'], 'tensor')}"
    text += f", {count_with_noun(weights['elements'], 'element')}"
    others = weights["others"]
    more = (Branch(f"no tensors: {printable(', '.join(map(str, others)))}"),) if others else ()
    return Branch(f"{text}, {dtypes}" if dtypes else text, more)


def _optimizers(told: dict[str, Any]) -> Iterator[Branch]:
    branches = tuple(
        Branch(
            (
                f"{number}: {_class(told, 'optimizers', number)}keeps "
                f"{printable(', '.join(map(str, state['kept'])) or 'nothing')} for "
                f"{count_with_noun(state['kept_for'], 'parameter')}"
            ),
            tuple(Branch(_options(group)) for group in state["groups"]),
        )
        for number, state in enumerate(told["optimizers"])
    )
    if branches:
        yield Branch("optimizers", branches)
    schedulers = tuple(
        Branch(f"{number}: {_class(told, 'schedulers', number)}{_options(as_mapping(state))}")
        for number, state in enumerate(told["schedulers"])
    )
    if schedulers:
        yield Branch("schedulers", schedulers)


def _class(told: dict[str, Any], kind: str, number: int) -> str:
    """Return the class name of an optimizer or scheduler; older files do not record it."""
    entries = _listed(told["setup"].get(kind))
    name = as_mapping(entries[number]).get("class") if number < len(entries) else None
    return f"{printable(name)}, " if name else ""


def _options(options: dict[Any, Any]) -> str:
    """Return the options that are switched on."""
    return ", ".join(
        f"{printable(name)} {short_text(value)}"
        for name, value in options.items()
        if value is not None and value is not False
    )


def _without_defaults(config: dict[Any, Any]) -> dict[Any, Any]:
    """Return a config without the Trainer options that have their default values."""
    # here, since only a file with a config needs the options of the Trainer
    from trainer_hooks.trainer.options.config import TrainerConfig

    defaults = {field.name: field.default for field in fields(TrainerConfig)}
    trainer = as_mapping(config.get("trainer"))
    chosen = {n: v for n, v in trainer.items() if n not in defaults or v != defaults[n]}
    return {**config, "trainer": chosen} if trainer else config


def _group(title: str, values: Iterable[tuple[Any, Any]]) -> Iterator[Branch]:
    branches = tuple(_lines(values))
    if branches:
        yield Branch(title, branches)


def _lines(values: Iterable[tuple[Any, Any]]) -> Iterator[Branch]:
    items = list(values)
    for name, value in items[:_SHOWN]:
        yield Branch(f"{printable(name)}: {short_text(value)}")
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
        rows.append([f"({count_with_noun(small, 'small one')})", f"{rest:,}", ""])
    show_table(["section", "bytes", "share"], rows, right={1, 2}, whole={1, 2})
