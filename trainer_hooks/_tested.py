"""The versions with which this one is tested: the only place where they stand.

`.ci/matrix` runs these pairs and `trainer-hooks doctor` names what is outside of them. Tests
compare pyproject.toml and docs/install.md with them.
"""

from __future__ import annotations

TESTED = (
    ("3.11", "2.8.0"),
    ("3.11", "2.13.0"),
    ("3.12", "2.15.0"),
    ("3.13", "2.15.0"),
)
"""Pairs of a Python and a torch, the oldest first."""
