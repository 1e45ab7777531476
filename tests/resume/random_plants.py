"""Defects that tests plant in the stages of chains, so that the fuzzer has something to find."""

from __future__ import annotations

import random_modules

from trainer_hooks.callbacks.saving import saver


def forgotten_count() -> None:
    """Leave the noise of a callback out of its state."""
    random_modules.Counter.state_dict = lambda self: {"count": self.count}
    random_modules.Counter.load_state_dict = lambda self, state: None


def unkept_files() -> None:
    """Leave the files of a save that a kill has broken off."""
    saver.SaveStore.finish_loaded_save = lambda self, trainer: None
