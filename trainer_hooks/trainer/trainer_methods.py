"""TrainerMethods: what a subclass of Trainer may override, as in pytorch-accelerated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import UsageError
from trainer_hooks.hooks import HOOKS
from trainer_hooks.trainer.callback_handler import CallbackHandler
from trainer_hooks.trainer.control import TrainerControl

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["TrainerMethods", "overridden_losses", "overridden_moments"]


class TrainerMethods(TrainerControl):
    """Methods that a subclass may override; each runs before the callbacks of the same moment.

    They are `on_` less than the callback's hook of pytorch-accelerated: `train_epoch_end` runs just
    before every callback's `on_train_epoch_end` of that name. What is not overridden is not called.
    """

    def training_run_start(self) -> None:
        """Do nothing as a fit begins; override it."""

    def train_epoch_start(self) -> None:
        """Do nothing as a training epoch begins; override it."""

    def train_epoch_end(self) -> None:
        """Do nothing after an epoch's last batch, before its validation; override it."""

    def eval_epoch_start(self) -> None:
        """Do nothing as a validation or test begins; override it. A sanity check is none."""

    def eval_epoch_end(self) -> None:
        """Do nothing as a validation or test ends; override it. A sanity check is none."""

    def training_run_epoch_end(self) -> None:
        """Do nothing after an epoch with its validation; override it."""

    def training_run_end(self) -> None:
        """Do nothing as a fit ends; override it."""

    def evaluation_run_start(self) -> None:
        """Do nothing as a validation or test outside of fit begins; override it."""

    def evaluation_run_end(self) -> None:
        """Do nothing as a validation or test outside of fit ends; override it."""

    def calculate_train_batch_loss(self, batch: Any) -> dict[str, Any]:
        """Run the module's training step on a batch; override it to do more.

        Returns:
            The `loss`, the `model_outputs`, as far as the step returns them, and what else the step
            returned.

        Raises:
            UsageError: no training batch is in work.
        """
        found: dict[str, Any] = self._stepped(batch, "calculate_train_batch_loss")
        return found

    def calculate_eval_batch_loss(self, batch: Any) -> Any:
        """Run the module's validation or test step on a batch; override it to do more.

        Returns:
            What the step returned.

        Raises:
            UsageError: no batch of a validation or test is in work.
        """
        return self._stepped(batch, "calculate_eval_batch_loss")

    @property
    def callback_handler(self) -> CallbackHandler:
        """The callbacks, under the names that pytorch-accelerated has for them."""
        return CallbackHandler(self)

    def _stepped(self, batch: Any, method: str) -> Any:
        context = self._session.context
        if context is None or context.steps.own is None:
            raise UsageError(
                f"trainer.{method}() was called with no batch in work: it is called for each batch "
                "of a run. Override it, and call it with super() there."
            )
        return context.steps.own(batch)


def overridden_moments(trainer: TrainerMethods) -> SimpleNamespace | None:
    """Return the methods that a subclass overrides as an implementer of hooks; None without any."""
    found: dict[str, Callable[..., None]] = {}
    for spec in HOOKS.values():
        name = spec.accelerated.removeprefix("on_")
        plain = getattr(TrainerMethods, name, None)
        if plain is not None and getattr(type(trainer), name) is not plain:
            found[spec.name] = _moment(trainer, getattr(trainer, name), name.startswith("eval_"))
    return SimpleNamespace(**found) if found else None


def _moment(trainer: TrainerMethods, method: Callable[[], None], evaluates: bool) -> Any:
    def call(*_: Any) -> None:
        if not (evaluates and trainer.sanity_checking):
            method()

    return call


def overridden_losses(trainer: TrainerMethods) -> dict[str, Callable[[Any], Any]]:
    """Return the methods that run a step in the module's place, as far as they are overridden."""
    names = {"train": "calculate_train_batch_loss", "eval": "calculate_eval_batch_loss"}
    return {
        stage: getattr(trainer, name)
        for stage, name in names.items()
        if getattr(type(trainer), name) is not getattr(TrainerMethods, name)
    }
