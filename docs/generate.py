"""Write the pages that are made from the code: `python docs/generate.py`.

Each fact on these pages comes from its declaration in the code; a test fails when a page is stale.
"""

from __future__ import annotations

import inspect
import io
from pathlib import Path

from callback_pages import callback_pages
from lightning_page import lightning_page
from lightning_stubs import FOLDER as STUBS
from lightning_stubs import lightning_stubs
from tables import cell, fill, member_row
from trainer_hooks._text import show_tree
from trainer_hooks.adapters.hook_names import (
    ACCELERATED_NAMES,
    COMPOSER_NAMES,
    LIGHTNING_NAMES,
    names_elsewhere,
)
from trainer_hooks.hooks.loop_tree import LOOP, tree_branches
from trainer_hooks.hooks.spec import ALIASES, HOOKS, HookSpec
from trainer_hooks.trainer.options.config import option_docs
from trainer_hooks.trainer.trainer import Trainer

FOLDER = Path(__file__).parent


def hooks_page() -> str:
    """Return docs/hooks.md."""
    lines = [
        "# The hooks",
        "",
        "<!-- made by docs/generate.py from trainer_hooks/hooks/catalogue.py and loop_tree.py:",
        "do not edit -->",
        "",
        "Every hook, in the order in which a run fires them. A callback's method takes `trainer`",
        "and `module` first, then the arguments in the table; the two init hooks take `trainer`",
        "alone. A module may define all but the init hooks, without `trainer` and `module`. Hooks",
        "are called with positional arguments and return None. `dataloader_idx` is passed where",
        "there are several loaders.",
        "",
        "A *step* is an optimizer step (`trainer.global_step`). A *window* is the batches whose",
        "gradients accumulate into one step: a single batch unless `accumulate_grad_batches` is",
        "larger. A *slot* is a moment for saving, one of the `..._checkpoint` hooks.",
        "",
        "| hook | fires | arguments |",
        "|---|---|---|",
        *(_hook_row(spec) for spec in HOOKS.values()),
        "",
        "Callbacks also have `state_dict()` and `load_state_dict(state)`, called while a",
        "checkpoint is made and restored. A callback that overrides `run_event(event, *args)`",
        "receives every event there, and may call its own hooks from it.",
        "",
        "Older names are accepted: "
        + ", ".join(f"`{old}` for `{new}`" for old, new in ALIASES.items())
        + ".",
        "",
        "For events of your own, `trainer.call_event(name, **arguments)` calls the method of that",
        "name on every callback that has it.",
        "",
        "## The loop",
        "",
        "The place of each hook in the loop. `trainer.describe_hooks()` prints this tree with the",
        "callbacks that listen at each hook; `trainer-hooks hooks NAME` describes a single hook.",
        "",
        "```text",
        *_loop(),
        "```",
        "",
        "With manual optimization, the hooks of the step fire where `training_step` makes the call",
        "that they belong to, such as `manual_backward`. An optimizer that evaluates the loss",
        "several times, such as LBFGS, fires them at each evaluation.",
        "",
        "## In other trainers",
        "",
        "Names of the same moments in other trainers. *same*: the name is the same there; *1.x*:",
        "Lightning had it before 2.0. Hooks that only trainer_hooks has are left out.",
        "",
        "| hook | Lightning | Composer | pytorch-accelerated |",
        "|---|---|---|---|",
        *(_elsewhere_row(hook) for hook in HOOKS if names_elsewhere(hook)),
    ]
    return "\n".join(lines) + "\n"


def _loop() -> list[str]:
    text = io.StringIO()
    for branch in tree_branches(LOOP):
        show_tree(branch, file=text)
    return text.getvalue().splitlines()


def _hook_row(spec: HookSpec) -> str:
    arguments = ", ".join(f"`{a}`" for a in spec.arguments if a not in ("trainer", "module"))
    when = spec.summary.removeprefix("Called ").rstrip(".").replace("|", r"\|")
    return f"| `{spec.name}` | {when} | {arguments} |"


def _elsewhere_row(hook: str) -> str:
    tables = (LIGHTNING_NAMES, COMPOSER_NAMES, ACCELERATED_NAMES)
    return f"| `{hook}` | {' | '.join(names.get(hook, '') for names in tables)} |"


def trainer_page() -> str:
    """Return docs/trainer.md."""
    lines = [
        "# The Trainer: options, attributes, methods",
        "",
        "<!-- made by docs/generate.py from trainer_hooks/trainer/: do not edit -->",
        "",
        "Pass all options by keyword. Options that Lightning 2.x also has keep its names, defaults",
        "and meanings, except for [these differences](differences-from-lightning.md).",
        "",
        "| option | default | meaning |",
        "|---|---|---|",
        *(f"| `{name}` | `{default}` | {cell(doc)} |" for name, default, doc in option_docs()),
    ]
    properties, methods = _public_members(Trainer)
    lines += ["", "## Attributes", "", "| name | value |", "|---|---|"]
    lines += _attribute_rows(properties)
    lines += ["", "## Methods", "", "| name | description |", "|---|---|"]
    lines += [member_row(Trainer, name) for name in methods]
    return "\n".join(lines) + "\n"


def _attribute_rows(names: list[str]) -> list[str]:
    """Return a row for each property, with all its names."""
    named: dict[object, list[str]] = {}
    for name in names:
        named.setdefault(inspect.getattr_static(Trainer, name), []).append(f"`{name}`")
    rows = (member_row(Trainer, shared[0].strip("`")) for shared in named.values())
    return [
        row.replace(shared[0], ", ".join(shared), 1)
        for row, shared in zip(rows, named.values(), strict=True)
    ]


def _public_members(owner: type) -> tuple[list[str], list[str]]:
    """Return the names of a class's properties and of its methods, in their order."""
    names = [name for kind in reversed(owner.__mro__) for name in vars(kind) if name[0] != "_"]
    found = {name: inspect.getattr_static(owner, name) for name in names}
    properties = [name for name, member in found.items() if isinstance(member, property)]
    return properties, [name for name in found if name not in properties]


def hand_pages() -> dict[str, str]:
    """Return the pages that are written by hand, with their tables made anew."""
    texts = {page.name: page.read_text(encoding="utf-8") for page in FOLDER.glob("*.md")}
    return {name: fill(text) for name, text in texts.items() if "<!-- table:" in text}


def pages() -> dict[str, str]:
    """Return the text of every page that is made, in whole or in part, by its path below docs/."""
    return {
        **hand_pages(),
        "hooks.md": hooks_page(),
        "trainer.md": trainer_page(),
        "differences-from-lightning.md": lightning_page(),
        **callback_pages(),
    }


def main() -> None:
    """Write all pages and stubs, and remove those of callbacks and modules that are no more."""
    made = pages()
    (FOLDER / "callbacks").mkdir(exist_ok=True)
    for name, text in made.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    for page in (FOLDER / "callbacks").glob("*.md"):
        if f"callbacks/{page.name}" not in made:
            page.unlink()
    for stub in STUBS.rglob("*.pyi"):
        stub.unlink()
    for stub, text in lightning_stubs().items():
        (STUBS / stub).parent.mkdir(parents=True, exist_ok=True)
        (STUBS / stub).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
