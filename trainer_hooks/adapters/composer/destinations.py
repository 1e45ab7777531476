"""DestinationGuest: one of Composer's loggers in a Trainer, as a callback or as a logger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.adapters.composer.guest import ComposerGuest
from trainer_hooks.loggers import Logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["DestinationGuest"]


class DestinationGuest(ComposerGuest, Logger):
    """Stand for a logger destination of Composer, which hears events, too.

    Among the callbacks of a Trainer it hears of what is logged by `on_log`; among its loggers it is
    one of them, and a callback besides.

    Args:
        guest: the destination.
    """

    def __init__(self, guest: Any) -> None:
        super().__init__(guest)
        self._waiting: list[Callable[[], object]] = []

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return what delivers the guest's events at `hook`, or None if it hears of none."""
        if hook == "on_log":
            return self._log if self.guest_has("log_metrics") else None
        return super().translated(hook)

    def opened(self) -> None:
        """Hand the guest what was logged before its `init`, which comes first there."""
        waiting, self._waiting = self._waiting, []
        for hand_on in waiting:
            hand_on()

    @property
    def experiment(self) -> Any:
        """The guest."""
        return self.guest

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Hand the guest values."""
        self._give(lambda: self.guest.log_metrics(dict(metrics), step))

    def log_hyperparams(self, params: Any) -> None:
        """Hand the guest hyperparameters."""
        given = dict(params) if hasattr(params, "keys") else vars(params)
        self._give(lambda: self.guest.log_hyperparameters(given))

    def log_images(
        self,
        images: Any,
        name: str = "Images",
        channels_last: bool = False,
        step: int | None = None,
    ) -> None:
        """Hand the guest images."""
        self._give(lambda: self.guest.log_images(images, name, channels_last, step))

    def log_image(
        self,
        key: str,
        images: Sequence[Any],
        step: int | None = None,
        *,
        captions: Sequence[str] | None = None,  # noqa: ARG002 - Composer has none
        channels_last: bool = False,
    ) -> None:
        """Hand the guest images, without their captions."""
        self.log_images(images, key, channels_last, step)

    def log_table(
        self,
        key: str,
        columns: Sequence[str] | None = None,
        data: Sequence[Sequence[Any]] | None = None,
        dataframe: Any = None,
        step: int | None = None,
    ) -> None:
        """Hand the guest a table."""
        if dataframe is not None:
            columns, data = list(dataframe.columns), dataframe.to_numpy().tolist()
        columns, rows = list(columns or ()), [list(row) for row in data or ()]
        self._give(lambda: self.guest.log_table(columns, rows, key, step))

    def _give(self, hand_on: Callable[[], object]) -> None:
        if self.is_open:
            hand_on()
        else:
            self._waiting.append(hand_on)

    def _log(self, trainer: Any, _module: Any, metrics: Any, step: int) -> None:
        if not any(one is self for one in trainer.loggers):
            self.guest.log_metrics(dict(metrics), step)
