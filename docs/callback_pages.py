"""The pages of the callbacks, one for each that is public, made from its docstring."""

from __future__ import annotations

import json
from pathlib import Path

from docstrings import Docstring, read_class
from trainer_hooks import Callback, callbacks
from trainer_hooks.compat.accelerated import callbacks as accelerated
from trainer_hooks.compat.composer import callbacks as composer
from trainer_hooks.hooks.relay import RelayMember
from trainer_hooks.hooks.spec import HOOKS, HookSpec

__all__ = ["callback_pages", "example_of", "moved_callbacks", "public_callbacks"]

_COSTS = Path(__file__).with_name("callback_costs.json")
_NOTE = "<!-- made by docs/generate.py from the class's docstring: do not edit -->"
_FAMILIES = {
    "Saving": ("saving",),
    "Stopping": ("early_stopping", "timer"),
    "Progress": ("progress",),
    "Model summary": ("model_summary",),
    "Monitoring": ("monitors",),
    "Guarding": ("guarding",),
    "Averaging weights": ("averaging",),
    "Fine-tuning": ("finetuning",),
    "Pruning and quantization": ("compression",),
    "Preparing modules": ("module_preparation",),
    "Finding sizes and rates": ("tuning",),
    "Writing predictions": ("prediction_writer",),
    "Reporting": ("reporting",),
    "Exporting": ("exporting",),
    "General": ("lambda_callback",),
}
"""The index's titles, each with the folders and files of `trainer_hooks/callbacks` under it."""
_SECOND_NAMES = {
    "DeviceStatsMonitor": ("MemoryMonitor", "SystemMetricsMonitor"),
    "EMAWeightAveraging": ("ModelEmaCallback",),
    "EarlyStopping": ("EarlyStopper", "ThresholdStopper", "EarlyStoppingCallback"),
    "GradientNormMonitor": ("GradMonitor", "OptimizerMonitor"),
    "LearningRateMonitor": ("LRMonitor",),
    "ModelCheckpoint": ("CheckpointSaver", "SaveBestModelCallback", "SaveTrainingStateCallback"),
    "NaNGuard": ("NaNMonitor", "TerminateOnNaNCallback"),
    "TQDMProgressBar": ("ProgressBarCallback",),
    "ThroughputMonitor": ("SpeedMonitor",),
}
"""Callbacks of other systems for the job that a callback does here."""
_OPTIONS = {
    "LimitBatchesCallback": "limit_train_batches",
    "LimitEvalStepsCallback": "limit_val_batches",
    "StepBasedEvaluationCallback": "val_check_interval",
}
"""Callbacks of other systems for the job that an option of the Trainer does here."""
_HOOKS_OF_INSTANCES = {
    "LambdaCallback": "The hooks that it is given functions for.",
    "LoadCheckpoint": "With another `event` than `before_load`, also the hook of that event.",
}
"""Callbacks with hooks that depend on their arguments, and a sentence on those hooks."""
_SAME = {"PrintMetricsCallback": "pytorch-accelerated's newer name: `LogMetricsCallback`"}
_SYSTEMS = {"Composer": composer, "pytorch-accelerated": accelerated}
_SETUP = """import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks import *
from trainer_hooks.callbacks import *
from trainer_hooks.loggers import *

digits = load_digits()
data = TensorDataset(torch.tensor(digits.data).float() / 16, torch.tensor(digits.target))
train_loader = DataLoader(data, batch_size=256, shuffle=True)
val_loader = DataLoader(data, batch_size=256)


class Digits(Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10)
        )
        self.example_input_array = torch.zeros(1, 64)

    def forward(self, images):
        return self.net(images)

    def training_step(self, batch, batch_idx):
        images, targets = batch
        loss = torch.nn.functional.cross_entropy(self(images), targets)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        images, targets = batch
        outputs = self(images)
        self.log("val_loss", torch.nn.functional.cross_entropy(outputs, targets))
        self.log("val_acc", (outputs.argmax(dim=1) == targets).float().mean())

    def predict_step(self, batch, batch_idx):
        return self(batch[0]).argmax(dim=1)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


module = Digits()
"""


