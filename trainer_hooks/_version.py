"""The version of the package, and the versions of others with which it is tested.

They stand nowhere else: `.ci/matrix` runs the pairs, `trainer-hooks doctor` names what is outside
of them, and tests compare pyproject.toml and docs/install.md with them.
"""

__version__ = "0.1.0"

TESTED = (
    ("3.11", "2.8.0"),
    ("3.11", "2.13.0"),
    ("3.12", "2.15.0"),
    ("3.13", "2.15.0"),
)
"""Pairs of a Python and a torch: the oldest torch first, which is the oldest that is taken."""
