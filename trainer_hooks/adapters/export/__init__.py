"""Export of our callbacks to the trainers of other frameworks, with a file for each framework."""

from __future__ import annotations