def public_callbacks() -> dict[str, type[Callback]]:
    """Return the classes that `trainer_hooks.callbacks` offers, by name; an alias is left out.

    So is `Callback` itself, which has a page of its own.
    """
    found = {name: getattr(callbacks, name) for name in callbacks.__all__ if name != "Callback"}
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, type) and issubclass(value, Callback) and value.__name__ == name
    }


def moved_callbacks() -> dict[str, type[Callback]]:
    """Return the classes that only a compatibility package offers, by name."""
    found = {
        name: getattr(room, name)
        for room in _SYSTEMS.values()
        for name in room.__all__
        if name not in (*callbacks.__all__, "CallbackHandler", "TrainerCallback")
    }
    # a function, such as `get_default_callbacks`, is none
    return {n: v for n, v in found.items() if isinstance(v, type) and v.__name__ == n}


def callback_pages() -> dict[str, str]:
    """Return the text of each page by its path below docs/."""
    costs = json.loads(_COSTS.read_text(encoding="utf-8")) if _COSTS.exists() else {}
    pages = {"callbacks/README.md": _index()}
    for name, described in {**public_callbacks(), **moved_callbacks()}.items():
        pages[f"callbacks/{name}.md"] = _page(described, read_class(described), costs.get(name))
    return pages


def example_of(described: type[Callback]) -> str:
    """Return the code of a page's example, after the lines that all examples share."""
    return f"{_SETUP}\n\n{read_class(described).example}\n"


def _index() -> str:
    lines = [
        "# Callbacks",
        "",
        _NOTE,
        "",
        "Each job has one callback. Import it from `trainer_hooks.callbacks`. The last column",
        "names the callbacks of other systems for the same job. Code written for those systems",
        "can go on using them: [coming-from.md](../coming-from.md). The examples on the pages",
        "continue these lines, a small classifier of handwritten digits:",
        "",
        "```python",
        *_SETUP.splitlines(),
        "```",
    ]
    by_family: dict[str, list[str]] = {}
    for name, described in public_callbacks().items():
        summary = read_class(described).summary
        by_family.setdefault(_family(described), []).append(
            f"| [{name}]({name}.md) | {summary} | {_elsewhere(name)} |"
        )
    for family in _FAMILIES:
        if family in by_family:
            lines += ["", f"## {family}", "", "| callback | description | of other systems |"]
            lines += ["|---|---|---|"]
            lines += sorted(by_family[family])
    others = {
        name: getattr(callbacks, name).__name__
        for name in callbacks.__all__
        if name not in public_callbacks() and name != getattr(callbacks, name).__name__
    }
    lines += ["", "## Options of the Trainer", ""]
    lines += ["For these callbacks of pytorch-accelerated the Trainer here has an option.", ""]
    lines += ["| option | description of the callback | of pytorch-accelerated |", "|---|---|---|"]
    lines += [
        f"| `{option}` | {read_class(moved_callbacks()[name]).summary} | [{name}]({name}.md) |"
        for name, option in _OPTIONS.items()
    ]
    if others:
        lines += ["", "## Other names", "", "| name | is |", "|---|---|"]
        lines += [f"| `{name}` | `{target}` |" for name, target in others.items()]
    return "\n".join(lines) + "\n"


def _elsewhere(name: str) -> str:
    """Return the callbacks of other systems for a callback's job, with links to their pages."""
    known = {n for several in _SECOND_NAMES.values() for n in several} | set(_OPTIONS)
    missing = set(moved_callbacks()) - known
    if missing:
        raise ValueError(f"names without a job in docs/callback_pages.py: {sorted(missing)}.")
    told = [_SAME[name]] if name in _SAME else []
    for system, room in _SYSTEMS.items():
        theirs = [n for n in _SECOND_NAMES.get(name, ()) if n in room.__all__]
        if theirs:
            told.append(f"{system}: " + ", ".join(f"[{n}]({n}.md)" for n in theirs))
    return "; ".join(told)


