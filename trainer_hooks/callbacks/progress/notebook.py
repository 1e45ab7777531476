"""Whether this process is a notebook's, and what can be shown in it."""

from __future__ import annotations

import importlib.util
import sys

__all__ = ["is_notebook", "shows_widgets"]


def is_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and "IPKernelApp" in getattr(shell, "config", {})


def shows_widgets() -> bool:
    """Return whether this process is the kernel of a notebook that can show widgets."""
    return is_notebook() and importlib.util.find_spec("ipywidgets") is not None
