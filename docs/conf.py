"""The site: `sphinx-build -E -W --keep-going docs site`, with the packages of the extra `docs`.

Without `-E` a second build leaves unchanged pages as they are, and Sphinx's search forgets their
entries of the index.

Sphinx with MyST, since only its autodoc and intersphinx link signatures into torch's reference, and
with furo, which reads well on a telephone and needs no framework in the browser.
"""

from __future__ import annotations

import ast
import re
import sys
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx import addnodes
from sphinx.addnodes import pending_xref, toctree
from sphinx.pycode import parser as source_parser
from sphinx.transforms import SphinxTransform
from sphinx.transforms.post_transforms import SphinxPostTransform

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER))

import trainer_hooks  # noqa: E402
from api_pages import PACKAGES, home_of, page_of, public_names  # noqa: E402
from trainer_hooks.hooks.spec import HOOKS  # noqa: E402

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "trainer_hooks"
author = copyright = "The trainer_hooks maintainers"  # noqa: A001 - Sphinx's name
version = release = trainer_hooks.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
root_doc = "index"
exclude_patterns = ["README.md"]  # the index of the folder; the site's is index.md
html_theme = "furo"
html_title = f"trainer_hooks {release}"
html_favicon = "static/icon.svg"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_search_scorer = str(FOLDER / "static" / "scorer.js")
html_show_sourcelink = html_copy_source = False
html_theme_options = {
    "light_css_variables": {
        # furo's links and comments have too little contrast on its backgrounds
        "color-link": "#0a4fbf",
        "color-link--hover": "#0a4fbf",
        "color-link--visited": "#6b2fb3",
        "color-foreground-muted": "#595d62",
    },
    "dark_css_variables": {
        "color-link": "#8ab4ff",
        "color-link--hover": "#8ab4ff",
        "color-link--visited": "#c9a3f5",
        "color-foreground-muted": "#a0a4aa",
    },
}
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

default_role = "code"  # a name between single backticks, as in docstrings
autodoc_member_order = "groupwise"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_custom_sections = ["State"]
python_maximum_signature_line_length = 80

# files of this repository: a build has no network
intersphinx_mapping = {
    "torch": ("https://docs.pytorch.org/docs/stable/", "inventories/torch.inv"),
    "python": ("https://docs.python.org/3/", "inventories/python.inv"),
}

# Sphinx 9.0 fails at `{**other}` in a decorator, and the file's classes then have no source
source_parser.ast_unparse = lambda node, _code="": ast.unparse(node)

_SHORT = {
    "Tensor": "torch.Tensor",
    "Path": "pathlib.Path",
    "Any": "typing.Any",
    "DataLoader": "torch.utils.data.DataLoader",
    "Dataset": "torch.utils.data.Dataset",
    "Optimizer": "torch.optim.Optimizer",
    "LRScheduler": "torch.optim.lr_scheduler.LRScheduler",
    "nn.Module": "torch.nn.Module",
    "callback.Callback": "trainer_hooks.Callback",
    "timedelta": "datetime.timedelta",
    **{
        name: f"collections.abc.{name}"
        for name in ("Callable", "Iterable", "Iterator", "Mapping", "Sequence")
    },
}
"""Full names of those that annotations have from an import."""


@cache
def full_names() -> dict[str, str]:
    """Return the full name of what is described, by each text that names it in the pages."""
    names: dict[str, str] = {}
    for full, home in reversed(home_of().items()):
        package, _, name = full.rpartition(".")
        value = public_names(package)[name]
        names[full] = names[name] = home
        # a base class is told by the place where it is defined
        names[f"{value.__module__}.{getattr(value, '__qualname__', name)}"] = home
    for name in HOOKS:
        names[name] = f"trainer_hooks.Hooks.{name}"
    for kind in ("Trainer", "Module", "DataModule", "Tuner", "Callback"):
        described = getattr(trainer_hooks, kind)
        for member, value in vars(described).items():
            if member[0] != "_" and (callable(value) or isinstance(value, property)):
                names[f"{kind}.{member}"] = f"trainer_hooks.{kind}.{member}"
        if kind in ("Trainer", "Module"):
            prefix = kind.lower()
            names |= {
                f"{prefix}.{n.partition('.')[2]}": full
                for n, full in list(names.items())
                if n.startswith(f"{kind}.")
            }
    return names


