"""Finding a hook by a name that it has elsewhere."""

from __future__ import annotations

import pytest
from for_each import for_each

from trainer_hooks.adapters.hook_names import find_hooks, known_names, names_elsewhere
from trainer_hooks.hooks.spec import ALIASES, HOOKS, HookSpec


def found(name: str) -> list[tuple[str, str]]:
    return [(match.spec.name, match.owner) for match in find_hooks(name)]


@for_each(HOOKS)
def test_a_hook_is_found_first_by_its_own_name(name) -> None:
    """A hook of that name comes before hooks that have the name in another framework."""
    assert found(name)[0] == (name, "")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("batch_end", [("on_train_batch_end", "Composer")]),
        ("BATCH_END", [("on_train_batch_end", "Composer")]),
        ("Event.BATCH_END", [("on_train_batch_end", "Composer")]),
        ("on_train_step_end", [("on_after_loss", "pytorch-accelerated")]),
        ("on_configure_sharded_model", [("on_configure_model", "older name")]),
        ("eval_start", [("on_validation_start", "Composer"), ("on_test_start", "Composer")]),
        (
            "on_train_epoch_end",
            [("on_train_epoch_end", ""), ("on_train_batches_end", "pytorch-accelerated")],
        ),
        ("on_init_end", [("on_init_end", "")]),
    ],
)
def test_a_name_of_another_framework_is_understood(name, expected) -> None:
    """Events, enum members, callback methods and older names stand for our hooks."""
    assert found(name) == expected


@pytest.mark.parametrize(
    "name", ["", "on_lunch", "ON_TRAIN_STEP_END", "same", "1.x same", "Event."]
)
def test_what_is_no_name_finds_nothing(name) -> None:
    """Only Composer's names come in capitals; how the catalogue notes a name is none."""
    assert found(name) == []


def test_every_known_name_finds_something() -> None:
    """The names among which a misspelt one is sought are all understood."""
    names = known_names()
    assert list(names) == sorted(set(names))
    assert {*HOOKS, *ALIASES, "batch_end", "on_train_step_end"} <= set(names)
    assert all(map(find_hooks, names))


def test_names_elsewhere_are_told_by_framework() -> None:
    """A name that only Lightning 1.x had says so; a framework without the moment is left out."""
    assert names_elsewhere("on_after_optimizer_step") == {}
    assert names_elsewhere("on_epoch_start") == {"Lightning 1.x": "on_epoch_start"}
    assert names_elsewhere("on_configure_model") == {"Lightning 1.x": "on_configure_sharded_model"}
    assert names_elsewhere("on_train_batch_end") == {
        "Lightning": "on_train_batch_end",
        "Composer": "batch_end",
    }


def test_the_hooks_of_a_package_are_found_among_others() -> None:
    """The hooks that there are can be given."""
    hooks = {**HOOKS, "on_lunch": HookSpec("on_lunch", ("trainer",), "Called at noon.")}
    assert [match.spec.name for match in find_hooks("on_lunch", hooks)] == ["on_lunch"]
    assert "on_lunch" in known_names(hooks)
