"""What a run was made with, as plain data: environment, callbacks, plugins."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainer_hooks.cli.report.journal import number, text
from trainer_hooks.cli.values import size_text

if TYPE_CHECKING:
    from trainer_hooks.cli.report.run import Run

__all__ = ["Origin", "Supplied", "origin_of", "supplied_to"]

_COMMIT = 12


@dataclass(frozen=True, slots=True)
class Origin:
    """What a run was made with.

    Attributes:
        facts: names, and what they stand for.
        versions: of the packages.
        earlier: what was another at earlier starts.
        config: what the command line resolved, as its file holds it; empty without one.
    """

    facts: dict[str, str]
    versions: dict[str, str]
    earlier: list[str]
    config: str


@dataclass(frozen=True, slots=True)
class Supplied:
    """What took part in a run.

    Attributes:
        callbacks: of each its name, who supplied it, its turn, and why it was disabled.
        plugins: of each its distribution, entry point, status, reason, and the time to load it.
    """

    callbacks: list[list[str]]
    plugins: list[list[str]]


def origin_of(run: Run) -> Origin | None:
    """Return what the last start of a training was made with, and what was another before."""
    fit = run.last_fit
    if fit is None:
        return None
    told = _told(fit.start)
    versions = {str(n): str(version) for n, version in _dict(fit.start, "versions").items()}
    changed = []
    for earlier in run.fits:
        then = _told(earlier.start)
        for name in told:
            if earlier is not fit and then.get(name) != told[name]:
                changed.append(f"{name}: {then.get(name) or 'nothing'}")
    facts = {name: value for name, value in told.items() if value}
    return Origin(facts, versions, list(dict.fromkeys(changed)), text(fit.start, "config"))


def supplied_to(run: Run) -> Supplied | None:
    """Return the callbacks that took part, and the plugins that were found."""
    fit = run.last_fit
    if fit is None:
        return None
    callbacks = [
        [text(item, "name"), text(item, "supplier"), text(item, "band").lower(), ""]
        for item in _dicts(fit.start, "callbacks")
    ]
    callbacks += [
        [text(item, "name"), "", "", f"disabled in {text(item, 'hook')}: {text(item, 'error')}"]
        for item in _dicts(fit.end, "disabled")
    ]
    plugins = [
        [
            f"{text(item, 'distribution')} {text(item, 'version')}",
            text(item, "name"),
            text(item, "status"),
            text(item, "reason"),
            f"{number(item, 'seconds') * 1e3:,.1f} ms",
        ]
        for item in _dicts(fit.start, "plugins")
    ]
    return Supplied(callbacks, plugins)


def _told(start: dict[str, Any]) -> dict[str, str]:
    hardware, versions, seeds = (_dict(start, key) for key in ("hardware", "versions", "seeds"))
    git, variables = _dict(start, "git"), _dict(start, "environment")
    changed = int(number(git, "changed_files"))
    code = f"{text(git, 'commit')[:_COMMIT]} on {text(git, 'branch')}" if git else "no git"
    code += f", {changed} changed files" if changed else ""
    gpus = [
        f"{text(gpu, 'name')} ({size_text(int(number(gpu, 'memory_bytes')))})"
        for gpu in _dicts(hardware, "gpus")
    ]
    command = start.get("command")
    words = [str(word) for word in command] if isinstance(command, list) else []
    return {
        "command": shlex.join(words),
        "code": code,
        "Python": text(versions, "python"),
        "torch": text(versions, "torch"),
        "trainer_hooks": text(versions, "trainer_hooks"),
        "device": text(hardware, "device"),
        "precision": text(start, "precision"),
        "GPUs": ", ".join(gpus),
        "processor": f"{text(hardware, 'processor')}, {number(hardware, 'cores'):.0f} cores",
        "memory": size_text(int(number(hardware, "memory_bytes"))),
        "system": text(hardware, "system"),
        "host": text(hardware, "host"),
        "seeds": ", ".join(f"{name} {seed}" for name, seed in seeds.items() if seed is not None),
        "variables": ", ".join(f"{name}={value}" for name, value in variables.items()),
    }


def _dict(record: dict[str, Any], name: str) -> dict[str, Any]:
    value = record.get(name)
    return value if isinstance(value, dict) else {}


def _dicts(record: dict[str, Any], name: str) -> list[dict[str, Any]]:
    value = record.get(name)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
