"""The API reference: a page for each package, with the place of every public name.

The pages hold directives of Sphinx's autodoc, which reads signatures, types and docstrings while
the site is built.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from trainer_hooks import Callback
from trainer_hooks.hooks.spec import HOOKS

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["PACKAGES", "api_pages", "home_of", "page_of", "public_names"]

_FOLDER = Path(__file__).parent
_NOTE = "<!-- made by docs/generate.py from the `__all__` of the packages: do not edit -->"
_ABOUT = (
    "Every public name, with its signature, its types and its source. "
    "[What is stable](../stability.md) says what may change."
)
PACKAGES = {
    "trainer_hooks": "What scripts need: the Trainer, the Module, the Callback.",
    "trainer_hooks.callbacks": "The built-in callbacks.",
    "trainer_hooks.loggers": "Loggers, which write metrics to files and services.",
    "trainer_hooks.profilers": "Profilers, which measure the time of each part of a run.",
    "trainer_hooks.testing": "The kit for testing callbacks.",
    "trainer_hooks.errors": "Errors and warnings.",
    "trainer_hooks.adapters": "Callbacks of other frameworks here, and ours there.",
    "trainer_hooks.compat.lightning": "Lightning's names.",
    "trainer_hooks.compat.composer": "Composer's names.",
    "trainer_hooks.compat.composer.callbacks": "Composer's callbacks.",
    "trainer_hooks.compat.accelerated": "pytorch-accelerated's names.",
    "trainer_hooks.compat.accelerated.callbacks": "pytorch-accelerated's callbacks.",
}
"""The packages with public names, in the order of the reference."""


def public_names(package: str) -> dict[str, Any]:
    """Return the public objects of a package by name, without modules and `__version__`."""
    module = import_module(package)
    objects = {name: getattr(module, name) for name in module.__all__ if name != "__version__"}
    return {n: value for n, value in objects.items() if not isinstance(value, ModuleType)}


def home_of() -> dict[str, str]:
    """Return the full name under which each public name is described, by its own full name.

    An object that several packages offer is described in the first of them, and one that has two
    names under its own.
    """
    offered = [
        (f"{package}.{name}", value)
        for package in PACKAGES
        for name, value in public_names(package).items()
    ]
    homes: dict[int, str] = {}
    for full, value in sorted(offered, key=_is_second_name):
        homes.setdefault(id(value), full)
    return {full: homes[id(value)] for full, value in offered}


def _is_second_name(offer: tuple[str, Any]) -> bool:
    full, value = offer
    return getattr(value, "__name__", None) != full.rpartition(".")[2]


def page_of(package: str) -> str:
    """Return the name of a package's page, without its ending."""
    return package.removeprefix("trainer_hooks.").replace(".", "-")


def api_pages() -> dict[str, str]:
    """Return the text of each page of the reference, by its path below docs/."""
    texts = _hand_pages()
    homes = home_of()
    rows = [
        f"| [`{package}`]({page_of(package)}.md) | {about} |" for package, about in PACKAGES.items()
    ]
    index = [
        "# API reference", "", _NOTE, "",
        _ABOUT, "",
        "| package | holds |", "|---|---|", *rows, "",
        "```{toctree}", ":hidden:", "", *map(page_of, PACKAGES), "```",
    ]  # fmt: skip
    pages = {"api/README.md": "\n".join(index) + "\n"}
    for package, about in PACKAGES.items():
        lines = [f"# {package}", "", _NOTE, "", about, "", *_entries(package, homes, texts)]
        pages[f"api/{page_of(package)}.md"] = "\n".join(lines).rstrip() + "\n"
    return pages


def _entries(package: str, homes: dict[str, str], texts: dict[str, str]) -> Iterator[str]:
    """Yield the lines of each name: its heading, the page that explains it, the directive."""
    for name, value in public_names(package).items():
        full = f"{package}.{name}"
        yield from (f"## {name}", "")
        if homes[full] != full:
            owner, _, other = homes[full].rpartition(".")
            link = f"{page_of(owner)}.md#{other.lower()}"
            yield from (f"The same as [`{homes[full]}`]({link}).", "")
            continue
        if explained := _explained_in(package, name, texts):
            yield from (f"Explained in [{_title(texts[explained])}](../{explained}).", "")
        yield from ("```{eval-rst}", *_directive(full, value), "```", "")


def _directive(full: str, value: Any) -> list[str]:
    if inspect.isclass(value):
        # what a class inherits from torch is in torch's reference; from ours, in its own place
        lines = [f".. autoclass:: {full}", "   :members:", "   :show-inheritance:"]
        if issubclass(value, Callback) and value is not Callback:
            # its page lists its hooks, and each is described once, in `Hooks`
            own = sorted(HOOKS.keys() & vars(value).keys())
            lines += [f"   :exclude-members: {', '.join(own)}"] if own else []
        return lines
    if callable(value) and hasattr(value, "__name__"):
        return [f".. autofunction:: {full}"]
    return [f".. autodata:: {full}", "   :no-value:"]


def _hand_pages() -> dict[str, str]:
    """Return the pages to which names may lead, by their paths below docs/."""
    paths = [*_FOLDER.glob("*.md"), *_FOLDER.glob("callbacks/*.md")]
    return {
        str(path.relative_to(_FOLDER)): path.read_text(encoding="utf-8")
        for path in sorted(paths)
        if path.name not in {"README.md", "index.md"}
    }


def _explained_in(package: str, name: str, texts: dict[str, str]) -> str | None:
    """Return the page about a name, or None if no page explains it.

    A callback's own page comes first, then the kinds of pages by `_rank`. Within a kind, a page
    that is called by the name or has it in its title wins over one that names it more often.
    """
    if f"callbacks/{name}.md" in texts:
        return f"callbacks/{name}.md"
    # in backticks, imported, called, or as a base class
    word = re.compile(rf"`(?:\w+\.)*{name}\b[^`]*`|import .*\b{name}\b|\b{name}\(|\({name}\)")
    heading = re.compile(rf"^(?:##+|<!-- table:) .*\b{name}\b", re.MULTILINE)
    in_title = re.compile(rf"\b{name}\b", re.IGNORECASE)
    scores = {
        page: (
            _rank(page, package),
            page == f"{name.lower()}.md",
            in_title.search(_title(text)) is not None,
            len(word.findall(text)) + 20 * len(heading.findall(text)),
            page,
        )
        for page, text in texts.items()
        if page == f"{name.lower()}.md" or word.search(text)
    }
    best = max(scores, key=scores.__getitem__, default=None)
    return best if best is not None and scores[best][0] else None


def _rank(page: str, package: str) -> int:
    """Return how likely a kind of page explains the names of a package; 0: it explains none.

    The pages on moving from a framework explain the names of its compatibility package. Other
    names, and those in the architecture, they only list.
    """
    framework = package.partition(".compat.")[2].partition(".")[0]
    if page.startswith(("coming-from", "differences-from")):
        return 3 if framework and framework in page else 0
    if page.startswith("callbacks/"):
        return 1 if package == "trainer_hooks.callbacks" else 0
    return 0 if page == "architecture.md" else 2


def _title(text: str) -> str:
    match = re.search(r"^# (.+)$", text, re.MULTILINE)
    assert match is not None
    return match[1]
