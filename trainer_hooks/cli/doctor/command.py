"""`trainer-hooks doctor`: the parser and the output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks._text import Branch, printable, show_tree
from trainer_hooks.cli.commands import print_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

    from trainer_hooks.cli.commands import Commands


def add_parser(commands: Commands) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "doctor",
        help="versions, devices and plugins for a bug report; what is not tested or broken",
        description=(
            "Print what a bug report needs: the versions of Python, torch and the packages of the "
            "extras, the devices, the installed plugins, what of this machine is not tested, and "
            "what is broken. Names of users and machines, paths and the values of environment "
            "variables are left out."
        ),
        epilog="The exit code is 1 if something is broken.",
    )
    parser.add_argument("--json", action="store_true", help="write JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Examine the installation, print the facts, and return the exit code."""
    # here: it reads the metadata of all installed packages
    from trainer_hooks.cli.doctor.examination import examine

    facts = examine()
    if arguments.json:
        print_json(facts)
    else:
        for branch in _branches(facts):
            show_tree(branch)
    return 1 if facts["broken"] else 0


def _branches(facts: Mapping[str, Any]) -> Iterator[Branch]:
    """Yield a tree for each part of the facts."""
    yield _branch(
        f"trainer_hooks {facts['version']}", facts["installation"], facts["python"], facts["system"]
    )
    torch = facts["torch"]
    if torch is None:
        yield _branch("torch", "cannot be imported: see below")
    else:
        yield _branch(f"torch {torch['version']}", *_torch_lines(torch))
    packages = facts["packages"].items()
    yield _branch(
        "packages", *(f"{name} {version or 'is not installed'}" for name, version in packages)
    )
    extras = facts["extras"]
    yield _branch("extras", *(f"{name}: {_extra_text(extras[name])}" for name in extras))
    frameworks = [f"{name} {version}" for name, version in facts["frameworks"].items()]
    yield _branch("other frameworks", *(frameworks or ["none"]))
    plugins = [
        f"{plugin['distribution']} {plugin['version']}, {plugin['entry_point']}: {plugin['status']}"
        for plugin in facts["plugins"]
    ]
    yield _branch("plugins", *(plugins or ["none"]))
    variables = facts["environment_variables"]
    yield _branch("environment variables that are set", *(variables or ["none"]))
    yield _branch("not tested", *(facts["untested"] or ["nothing"]))
    yield _branch("broken", *(facts["broken"] or ["nothing"]))


def _branch(title: str, *lines: str) -> Branch:
    return Branch(printable(title), tuple(Branch(printable(line)) for line in lines))


def _torch_lines(torch: Mapping[str, Any]) -> Iterator[str]:
    yield f"CPU: {torch['cores']} cores, {torch['threads']} threads"
    for number, gpu in enumerate(torch["gpus"]):
        yield f"GPU {number}: {gpu['name']}, {gpu['gigabytes']} GB, CUDA {torch['cuda']}"
    if not torch["gpus"]:
        yield f"no GPU; built for CUDA {torch['cuda']}" if torch["cuda"] else "built without CUDA"
    if torch["mps"]:
        yield "GPU: mps"
    yield f"distributed: {', '.join(torch['distributed']) or 'not built in'}"


def _extra_text(packages: Mapping[str, str | None]) -> str:
    missing = [name for name, version in packages.items() if version is None]
    if len(missing) == len(packages):
        return "not installed"
    text = ", ".join(f"{name} {version}" for name, version in packages.items() if version)
    return f"{text}; missing: {', '.join(missing)}" if missing else text
