"""Positions of loaders that keep them themselves, alone or among several combined."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader

from trainer_hooks.data.loaders import singles_of
from trainer_hooks.data.workers import has_state, iterator_of
from trainer_hooks.runtime import rng

__all__ = ["Positions"]


class Positions:
    """The states of the loaders that keep their own position, at the start and the end of epochs.

    Args:
        loader: the training loader.
    """

    def __init__(self, loader: Any) -> None:
        self._loaders = [single for single in singles_of(loader) if has_state(single)]
        self._has_been_opened = False
        self._restored: list[Any] = []

    def note_opened(self) -> None:
        """Note that the loaders have been opened, so that they can be asked for a position."""
        self._has_been_opened = True
        self._restored = []

    def read(self) -> list[Any]:
        """Return the states with which the next epoch begins; None is where a new loader begins."""
        if self._restored:
            return self._restored
        return [
            # torchdata's would start its workers to answer
            None if not self._has_been_opened and _is_torchdatas(loader) else loader.state_dict()
            for loader in self._loaders
        ]

    def restore(self, states: list[Any]) -> None:
        """Put back what `read` returned, to open that epoch."""
        self._restored = list(states)
        for loader, state in zip(self._loaders, states, strict=False):
            if state is not None:
                loader.load_state_dict(state)
                if _is_torchdatas(loader):
                    _take_in(loader)


def _take_in(loader: Any) -> None:
    """Let a loader of torchdata's have an iterator at its position, as it had when it was saved.

    It goes on from a position that it was given, but begins anew after an iterator: in the run that
    was cut there was one, so the next epoch began anew.
    """
    with rng.isolated():
        iterator_of(loader)


def _is_torchdatas(loader: Any) -> bool:
    return isinstance(loader, DataLoader) and any(
        part.__module__.partition(".")[0] == "torchdata" for part in type(loader).__mro__
    )
