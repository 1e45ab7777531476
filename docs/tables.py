"""Tables in pages that are otherwise written by hand: a comment in the page names the table.

`<!-- table: arguments of Trainer.fit -->` and `<!-- end of table -->` enclose one. After `table:`
stands `arguments of` or `attributes of` with a class or function; `members of` with a class and,
behind a colon, which ones; `hooks of` with a framework; `callbacks of packages` and `callbacks of
trainer_hooks elsewhere`; `names of` with a
package of Lightning's; `actions of profilers`; `extras of pyproject.toml`; or `names of Composer`,
`absences of Composer` and `names of Lightning`; or `words of` with a table of words.toml.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from docstrings import read_attributes, read_class, read_function
from foreign_tables import events_of, handlers_of, hooks_of, lent, published
from lightning_compat import lightning_names_table
from trainer_hooks._words import words
from trainer_hooks.compat.lightning.modules import MODULES, exports_of
from trainer_hooks.profilers.action_monitor import ACTIONS

__all__ = ["cell", "fill", "member_row"]

_EXTRAS = {
    "demo": "`trainer-hooks demo`",
    "remote": "checkpoints in `s3://` and other stores",
    "safetensors": "weights written and read as `.safetensors`",
    "fast": "verifying checkpoints as they are read, on other processors than x86-64 and ARM",
    "tensorboard": "`TensorBoardLogger`",
    "wandb": "`WandbLogger`",
    "mlflow": "`MLflowLogger`",
    "comet": "`CometLogger`",
    "plots": "`trainer.history.plot` and `to_pandas`, `lr_find().plot`",
    "report": "`trainer-hooks report`, `watch` and `plot`, `SampleInspector`",
    "monitor": "`DeviceStatsMonitor`",
    "quantization": "`QuantizationAwareTraining`",
    "export": "`ExportForInferenceCallback` to ONNX",
    "mlperf": "`MLPerfCallback`",
    "cli": "`TrainerCLI`, `trainer-hooks fit`, `validate`, `test` and `predict`",
    "sweep": "`trainer-hooks sweep`",
    "port": "`trainer-hooks port`",
    "docs": "the site, built from these pages",
    "ray": "a `Trainer` inside of Ray Train's workers",
    "lightning-tests": "the tests that compare with Lightning",
    "accelerated-tests": "tests that run the same programs in pytorch-accelerated",
    "adapters-tests": "the tests of callbacks of other frameworks",
    "dev": "all of these, the tests and the linters",
    "bench": "the benchmarks against other trainers",
}
"""The purpose of each extra of pyproject.toml."""

_TABLE = re.compile(r"(<!-- table: (\w+) of (.+?) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def fill(text: str) -> str:
    """Return a page with its tables made anew.

    Raises:
        ValueError: a comment names no table.
    """
    return _TABLE.sub(lambda found: found[1] + _made(found[2], found[3]) + found[4], text)


def cell(text: str) -> str:
    """Return a text as it may stand in a table."""
    return text.replace("|", r"\|")


def member_row(owner: type, name: str) -> str:
    """Return a table's row of a method, with its arguments, or of a property."""
    member = inspect.getattr_static(owner, name)
    if isinstance(member, property):
        return f"| `{name}` | {cell(read_function(member.fget).summary)} |"
    function = getattr(owner, name)
    doc = inspect.cleandoc(function.__doc__).partition("\n")[0]
    return f"| `{name}({_signature(function)})` | {cell(doc)} |"


def _words(table: str) -> str:
    """Return the tables of words of other trainers, one below each of them."""
    lines: list[str] = []
    for owner, rows in words()[table].items():
        lines += ["", f"### {owner}" if table == "options" else f"#### {owner}", ""]
        lines += ["| there | here |", "|---|---|"]
        for name, answer in rows.items():
            answers = answer.items() if isinstance(answer, dict) else [("", answer)]
            for value, text in answers:
                word = f"`{name}={value}`" if value else f"`{name}`"
                shown = text if text.endswith(".") and not text.endswith("...") else f"`{text}`"
                lines.append(f"| {word} | {cell(shown.replace('{value}', '…'))} |")
    return "\n".join([*lines, "", ""])


