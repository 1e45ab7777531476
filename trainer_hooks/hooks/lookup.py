"""Find a hook by any name that it goes by, here or in another framework."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainer_hooks.hooks.spec import ALIASES, HOOKS, HookSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Match", "known_names", "look_up", "names_elsewhere"]


@dataclass(frozen=True, slots=True)
class Match:
    """A hook that a name stands for.

    Attributes:
        spec: the hook.
        owner: whose name for it that is: a framework's, an `"older name"`, or an empty string for
            the name that it has here.
    """

    spec: HookSpec
    owner: str = ""


def names_elsewhere(spec: HookSpec) -> dict[str, str]:
    """Return the hook's names by framework; those that do not have the moment are left out."""
    lightning = spec.lightning.removeprefix("1.x ")
    names = {
        "Lightning 1.x" if spec.lightning.startswith("1.x") else "Lightning": (
            spec.name if lightning == "same" else lightning
        ),
        "Composer": spec.composer,
        "pytorch-accelerated": spec.accelerated,
    }
    return {framework: name for framework, name in names.items() if name}


def look_up(name: str, hooks: Mapping[str, HookSpec] = HOOKS) -> tuple[Match, ...]:
    """Return what `name` stands for: a hook of that name first, then those named so elsewhere.

    Composer's events are known by their values and by the names of its enum, `Event.BATCH_END`.

    Args:
        name: a name of a hook, an older name of one, or a name in another framework.
        hooks: the hooks that there are.
    """
    found = []
    if name in hooks:
        found.append(Match(hooks[name]))
    elif name in ALIASES:
        found.append(Match(hooks[ALIASES[name]], "older name"))
    known = {match.spec.name for match in found}
    event = name.removeprefix("Event.").lower()
    for spec in hooks.values():
        for framework, other in names_elsewhere(spec).items():
            asked = event if framework == "Composer" else name
            if other == asked and spec.name not in known:
                known.add(spec.name)
                found.append(Match(spec, framework))
    return tuple(found)


def known_names(hooks: Mapping[str, HookSpec] = HOOKS) -> tuple[str, ...]:
    """Return every name that `look_up` understands, sorted."""
    names = {*hooks, *ALIASES}
    for spec in hooks.values():
        names.update(names_elsewhere(spec).values())
    return tuple(sorted(names))
