"""The tables in docs/foreign-callbacks.md: hooks, and published callbacks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks import callbacks
from trainer_hooks.adapters.composer.events import DECLARED
from trainer_hooks.adapters.composer.events import EVENTS as COMPOSER_EVENTS
from trainer_hooks.adapters.export.accelerated import ACCELERATED_EVENTS, AcceleratedDriver
from trainer_hooks.adapters.export.composer import COMPOSER_EVENTS as FROM_COMPOSER
from trainer_hooks.adapters.export.composer import ComposerDriver
from trainer_hooks.adapters.export.ignite import IGNITE_EVENTS, IgniteDriver
from trainer_hooks.adapters.export.lightning import LIGHTNING_EVENTS, LightningDriver
from trainer_hooks.adapters.export.transformers import TRANSFORMERS_EVENTS, TransformersDriver
from trainer_hooks.adapters.ignite.engines import TRAIN_EVENTS, VALIDATION_EVENTS
from trainer_hooks.adapters.ignite.handlers import DEFAULTS
from trainer_hooks.adapters.lightning.callbacks import SAME_HOOKS, SAVER_HOOKS
from trainer_hooks.adapters.pytorch_accelerated.events import EVENTS as ACCELERATED_FOR_HOOK
from trainer_hooks.adapters.transformers.callbacks import EVENTS
from trainer_hooks.callback import Callback
from trainer_hooks.errors import CallbackError
from trainer_hooks.hooks.spec import HOOKS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["events_of", "handlers_of", "hooks_of", "lent", "published"]

_PUBLISHED = Path(__file__).parents[1] / "tests" / "adapters" / "published" / "published.json"


def published() -> str:
    """Return the table of callbacks that others have published, as they were tried last."""
    found = json.loads(_PUBLISHED.read_text(encoding="utf-8")).values()
    rows = [
        f"| {', by '.join(f'{name} {version}' for name, version in one['packages'].items())} "
        f"| {one['what']} | {_outcome(one)} |"
        for one in found
    ]
    return "\n".join(["", "| package | class | runs |", "|---|---|---|", *rows, "", ""])


def _outcome(row: Mapping[str, Any]) -> str:
    """Return what came of a published callback."""
    if row.get("compared"):
        return "as at home, whole and killed" if row["runs"] else f"compared: {row['why']}"
    return "yes" if row["runs"] else f"no: {row['why']}"


def hooks_of(framework: str) -> str:
    """Return the table of a framework's hooks and of those here at which they are called.

    Args:
        framework: `"lightning"`, `"composer"`, `"pytorch_accelerated"`, `"transformers"` or
            `"ignite"`; or `"to_composer"` for the other way.
    """
    if framework == "ignite":
        return _ignite_events()
    if framework == "composer":
        return _of_composer()
    if framework == "to_composer":
        rows = [f"| `{hook}` | `{event}` |" for hook, event in FROM_COMPOSER.items()]
        return "\n".join(["", "| hook | called there at |", "|---|---|", *rows, "", ""])
    if framework == "lightning":
        rows = [f"| `{name}` | {_slot(name)} |" for name in HOOKS if name in SAME_HOOKS]
    else:
        twins: Mapping[str, str] = {
            "pytorch_accelerated": ACCELERATED_FOR_HOOK,
            "transformers": EVENTS,
        }[framework]
        extra = {"on_before_backward": "on_train_step_end"} if twins is ACCELERATED_FOR_HOOK else {}
        found = {**twins, **extra}
        rows = [f"| `{found[name]}` | `{name}` |" for name in HOOKS if name in found]
    return "\n".join(["", "| there | called here at |", "|---|---|", *rows, "", ""])


def events_of(framework: str) -> str:
    """Return the table of our hooks and of a framework's events at which they are called there.

    Args:
        framework: `"lightning"`, `"pytorch_accelerated"`, `"transformers"` or `"ignite"`.
    """
    events = {
        "lightning": LIGHTNING_EVENTS,
        "pytorch_accelerated": ACCELERATED_EVENTS,
        "transformers": TRANSFORMERS_EVENTS,
        "ignite": IGNITE_EVENTS,
    }[framework]
    rows = [f"| `{hook}` | {_event(events[hook])} |" for hook in HOOKS if hook in events]
    return "\n".join(["", "| here | called there at |", "|---|---|", *rows, "", ""])


class _Writer(callbacks.BasePredictionWriter):
    def write_on_batch_end(self, *given: Any) -> None:
        """Write nothing."""


_HOSTS: dict[str, Callable[[Callback], Any]] = {
    "Lightning": lambda callback: LightningDriver(callback, ""),
    "transformers": lambda callback: TransformersDriver(callback, ""),
    "Composer": lambda callback: ComposerDriver(callback, ""),
    "pytorch-accelerated": lambda callback: AcceleratedDriver(callback, "", 50),
    "Ignite": lambda callback: IgniteDriver(callback, "", 50),
}
_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "BasePredictionWriter": ("batch",),
    "EarlyStopping": ("val_loss",),
    "ExportForInferenceCallback": ("torch.export", "model.pt2"),
    "Generate": (["a prompt"], "1ep"),
    "GradientAccumulationScheduler": ({1: 2},),
    "LoadCheckpoint": ("first.ckpt",),
    "MLPerfCallback": ("submission", 0),
    "ModelPruning": ("l1_unstructured",),
    "Notify": (["true"],),
    "OnExceptionCheckpoint": ("checkpoints",),
    "PredictionWriter": ("predictions.csv",),
    "StochasticWeightAveraging": (0.1,),
    "ThroughputMonitor": (len,),
}
"""The arguments of built-in callbacks that need some."""


def lent() -> str:
    """Return the table of built-in callbacks and of the other trainers that run them."""
    reasons: dict[str, int] = {}
    rows = []
    for name in callbacks.__all__:
        kind = getattr(callbacks, name)
        is_base = name in ("Callback", "Checkpoint", "ProgressBar", "ProgressBarBase")
        if is_base or not (isinstance(kind, type) and issubclass(kind, Callback)):
            continue
        made = _Writer if name == "BasePredictionWriter" else kind
        cells = []
        for host in _HOSTS.values():
            try:
                host(made(*_ARGUMENTS.get(name, ())))
            except CallbackError as error:
                cells.append(f"no ({_reason(str(error), reasons)})")
            else:
                cells.append("yes")
        rows.append(f"| `{name}` | {' | '.join(cells)} |")
    head = f"| callback | {' | '.join(_HOSTS)} |"
    listed = [f"{number}. {reason}" for reason, number in reasons.items()]
    return "\n".join(["", head, "|---" * 6 + "|", *rows, "", *listed, "", ""])


def _reason(message: str, reasons: dict[str, int]) -> int:
    """Return the number of the reason in an error's message."""
    text = message.partition("): ")[2].removesuffix(" Run the callback in trainer_hooks.Trainer.")
    for name in ("_Writer", "BasePredictionWriter"):
        text = text.replace(name, "BasePredictionWriter")
    return reasons.setdefault(text, len(reasons) + 1)