def _made(kind: str, what: str) -> str:
    if (kind, what) == ("extras", "pyproject.toml"):
        return "\n".join(_extras()) + "\n"
    if kind == "words":
        return _words(what)
    if kind == "hooks":
        return hooks_of(what)
    if kind == "handlers":
        return handlers_of()
    if kind == "events":
        return events_of(what)
    if (kind, what) == ("callbacks", "packages"):
        return published()
    if (kind, what) == ("callbacks", "trainer_hooks elsewhere"):
        return lent()
    if (kind, what) == ("names", "Lightning"):
        return "\n".join(lightning_names_table()) + "\n"
    if what == "Composer":
        from composer_page import not_offered_rows, offered_rows

        return "\n".join(offered_rows() if kind == "names" else not_offered_rows()) + "\n"
    if (kind, what) == ("actions", "profilers"):
        return "\n".join(_actions()) + "\n"
    name, _, chosen = what.partition(":")
    owner = resolve_name(f"trainer_hooks.{name.strip()}")
    makers = {
        "arguments": _arguments,
        "attributes": _attributes,
        "members": _members,
        "names": _names,
    }
    if kind not in makers:
        raise ValueError(f"table: {kind} of {what}: known are {', '.join(makers)}.")
    return "\n".join(makers[kind](owner, chosen.split())) + "\n"


def _arguments(owner: Any, chosen: list[str]) -> list[str]:
    doc = read_class(owner) if isinstance(owner, type) else read_function(owner)
    rows = [
        f"| `{a.name}` | {f'`{cell(a.default)}`' if a.default else ''} | {cell(a.meaning)} |"
        for a in doc.arguments
        if not chosen or a.name in chosen
    ]
    return ["| argument | default | meaning |", "|---|---|---|", *rows]


def _attributes(owner: type, chosen: list[str]) -> list[str]:
    defaults = {f.name: f.default for f in fields(owner)} if is_dataclass(owner) else {}
    rows = []
    for name, meaning in read_attributes(owner).items():
        default = defaults.get(name, getattr(owner, name, MISSING))
        shown = "" if default is MISSING else f"`{default!r}`"
        if not chosen or name in chosen:
            rows.append(f"| `{name}` | {cell(shown)} | {cell(meaning)} |")
    return ["| attribute | default | meaning |", "|---|---|---|", *rows]


def _members(owner: Any, chosen: list[str]) -> list[str]:
    if not chosen:
        raise ValueError(f"table: members of {owner.__qualname__}: name them behind a colon.")
    return ["| name | description |", "|---|---|", *(member_row(owner, name) for name in chosen)]


def _names(package: Any, chosen: list[str]) -> list[str]:
    """Return the names of a package of Lightning's, each with its module there."""
    rows = ["| name | in | description |", "|---|---|---|"]
    path = package.__name__.removeprefix("trainer_hooks.compat.lightning.")
    modules = [module for module in MODULES.paths if module.startswith(f"{path}.")]
    for name in chosen or package.__all__:
        summary = inspect.cleandoc(getattr(package, name).__doc__ or "").partition("\n")[0]
        homes = [module for module in modules if name in exports_of(module)]
        # the last: of the two homes of rank_zero_only, utilities.distributed is of Lightning 1.x
        rows.append(f"| `{name}` | `{homes[-1] if homes else path}` | {cell(summary)} |")
    return rows


def _actions() -> list[str]:
    """Return the actions that a profiler measures: parts of the loops, steps, hooks."""
    rows = ["| action | measured from and to |", "|---|---|"]
    for name, begins, ends, with_hooks in ACTIONS:
        how = "with" if with_hooks else "without"
        rows.append(f"| `{name}` | from `{begins}` to `{ends}`, {how} the work of those hooks |")
    return [
        *rows,
        "| `training_step`, `validation_step`, `test_step`, `predict_step` | the step of a batch |",
        "| `[Callback]KEY.HOOK` | a hook of a callback, by its `state_key` |",
        "| `[Module]CLASS.HOOK` | a hook of the module |",
    ]


def _extras() -> list[str]:
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    extras = tomllib.loads(text)["project"]["optional-dependencies"]
    if set(extras) != set(_EXTRAS):
        raise ValueError(f"give its purpose in docs/tables.py: {set(extras) ^ set(_EXTRAS)}.")
    rows = ["| extra | for | brings |", "|---|---|---|"]
    for name, needed in extras.items():
        brings = [re.split(r"[><=]", one)[0] for one in needed]
        shown = "" if name == "dev" else ", ".join(f"`{one}`" for one in brings)
        rows.append(f"| `{name}` | {_EXTRAS[name]} | {shown} |")
    return rows


def _signature(function: Any) -> str:
    """Return the names of a method's arguments, those with a default as `name=default`."""
    shown = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not any(s[0] == "*" for s in shown):
            shown.append("*")
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}
        default = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
        shown.append(stars.get(parameter.kind, "") + parameter.name + default)
    return ", ".join(shown)
