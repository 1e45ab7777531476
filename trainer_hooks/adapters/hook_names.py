"""The names of the hooks in Lightning, Composer and pytorch-accelerated, and look-up by any name.

The tables are keyed by our hook; a hook that a framework lacks is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainer_hooks.hooks.spec import ALIASES, EVENT_NAMES, HOOKS, HookSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

_IN_LIGHTNING = (
    "setup", "on_load_checkpoint", "on_fit_start", "on_sanity_check_start", "on_sanity_check_end",
    "on_train_start", "on_train_epoch_start", "on_train_batch_start", "on_before_zero_grad",
    "on_before_backward", "on_after_backward", "on_before_optimizer_step", "on_train_batch_end",
    "on_validation_start", "on_validation_epoch_start", "on_validation_batch_start",
    "on_validation_batch_end", "on_validation_epoch_end", "on_validation_end",
    "on_train_epoch_end", "on_train_end", "on_fit_end", "on_test_start", "on_test_epoch_start",
    "on_test_batch_start", "on_test_batch_end", "on_test_epoch_end", "on_test_end",
    "on_predict_start", "on_predict_epoch_start", "on_predict_batch_start",
    "on_predict_batch_end", "on_predict_epoch_end", "on_predict_end", "on_save_checkpoint",
    "on_exception", "teardown",
)  # fmt: skip
_IN_LIGHTNING_1 = (
    "on_init_start", "on_init_end", "on_epoch_start", "on_epoch_end", "on_keyboard_interrupt",
)  # fmt: skip

LIGHTNING_NAMES: Mapping[str, str] = {
    **dict.fromkeys(_IN_LIGHTNING_1, "1.x same"),
    "on_configure_model": "1.x on_configure_sharded_model",
    **dict.fromkeys(_IN_LIGHTNING, "same"),
}
"""Lightning's hooks: `"same"` name, or `"1.x ..."` where Lightning had the hook before 2.0 only."""

COMPOSER_NAMES = EVENT_NAMES
"""Composer's events. They are the second names of the members of `trainer_hooks.Event`, too."""

ACCELERATED_NAMES: Mapping[str, str] = {
    "on_init_end": "on_init_end",
    "on_fit_start": "on_training_run_start",
    "on_train_epoch_start": "on_train_epoch_start",
    "on_train_batch_start": "on_train_step_start",
    # before the backward there
    "on_after_loss": "on_train_step_end",
    # before the epoch's evaluation there, and so not our hook of that name
    "on_train_batches_end": "on_train_epoch_end",
    "on_validation_epoch_start": "on_eval_epoch_start",
    "on_validation_batch_start": "on_eval_step_start",
    "on_validation_batch_end": "on_eval_step_end",
    "on_validation_epoch_end": "on_eval_epoch_end",
    "on_train_epoch_end": "on_training_run_epoch_end",
    "on_fit_end": "on_training_run_end",
    "on_evaluation_run_start": "on_evaluation_run_start",
    "on_evaluation_run_end": "on_evaluation_run_end",
    "on_test_epoch_start": "on_eval_epoch_start",
    "on_test_batch_start": "on_eval_step_start",
    "on_test_batch_end": "on_eval_step_end",
    "on_test_epoch_end": "on_eval_epoch_end",
    "on_stop_training_error": "on_stop_training_error",
}
"""pytorch-accelerated's hooks; its evaluation hooks stand for ours of validation and of test."""


@dataclass(frozen=True, slots=True)
class HookMatch:
    """A hook that a name stands for.

    Attributes:
        spec: the hook.
        owner: whose name for the hook that is: a framework's, an `"older name"`, or an empty string
            for the name that it has here.
    """

    spec: HookSpec
    owner: str = ""


def names_elsewhere(hook: str) -> dict[str, str]:
    """Return a hook's names in other frameworks, by framework."""
    lightning = LIGHTNING_NAMES.get(hook, "")
    name = lightning.removeprefix("1.x ")
    names = {
        "Lightning 1.x" if lightning.startswith("1.x") else "Lightning": (
            hook if name == "same" else name
        ),
        "Composer": COMPOSER_NAMES.get(hook, ""),
        "pytorch-accelerated": ACCELERATED_NAMES.get(hook, ""),
    }
    return {framework: name for framework, name in names.items() if name}


def find_hooks(name: str, hooks: Mapping[str, HookSpec] = HOOKS) -> tuple[HookMatch, ...]:
    """Return the hooks that a name stands for: one of that name, then those named so elsewhere.

    Composer's events are known by their values and by the names of its enum, `Event.BATCH_END`.

    Args:
        name: a name of a hook, an older name of one, or a name in another framework.
        hooks: all known hooks by name.
    """
    matches = []
    if name in hooks:
        matches.append(HookMatch(hooks[name]))
    elif name in ALIASES:
        matches.append(HookMatch(hooks[ALIASES[name]], "older name"))
    matched = {match.spec.name for match in matches}
    event = name.removeprefix("Event.").lower()
    for spec in hooks.values():
        for framework, other in names_elsewhere(spec.name).items():
            # all of them: on_eval_epoch_start of pytorch-accelerated stands for two hooks of ours
            wanted = event if framework == "Composer" else name
            if other == wanted and spec.name not in matched:
                matched.add(spec.name)
                matches.append(HookMatch(spec, framework))
    return tuple(matches)


def known_names(hooks: Mapping[str, HookSpec] = HOOKS) -> tuple[str, ...]:
    """Return every name that `find_hooks` knows, sorted."""
    names = {*hooks, *ALIASES}
    for hook in hooks:
        names.update(names_elsewhere(hook).values())
    return tuple(sorted(names))
