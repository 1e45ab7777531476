"""The hook catalogue as `trainer-hooks hooks` prints it: a list, and a page of each hook."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from trainer_hooks._text import aligned, printable_lines, show_table
from trainer_hooks.adapters.hook_names import (
    HookMatch,
    find_hooks,
    known_names,
    names_elsewhere,
)
from trainer_hooks.cli.commands import print_failure, print_json
from trainer_hooks.cli.plugins.survey import prints_diverted
from trainer_hooks.errors import suggest
from trainer_hooks.hooks.discovery import installed_hooks
from trainer_hooks.hooks.loop_tree import positions_of
from trainer_hooks.hooks.spec import HOOKS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trainer_hooks.hooks.spec import HookSpec

_WIDTH = 88
"""Columns that a signature may take, beside the indentation of the class that it goes into."""


def show_hooks(name: str | None, *, as_json: bool) -> int:
    """List the hooks or describe one, and return the exit code.

    Args:
        name: a hook's name here or in another framework; None lists all hooks.
        as_json: whether to write JSON.
    """
    # plugins that add hooks are imported, and may print where JSON is written
    with prints_diverted():
        hooks = {**HOOKS, **installed_hooks()}
    if name is None:
        if as_json:
            print_json([_summary(spec) for spec in hooks.values()])
        else:
            _show_list(hooks)
        return 0
    matches = find_hooks(name, hooks)
    if not matches:
        return print_failure(
            "hooks",
            f"{name!r} is no hook, here or in another framework."
            f"{suggest('hooks', name, known_names(hooks))} "
            "List them with: trainer-hooks hooks",
        )
    if as_json:
        record = {"name": name, "hooks": [_details(match) for match in matches]}
        print_json(record)
        return 0
    for index, match in enumerate(matches):
        if index:
            print()
        # a package may have added the hook, and wrote its name and its docstring
        print(*map(printable_lines, _page(match, name)), sep="\n")
    return 0


def signature_of(spec: HookSpec) -> str:
    """Return the signature of a hook's method with types, on several lines if it is long."""
    assert spec.declared is not None
    # Signature.format breaks long ones from Python 3.13 on
    parameters = []
    for parameter in inspect.signature(spec.declared).parameters.values():
        text = parameter.name
        if parameter.annotation is not parameter.empty:
            text += f": {parameter.annotation}"
        if parameter.default is not parameter.empty:
            text += f" = {parameter.default!r}"
        parameters.append(text)
    line = f"def {spec.name}({', '.join(parameters)}) -> None"
    if len(line) <= _WIDTH:
        return line
    return "\n".join((f"def {spec.name}(", *(f"    {text}," for text in parameters), ") -> None"))


def example_of(spec: HookSpec) -> str:
    """Return the source of an example callback that overrides this hook."""
    arguments = ", ".join(("self", *spec.arguments))
    if "dataloader_idx" in spec.arguments:
        arguments += "=0"
    return (
        "from trainer_hooks import Callback\n"
        "\n"
        "\n"
        "class MyCallback(Callback):\n"
        f"    def {spec.name}({arguments}):\n"
        f'        print("{spec.name}")'
    )


def _show_list(hooks: Mapping[str, HookSpec]) -> None:
    header = ["hook", "fires", "arguments", "by"]
    rows = [
        [
            spec.name,
            spec.summary.removeprefix("Called ").rstrip("."),
            ", ".join(spec.arguments),
            spec.supplier or "trainer_hooks",
        ]
        for spec in hooks.values()
    ]
    columns = 3 if hooks.keys() == HOOKS.keys() else 4  # no column that says the same everywhere
    show_table(header[:columns], [row[:columns] for row in rows], whole={0})


def _summary(spec: HookSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "fires": spec.summary,
        "arguments": list(spec.arguments),
        "elsewhere": names_elsewhere(spec.name),
        "is_isolated": spec.traits.is_isolated,
        "supplier": spec.supplier or "trainer_hooks",
    }


def _details(match: HookMatch) -> dict[str, Any]:
    spec = match.spec
    return {
        **_summary(spec),
        "asked_as": match.owner or "trainer_hooks",
        "signature": signature_of(spec),
        "places": [
            {"path": list(place.path), "above": place.above, "below": place.below}
            for place in positions_of(spec.name)
        ],
        "example": example_of(spec),
    }


def _page(match: HookMatch, asked: str) -> Iterator[str]:
    """Yield the lines that describe a hook."""
    spec = match.spec
    yield f"{spec.name} ({match.owner}: {asked})" if match.owner else spec.name
    yield spec.summary
    yield ""
    yield signature_of(spec)
    yield ""
    isolated = (
        "every callback has its turn, even if one before it fails"
        if spec.traits.is_isolated
        else "the run ends: the callbacks after it have no turn"
    )
    yield from aligned([*names_elsewhere(spec.name).items(), ("if one fails", isolated)])
    yield ""
    if spec.supplier:
        yield f"fired by {spec.supplier}, through trainer.call_event({spec.name!r}, ...)"
    else:
        yield "where it stands in the loop:"
    for place in positions_of(spec.name):
        yield f"  {' > '.join(text.partition(' (')[0] for text in place.path)}"
        # the first hook of a tree has none above it, the last one none below
        between = [
            f"{word} {hook}"
            for word, hook in (("after", place.above), ("before", place.below))
            if hook
        ]
        yield f"    {', '.join(between)}"
    yield ""
    yield "to copy:"
    yield ""
    yield example_of(spec)
