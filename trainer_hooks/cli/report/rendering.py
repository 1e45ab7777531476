"""How the page is filled in: by Jinja, from the templates beside this module.

All markup is in the templates, and every value is escaped by Jinja; plotly's script alone goes in
as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._text import printable
from trainer_hooks.cli.report.wording import lasting, moment
from trainer_hooks.cli.values import counted, size_text
from trainer_hooks.hooks import duration

if TYPE_CHECKING:
    from jinja2 import Environment

    from trainer_hooks.cli.report.page import Page

__all__ = ["rendered"]


def rendered(page: Page) -> str:
    """Return the page as HTML.

    Raises:
        ModuleNotFoundError: Jinja or plotly is not installed.
    """
    from plotly.offline import get_plotlyjs

    template = _environment().get_template("page.html")
    return template.render(page=page, plotly=get_plotlyjs())


def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("trainer_hooks.cli.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "counted": counted,
        "digits": "{:.6g}".format,
        "duration": duration,
        "lasting": lasting,
        "moment": moment,
        "percent": "{:.2%}".format,
        "size": size_text,
        "thousands": "{:,}".format,
    }
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return environment


def _visible(value: object) -> object:
    """Return a value with its control characters written out; markup stays as it is."""
    return value if hasattr(value, "__html__") else printable(value)
