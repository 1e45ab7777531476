"""The page of differences from Lightning: its names from a file, ours from the code.

A name of Lightning that is neither here nor in `INSTEAD` is an error, and so is a reason for a
name that is here by now. `lightning_names.py` writes the file.
"""

from __future__ import annotations

import inspect
import json
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trainer_hooks
from lightning_reasons import INSTEAD, MEANINGS
from tables import cell
from trainer_hooks import Callback, DataModule, Module, Trainer, Tuner, callbacks, loggers
from trainer_hooks.adapters.hook_names import LIGHTNING_NAMES
from trainer_hooks.hooks.spec import HOOKS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

__all__ = ["lightning_page"]

_PACKAGES = ("callbacks", "loggers", "profilers", "trainer", "utilities")
_NAMES = Path(__file__).with_name("lightning_names.json")

_EXAMPLE = """
import torch

from trainer_hooks import Module, Trainer


class Line(Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.seen = []

    def on_before_zero_grad(self, optimizer):
        self.seen.append("zero_grad")

    def training_step(self, batch, batch_idx):
        self.seen.append("training_step")
        return self.layer(batch).square().mean()

    def on_before_backward(self, loss):
        self.seen.append("backward")

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.layer(batch).square().mean())

    def on_validation_start(self):
        self.seen.append("validation")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
batches = list(torch.randn(4, 8, 4))
module, trainer = Line(), Trainer(max_steps=1, num_sanity_val_steps=0, **quiet)
trainer.fit(module, batches, batches)
assert module.seen == ["zero_grad", "training_step", "backward", "validation"]
assert (trainer.max_epochs, trainer.fast_dev_run) == (-1, 0)

trainer.fit(Line(), batches)
assert trainer.global_step == 1  # from nothing
""".strip()


def lightning_page() -> str:
    """Return docs/differences-from-lightning.md.

    Raises:
        ValueError: a name of Lightning is neither here nor explained, or both.
    """
    names = json.loads(_NAMES.read_text(encoding="utf-8"))
    lines = [
        "# Differences from Lightning",
        "",
        "<!-- made by docs/generate.py from the code and docs/lightning_names.json:",
        "do not edit -->",
        "",
        f"For users of Lightning, compared with version {names['version']}. Names that are not",
        "listed have the same arguments and meaning in both. Checkpoints of Lightning 2.x can be",
        "resumed here, and Lightning reads those of trainer_hooks:",
        "[checkpoints.md](checkpoints.md).",
        "",
        "## Differences in behaviour",
        "",
        "The programs in `tests/lightning/programs` run on both, and a test compares the order of",
        "hooks, counters, logged values, weights, returned values and errors. A difference that is",
        "not on this page fails the test, and so does a row without a difference.",
        "`python tests/lightning/compare.py NAME` prints the results of a program on both.",
        "",
        *_behaviour(),
        "### As code",
        "",
        "Some of these, as code:",
        "",
        "```python",
        *_EXAMPLE.splitlines(),
        "```",
        "",
        "## Only in Lightning",
        "",
        "All options of the Trainer are here; `model_registry` takes None alone.",
    ]
    for title, kind, ours in _kinds():
        lines += _missing(title, kind, names[kind], ours())
    lines += _arguments(names)
    lines += _only_here(names)
    return "\n".join(lines) + "\n"


def _behaviour() -> Iterator[str]:
    """Yield the lines of a table for each section of differences in behaviour."""
    for title, rows in MEANINGS.items():
        yield from (f"### {title}", "", "| | in Lightning | here |", "|---|---|---|")
        yield from (f"| {' | '.join(map(cell, row))} |" for row in rows)
        yield ""


