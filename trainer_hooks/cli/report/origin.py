"""The parts of the report that tell what a run was made with: environment, callbacks, plugins."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from trainer_hooks.cli.report.html import Html, element, facts, joined, table
from trainer_hooks.cli.report.journal import number, text
from trainer_hooks.cli.values import size_text

if TYPE_CHECKING:
    from trainer_hooks.cli.report.run import Run

__all__ = ["show_environment", "show_plugins"]

_COMMIT = 12


def show_environment(run: Run) -> Html:
    """Return what the last start of a training was made with, and what was another before."""
    fit = run.last_fit
    if fit is None:
        return element("p", "No journal was kept.", class_="note")
    told = _told(fit.start)
    versions = _dict(fit.start, "versions")
    packages = element(
        "details",
        element("summary", f"versions of {len(versions)} packages"),
        facts({str(name): str(version) for name, version in versions.items()}),
    )
    changed = []
    for earlier in run.fits:
        then = _told(earlier.start)
        for name in told:
            if earlier is not fit and then.get(name) != told[name]:
                changed.append(f"{name}: {then.get(name) or 'nothing'}")
    parts = [facts(told), packages]
    if changed:
        listed = [element("li", line) for line in dict.fromkeys(changed)]
        parts += [element("p", "Other at earlier starts:", class_="note"), element("ul", *listed)]
    return joined(parts)


def show_plugins(run: Run) -> Html:
    """Return the callbacks that took part, and the plugins that were found."""
    fit = run.last_fit
    if fit is None:
        return element("p", "No journal was kept.", class_="note")
    rows = [
        [text(item, "name"), text(item, "supplier"), text(item, "band").lower(), ""]
        for item in _dicts(fit.start, "callbacks")
    ]
    rows += [
        [text(item, "name"), "", "", f"disabled in {text(item, 'hook')}: {text(item, 'error')}"]
        for item in _dicts(fit.end, "disabled")
    ]
    parts = [table(["callback", "from", "turn", ""], rows, label="callbacks")]
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
    if plugins:
        head = ["plugin", "entry point", "status", "why", "loaded in"]
        parts.append(table(head, plugins, label="plugins", right=(4,)))
    else:
        parts.append(element("p", "No plugins are installed.", class_="note"))
    return joined(parts)


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