def _family(described: type) -> str:
    """Return the title under which the index lists a callback."""
    place = described.__module__.removeprefix("trainer_hooks.callbacks.").split(".")[0]
    for title, places in _FAMILIES.items():
        if place in places:
            return title
    raise ValueError(
        f"{place!r} in trainer_hooks/callbacks: give it a title in docs/callback_pages.py."
    )


def _page(described: type[Callback], doc: Docstring, cost: dict[str, float] | None) -> str:
    lines = [f"# {described.__name__}", "", _NOTE, "", doc.summary]
    package = described.__module__.partition(".callbacks")[0]
    if package != "trainer_hooks":
        lines += ["", f"Import it from `{package}.callbacks`. {_counterpart(described.__name__)}"]
    if doc.body:
        lines += ["", doc.body]
    if not doc.example:
        raise ValueError(f"the docstring of {described.__qualname__} has no example.")
    lines += [
        "",
        "## Example",
        "",
        "It continues [the lines that all examples share](README.md).",
        "",
    ]
    lines += ["```python", doc.example, "```"]
    if doc.arguments:
        lines += ["", "## Arguments", "", "| argument | default | meaning |", "|---|---|---|"]
        lines += [
            f"| `{a.name}` | {f'`{_cell(a.default)}`' if a.default else ''} | {_cell(a.meaning)} |"
            for a in doc.arguments
        ]
    for title, table in (("Attributes", doc.attributes), ("Errors", doc.errors)):
        if table:
            lines += ["", f"## {title}", "", "| | |", "|---|---|"]
            lines += [f"| `{name}` | {_cell(meaning)} |" for name, meaning in table.items()]
    lines += ["", "## State", "", _state(described, doc)]
    lines += ["", "## Hooks", "", *_hooks(described)]
    lines += ["", "## Cost", "", _cost(cost)]
    return "\n".join(lines) + "\n"


def _counterpart(name: str) -> str:
    """Return the sentence on what does a moved callback's job here."""
    if name in _OPTIONS:
        return f"The option of the Trainer for the\nsame job is `{_OPTIONS[name]}`."
    kept = next(k for k, names in _SECOND_NAMES.items() if name in names)
    return f"The callback of trainer_hooks for the\nsame job is [{kept}]({kept}.md)."


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def _state(described: type[Callback], doc: Docstring) -> str:
    if doc.state:
        return f"{doc.state[0].upper()}{doc.state[1:]}"
    has_state = described.state_dict is not Callback.state_dict
    if has_state:
        raise ValueError(f"the docstring of {described.__qualname__} does not describe its state.")
    return "None."


def _hooks(described: type[Callback]) -> list[str]:
    rows = [
        f"| `{spec.name}` | {_cell(spec.summary.removeprefix('Called ').rstrip('.'))} |"
        for spec in used_hooks(described)
    ]
    lines = ["| hook | fires |", "|---|---|", *rows] if rows else []
    if described.__name__ in _HOOKS_OF_INSTANCES:
        lines += [""] if rows else []
        lines.append(_HOOKS_OF_INSTANCES[described.__name__])
    return lines or ["None of its own."]


def used_hooks(described: type[Callback]) -> list[HookSpec]:
    """Return the hooks that the relay calls on an instance of a callback's class."""
    # without __init__, whose arguments differ: the overridden hooks do not depend on them
    callback = object.__new__(described)
    member = RelayMember(callback, described.__name__, routes_events=callback.routes_events)
    return [spec for name, spec in HOOKS.items() if member.listener(name) is not None]


def _cost(cost: dict[str, float] | None) -> str:
    if cost is None:
        return "`benchmarks/callbacks.py` does not measure it."
    text = f"{_microseconds(cost['us'])} a training step"
    if "lightning_us" in cost:
        text += f"; Lightning's: {_microseconds(cost['lightning_us'])}"
    return (
        text
        + " (`benchmarks/callbacks.py`; the machine is that of [performance](../performance.md))."
    )


def _microseconds(value: float) -> str:
    """Return a measured cost, or that it is below the noise."""
    return "under 2 µs" if value < 2.0 else f"{value:.1f} µs"
