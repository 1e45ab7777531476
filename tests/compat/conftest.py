"""What the tests of the callbacks share serves these too."""

from __future__ import annotations

from tests.callbacks.conftest import Scripted, fake, host_copies, quiet, scores, trained
from tests.callbacks.saving.conftest import fit, fit_inputs

__all__ = ["Scripted", "fake", "fit", "fit_inputs", "host_copies", "quiet", "scores", "trained"]