def _kinds() -> Iterable[tuple[str, str, Callable[[], Iterable[str]]]]:
    """Return the title of each kind of names, its key, and a function that lists ours."""
    torch_module = {*dir(Module.__mro__[1]()), "forward"}
    trainer = Trainer(logger=False, enable_checkpointing=False, accelerator="cpu", plugins=False)
    return (
        ("Names of the package", "top", lambda: trainer_hooks.__all__),
        (
            "Packages",
            "packages",
            lambda: _PACKAGES,
        ),
        ("Options of the Trainer", "options", lambda: inspect.signature(Trainer).parameters),
        ("Attributes and methods of the Trainer", "trainer", lambda: _public(trainer)),
        ("The Module", "module", lambda: _public(Module()) - torch_module),
        ("The DataModule", "datamodule", lambda: _public(DataModule())),
        ("The Callback", "callback", lambda: _public(Callback())),
        ("The Tuner", "tuner", lambda: _public(Tuner(trainer))),
        ("Callbacks", "callbacks", lambda: callbacks.__all__),
        ("Loggers", "loggers", lambda: loggers.__all__),
    )


def _only_here(names: Mapping[str, Any]) -> list[str]:
    """Return the lists of names that Lightning does not have, the hooks apart from the rest."""
    lines = [
        "",
        "## Only here",
        "",
        "[trainer.md](trainer.md), [hooks.md](hooks.md), [module.md](module.md) and",
        "[callbacks](callbacks/README.md) describe the names in these lists.",
    ]
    hooks = sorted(name for name in HOOKS if LIGHTNING_NAMES.get(name) != "same")
    lists = [("hooks", hooks)]
    for title, kind, ours in _kinds():
        if kind != "packages":
            shown = title[0].lower() + title[1:]
            lists.append((shown, sorted(set(ours()) - set(names[kind]) - set(hooks))))
    for title, more in lists:
        if more:
            named = ", ".join(f"`{name}`" for name in more) + "."
            listed = textwrap.wrap(named, 96, break_long_words=False, break_on_hyphens=False)
            lines += ["", f"### Only here: {title}", "", *listed]
    return lines


def _public(owner: object) -> set[str]:
    return {name for name in dir(owner) if name[0] != "_"}


def _missing(title: str, kind: str, theirs: Iterable[str], ours: Iterable[str]) -> list[str]:
    """Return the table of names that are not here, each with its reason."""
    missing = set(theirs) - set(ours)
    wrong = missing ^ set(INSTEAD[kind])
    if wrong:
        raise ValueError(
            f"{kind}: {', '.join(sorted(wrong))}: INSTEAD in docs/lightning_reasons.py "
            "must have the replacement of each name that is not here, and of no other."
        )
    if not missing:
        return []
    sharing: dict[str, list[str]] = {}
    for name in sorted(missing):
        sharing.setdefault(cell(INSTEAD[kind][name]), []).append(f"`{name}`")
    rows = [f"| {', '.join(alike)} | {instead} |" for instead, alike in sharing.items()]
    return ["", f"### {title}", "", "| name | instead |", "|---|---|", *rows]


def _arguments(names: Mapping[str, Any]) -> list[str]:
    """Return the lines on arguments of callbacks and loggers that both have.

    Raises:
        ValueError: one of Lightning's is missing here.
    """
    rows = []
    for kind, package in (("callbacks", callbacks), ("loggers", loggers)):
        for name in set(names[kind]) & set(package.__all__):
            ours = inspect.signature(getattr(package, name)).parameters
            takes_any = any(p.kind is p.VAR_KEYWORD for p in ours.values())
            missing = [] if takes_any else [a for a in names[kind][name] if a not in ours]
            if missing:
                raise ValueError(f"{name} lacks Lightning's arguments {missing}.")
            more = [] if takes_any else [a for a in ours if a not in names[kind][name]]
            if more:
                rows.append(f"| `{name}` | {', '.join(f'`{a}`' for a in more)} |")
    head = ["", "## Arguments", "", "Callbacks and loggers that both have take all of Lightning's"]
    return [*head, "arguments. Some take more:", "", "| | also |", "|---|---|", *sorted(rows)]