class LinkedNames(SphinxPostTransform):
    """Makes links of public names in the text of pages, the first time in each section."""

    default_priority = 5  # before references are resolved

    def run(self, **_: Any) -> None:
        """Replace the literals of this page."""
        if self.env.docname.startswith(("api/", "_modules/")):
            return
        seen: set[tuple[int, str]] = set()
        for literal in list(self.document.findall(nodes.literal)):
            text = literal.astext().removesuffix("()")
            full = full_names().get(text)
            inside = (nodes.reference, pending_xref, nodes.title)
            if full is None or any(isinstance(one, inside) for one in _ancestors(literal)):
                continue
            section = next(a for a in _ancestors(literal) if isinstance(a, nodes.Structural))
            if (id(section), full) in seen:
                continue
            seen.add((id(section), full))
            link = pending_xref(
                "", refdomain="py", reftype="obj", reftarget=full, refexplicit=True,
                refdoc=self.env.docname, refwarn=True,
            )  # fmt: skip
            literal.replace_self(link)
            link += literal


def _ancestors(node: nodes.Node) -> list[nodes.Node]:
    ancestors = []
    while (node := node.parent) is not None:
        ancestors.append(node)
    return ancestors


_OUTSIDE = re.compile(r"\]\(\.\./(CHANGELOG|benchmarks/README)\.md\)")


def adapt_source(_: Sphinx, docname: str, source: list[str]) -> None:
    """Adapt a page to the site: links out of the folder, and the way to the API reference."""
    text = source[0]
    if docname == "changelog":
        text = (FOLDER.parent / "CHANGELOG.md").read_text(encoding="utf-8").replace("](docs/", "](")
        text = f"---\nnosearch: true\n---\n{text}"  # it has every word, and explains none
    text = text.replace("](../CHANGELOG.md)", "](changelog.md)")
    text = re.sub(r"\[([^\]]+)\]\(\.\./benchmarks/README\.md\)", r"\1", text)
    text = text.replace("](README.md)", "](index.md)") if "/" not in docname else text
    folder, _, name = docname.partition("/")
    if docname == "callbacks/README":
        pages = sorted({page.stem for page in FOLDER.glob("callbacks/*.md")} - {"README"})
        text += "\n".join(("", "```{toctree}", ":hidden:", "", *pages, "```", ""))
    elif folder == "callbacks":
        home = home_of().get(f"trainer_hooks.callbacks.{name}") or _foreign_home(name)
        if home:
            package, _, short = home.rpartition(".")
            link = f"[Signature and source](../api/{page_of(package)}.md#{short.lower()})"
            head, _, rest = text.partition("\n## ")
            # people search for `early stopping`, and the page says `EarlyStopping`
            words = " ".join(re.findall(r"NaN|[A-Z]+(?![a-z])|[A-Z][a-z]+", name)).lower()
            note, end, head = head.partition("do not edit -->\n")
            head = f"{note}{end}\n<!-- search: {words} -->\n{head}"
            text = f"{head}\n{link}\n\n## {rest}".replace("| | |\n", "| error | if |\n")
    source[0] = text


def _foreign_home(name: str) -> str | None:
    """Return the full name of a callback that only a compatibility package has."""
    return next(
        (home_of()[f"{p}.{name}"] for p in PACKAGES if ".compat." in p and name in public_names(p)),
        None,
    )


_ATTRIBUTES: dict[str, list[str]] = {}


def keep_attribute(_: Sphinx, what: str, name: str, __: Any, ___: Any, lines: list[str]) -> None:
    """Keep an attribute's docstring, whose text before a colon napoleon takes for its type."""
    if what in ("attribute", "data", "property"):
        _ATTRIBUTES[name] = list(lines)


def link_names(_: Sphinx, __: str, name: str, ___: Any, ____: Any, lines: list[str]) -> None:
    """Make links of the public names in a docstring."""
    lines[:] = _ATTRIBUTES.pop(name, lines)
    own = name.rpartition(".")[2]
    for number, line in enumerate(lines):
        lines[number] = re.sub(
            r"(?<![`\w:])`([\w.]+)`(?!`)",
            lambda match: (
                f":py:obj:`{match[1]} <{full_names()[match[1]]}>`"
                if match[1] in full_names() and match[1] != own
                else match[0]
            ),
            line,
        )


