"""Write the pages that are made from the code: `python docs/generate.py`.

Each fact on these pages comes from its declaration in the code; a test fails when a page is stale.
`--no-pictures` leaves the pictures as they are: their runs take a minute.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

from api_pages import api_pages
from callback_pages import callback_pages
from example_pages import example_pages
from inventories import inventories
from lightning_page import lightning_page
from lightning_stubs import FOLDER as STUBS
from lightning_stubs import lightning_stubs
from pictures import pictures, write_pictures
from tables import fill
from trainer_hooks._text import show_tree
from trainer_hooks.adapters.hook_names import (
    ACCELERATED_NAMES,
    COMPOSER_NAMES,
    LIGHTNING_NAMES,
    names_elsewhere,
)
from trainer_hooks.hooks.loop_tree import LOOP, tree_branches
from trainer_hooks.hooks.spec import ALIASES, HOOKS, HookSpec
from trainer_page import trainer_page

FOLDER = Path(__file__).parent


_COMMON = (
    "setup", "on_fit_start", "on_train_start", "on_train_epoch_start", "on_train_batch_start",
    "on_before_optimizer_step", "on_train_batch_end", "on_validation_epoch_end",
    "on_train_epoch_end", "on_fit_end", "on_exception", "teardown",
)  # fmt: skip
"""The hooks with which the page begins."""


def hooks_page() -> str:
    """Return docs/hooks.md."""
    lines = [
        "# The hooks",
        "",
        "<!-- search: hook, hooks -->",
        "",
        "<!-- made by docs/generate.py from trainer_hooks/hooks/catalogue.py and loop_tree.py:",
        "do not edit -->",
        "",
        "## The twelve that most callbacks need",
        "",
        "Each takes `trainer` and `module` first, then the arguments in the table.",
        "",
        "| hook | fires | arguments |",
        "|---|---|---|",
        *(_hook_row(HOOKS[name]) for name in _COMMON),
        "",
        "State goes to checkpoints by `state_dict()` and `load_state_dict(state)`:",
        "[writing a callback](writing-a-callback.md).",
        "",
        "## Every hook",
        "",
        "In the order in which a run fires them. A callback's method takes `trainer`",
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
        **example_pages(),
        **api_pages(),
        **inventories(),
    }


def main() -> None:
    """Write all pages and stubs, and remove those of callbacks and modules that are no more."""
    made = pages()
    for name, text in made.items():
        (FOLDER / name).parent.mkdir(exist_ok=True)
        (FOLDER / name).write_text(text, encoding="utf-8")
    for folder in ("callbacks", "api", "examples"):
        for page in (FOLDER / folder).glob("*.md"):
            if f"{folder}/{page.name}" not in made:
                page.unlink()
    for stub in STUBS.rglob("*.pyi"):
        stub.unlink()
    for stub, text in lightning_stubs().items():
        (STUBS / stub).parent.mkdir(parents=True, exist_ok=True)
        (STUBS / stub).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
    if "--no-pictures" not in sys.argv:
        write_pictures(pictures())
