"""The hook catalogue, the relay that fires it, the order of callbacks, and installed plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of

if TYPE_CHECKING:
    from trainer_hooks.hooks.catalogue import Hooks
    from trainer_hooks.hooks.check import doubts, faults
    from trainer_hooks.hooks.costs import duration
    from trainer_hooks.hooks.discovery import (
        discover,
        imported,
        installed_hooks,
        is_request,
        load_each,
        report,
    )
    from trainer_hooks.hooks.event import Event
    from trainer_hooks.hooks.events import check_event, positional
    from trainer_hooks.hooks.installation import installed
    from trainer_hooks.hooks.lookup import Match, known_names, look_up, names_elsewhere
    from trainer_hooks.hooks.member import Member
    from trainer_hooks.hooks.order import Band, in_order
    from trainer_hooks.hooks.places import branches_of, hooks_in, places_of
    from trainer_hooks.hooks.plugin import (
        GROUPS,
        HOOKS_GROUP,
        Plugin,
        PluginFilter,
        normal_name,
    )
    from trainer_hooks.hooks.profile import HookProfile
    from trainer_hooks.hooks.relay import (
        HookRelay,
        call_noting,
        describe_error,
        hook_in_work,
        is_isolated,
        is_module_first,
        place_in_work,
    )
    from trainer_hooks.hooks.spec import ALIASES, HOOKS, HookSpec, empty_hook, overrides
    from trainer_hooks.hooks.tree import ANY_MOMENT, FUNCTIONS, LOOP, Block

__all__ = [
    "ALIASES",
    "ANY_MOMENT",
    "FUNCTIONS",
    "GROUPS",
    "HOOKS",
    "HOOKS_GROUP",
    "LOOP",
    "Band",
    "Block",
    "Event",
    "HookProfile",
    "HookRelay",
    "HookSpec",
    "Hooks",
    "Match",
    "Member",
    "Plugin",
    "PluginFilter",
    "branches_of",
    "call_noting",
    "check_event",
    "describe_error",
    "discover",
    "doubts",
    "duration",
    "empty_hook",
    "faults",
    "hook_in_work",
    "hooks_in",
    "imported",
    "in_order",
    "installed",
    "installed_hooks",
    "is_isolated",
    "is_module_first",
    "is_request",
    "known_names",
    "load_each",
    "look_up",
    "names_elsewhere",
    "normal_name",
    "overrides",
    "place_in_work",
    "places_of",
    "positional",
    "report",
]

if not TYPE_CHECKING:  # so that a name that is not there is an error to type checkers
    __getattr__ = loader_of(
        __name__,
        {
            "ALIASES": "spec",
            "ANY_MOMENT": "tree",
            "Band": "order",
            "Block": "tree",
            "Event": "event",
            "FUNCTIONS": "tree",
            "GROUPS": "plugin",
            "HOOKS": "spec",
            "HOOKS_GROUP": "plugin",
            "HookProfile": "profile",
            "HookRelay": "relay",
            "HookSpec": "spec",
            "Hooks": "catalogue",
            "LOOP": "tree",
            "Match": "lookup",
            "Member": "member",
            "Plugin": "plugin",
            "PluginFilter": "plugin",
            "branches_of": "places",
            "call_noting": "relay",
            "check_event": "events",
            "describe_error": "relay",
            "discover": "discovery",
            "doubts": "check",
            "duration": "costs",
            "empty_hook": "spec",
            "faults": "check",
            "hook_in_work": "relay",
            "place_in_work": "relay",
            "hooks_in": "places",
            "imported": "discovery",
            "in_order": "order",
            "installed": "installation",
            "installed_hooks": "discovery",
            "is_isolated": "relay",
            "is_module_first": "relay",
            "is_request": "discovery",
            "known_names": "lookup",
            "load_each": "discovery",
            "look_up": "lookup",
            "names_elsewhere": "lookup",
            "normal_name": "plugin",
            "overrides": "spec",
            "places_of": "places",
            "positional": "events",
            "report": "discovery",
        },
    )