def _ignite_events() -> str:
    engines = (("training", TRAIN_EVENTS), ("validation", VALIDATION_EVENTS))
    rows = [
        f"| {', '.join(f'`{name}`' for name in events[hook])} of the {which} | `{hook}` |"
        for which, events in engines
        for hook in HOOKS
        if hook in events
    ]
    return "\n".join(["", "| there | fired here at |", "|---|---|", *rows, "", ""])


def handlers_of() -> str:
    """Return the table of Ignite's handlers that are taken as they are, and where they go."""
    rows = [
        f"| `{name.rpartition('.')[2]}` | {on} | {f'`{event}`' if event else '`attach(engine)`'} |"
        for name, (on, event) in sorted(
            DEFAULTS.items(), key=lambda item: item[0].rpartition(".")[2]
        )
    ]
    return "\n".join(["", "| handler | engine | event |", "|---|---|---|", *rows, "", ""])


def _event(name: str) -> str:
    if not name:
        return "the model's forward"
    return name if " " in name else f"`{name}`"  # a moment in words is no name


def _slot(name: str) -> str:
    slot = SAVER_HOOKS.get(name)
    return f"the same; a saver's at `{slot}`" if slot else "the same"


def _of_composer() -> str:
    """Return the table of Composer's events, with the differences of each."""
    hooks: dict[str, list[str]] = {}
    for hook in HOOKS:
        for event in COMPOSER_EVENTS.get(hook, ()):
            hooks.setdefault(event, []).append(f"`{hook}`")
    rows = [
        f"| `{event}` | {', '.join(where)} | {DECLARED.get(event, '')} |"
        for event, where in hooks.items()
    ]
    head = ["", "| there | called here at | differences |", "|---|---|---|"]
    return "\n".join([*head, *rows, "", ""])
