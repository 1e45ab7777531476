"""Callbacks of ours in the trainers of other frameworks; a file for each framework."""

from __future__ import annotations