class SearchWords(SphinxTransform):
    """Makes entries of the index from comments `<!-- search: resume, go on -->` below a heading.

    Sphinx's search ranks a main entry of the index that equals the query above the titles of pages.
    """

    default_priority = 500

    def apply(self, **_: Any) -> None:
        """Replace the comments of this page."""
        for comment in list(self.document.findall(nodes.raw)):
            words = _SEARCH_WORDS.match(comment.astext())
            if words is None:
                continue
            section = comment.parent
            # the title of a page leads to its top, as it does among the titles of the search
            place = "" if section.parent is self.document else section["ids"][0]
            entries = [
                ("single", word.strip(), place, "main", None) for word in words[1].split(",")
            ]
            comment.replace_self(addnodes.index(entries=entries, inline=False))


_SEARCH_WORDS = re.compile(r"<!-- search: (.*?) -->", re.DOTALL)


class ShortNames(SphinxPostTransform):
    """Replaces the short names of annotations by full ones."""

    default_priority = 4

    def run(self, **_: Any) -> None:
        """Look through the references of this page."""
        for node in self.document.findall(pending_xref):
            target = node.get("reftarget", "")
            if node.get("refdomain") == "py":
                node["reftarget"] = _SHORT.get(target) or full_names().get(target, target)


def mend_ways_back(
    app: Sphinx, docname: str, _: str, context: dict[str, Any], __: nodes.document | None
) -> None:
    """Lead from the source back to where an object is described, and not to where it is defined."""
    if not docname.startswith("_modules/"):
        return
    described = app.env.domains.python_domain.objects

    def mended(match: re.Match[str]) -> str:
        owner, _, member = match[3].rpartition(".")
        home = full_names().get(match[3], f"{full_names().get(owner, owner)}.{member}")
        if home not in described:
            return ""
        page = described[home].docname
        return f"{match[1]}{'../' * docname.count('/')}{page}.html#{home}{match[4]}"

    context["body"] = re.sub(
        r'(<a class="viewcode-back" href=")([^"#]*)#([^"]*)(">\[docs\]</a>)',
        mended,
        context["body"],
    )


def titles_of(contents: nodes.Element) -> nodes.Element:
    """Return a page's table of contents with its title, and with the pages below it alone."""
    titles = contents.deepcopy()
    for item in titles.children:
        if len(item) > 1:
            if below := list(item.findall(toctree)):
                item[1][:] = below
            else:
                item.pop(1)
    return titles


def shorten_navigation(titles: dict[str, nodes.Element], app: Sphinx, *page: Any) -> None:
    """Make the tree of all pages from their titles.

    The theme asks for titles alone, in each page. Sphinx copies the whole tables of contents for
    that, with each section and each object, and drops them afterwards: two thirds of a build.

    Args:
        titles: takes the tables by `titles_of`, which are made as the first page is written.
        app: the build.
        page: the other arguments of the event: name, template, context and content.
    """
    context = page[2]
    whole_tree = context["toctree"]

    def tree(**options: Any) -> str:
        tocs = app.env.tocs
        if options.get("titles_only"):
            if not titles:
                titles.update({name: titles_of(contents) for name, contents in tocs.items()})
            app.env.tocs = titles
        try:
            return whole_tree(**options)
        finally:
            app.env.tocs = tocs

    context["toctree"] = tree


def setup(app: Sphinx) -> dict[str, bool]:
    """Register what this site adds."""
    app.connect("source-read", adapt_source)
    app.connect("autodoc-process-docstring", keep_attribute, priority=400)  # napoleon has 500
    app.connect("autodoc-process-docstring", link_names, priority=600)
    app.connect("html-page-context", mend_ways_back)
    app.connect("html-page-context", partial(shorten_navigation, {}), priority=400)  # furo has 500
    app.add_transform(SearchWords)
    app.add_post_transform(LinkedNames)
    app.add_post_transform(ShortNames)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
