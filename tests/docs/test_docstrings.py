"""Public docstrings are restructured text, as the site reads them: its build takes a minute."""

from __future__ import annotations

import inspect
import io

import pytest

pytest.importorskip("sphinx")


def docstrings(described: object) -> set[str]:
    """Return the docstrings of a public object, and of the public members of a class."""
    members = vars(described).items() if inspect.isclass(described) else ()
    public = [member for name, member in members if not name.startswith("_")]
    documented = (
        member
        for member in public
        if inspect.isroutine(member) or isinstance(member, property | classmethod | staticmethod)
    )
    return {text for each in (described, *documented) if (text := inspect.getdoc(each))}


def test_public_docstrings_are_restructured_text(generator) -> None:
    """A table of Markdown, or a list that hangs on a paragraph, ends the build of the site."""
    from docutils.core import publish_doctree
    from sphinx.ext.napoleon import Config, GoogleDocstring

    import api_pages

    objects = [
        o for package in api_pages.PACKAGES for o in api_pages.public_names(package).values()
    ]
    texts = sorted(set().union(*map(docstrings, objects)))
    assert len(texts) > 1000
    settings = Config(napoleon_use_ivar=True, napoleon_custom_sections=["State"])
    pages = [str(GoogleDocstring(text, settings, what="class")) for text in texts]
    complaints = io.StringIO()
    publish_doctree(
        "\n\n".join([".. default-role:: literal", *pages]),
        settings_overrides={"warning_stream": complaints, "report_level": 2},
    )
    assert complaints.getvalue() == ""
