"""LightningGuest: a callback of Lightning in a Trainer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks.adapters.hosted import HostedCallback
from trainer_hooks.adapters.lightning.home import home_of, word
from trainer_hooks.adapters.lightning.module_view import unwrapped
from trainer_hooks.adapters.lightning.views import module_view, trainer_view
from trainer_hooks.callbacks import Checkpoint
from trainer_hooks.hooks import HOOKS

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BASES", "SAME_HOOKS", "SAVER_SLOTS", "LightningGuest"]

BASES = frozenset(
    {
        "lightning.pytorch.callbacks.callback.Callback",
        "pytorch_lightning.callbacks.callback.Callback",
    }
)
"""The base class of callbacks, in the two packages that hold it."""

SAME_HOOKS = frozenset(name for name, spec in HOOKS.items() if spec.lightning == "same")
"""Hooks that have one name and one meaning in both."""

SAVER_SLOTS = {
    "on_train_epoch_end": "on_epoch_checkpoint",
    "on_train_batch_end": "on_batch_checkpoint",
}
"""Where a saver's hooks are called here, so that a resume does not fire what was fired before."""

_COUNTED = frozenset(f"on_{stage}_batch_start" for stage in ("validation", "test", "predict"))
"""Where the batches of evaluations are counted, for a guest that hears of them."""


class LightningGuest(HostedCallback):
    """Stand for a callback of Lightning; what it overrides is called as in Lightning.

    `setup`, `on_exception` and the others that both have are called at the same moment. A saver's
    `on_train_epoch_end` and `on_train_batch_end` are called in the slots of savers, and what it
    saves after a validation of a fit waits for the next slot. `teardown` is left out after an
    exception, as there.
    """

    framework: ClassVar[str] = "lightning"
    bases: ClassVar[frozenset[str]] = BASES

    def __init__(self, guest: Any) -> None:
        super().__init__(guest)
        self._seen: tuple[Any, Any] = (None, None)
        self._given: tuple[Any, Any] = (None, None)
        self._is_due = False
        self._batch: tuple[Any, ...] = (None, None, -1)

    @property
    def has_named_folder(self) -> bool:
        """Whether the files of a saver are looked for in the folder that it has."""
        return True

    def folders(self) -> list[str]:
        """Return the folder that a saver saves to."""
        folder = getattr(self.guest, "dirpath", None)
        return [] if folder is None else [str(folder)]

    def candidates(self, trainer: Any) -> list[str]:  # noqa: ARG002 - a saver's
        """Return the files that a saver may have saved."""
        return [
            str(file) for folder in self.folders() for file in sorted(Path(folder).glob("*.ckpt"))
        ]

    def save_now(self, trainer: Any, module: Any) -> None:  # noqa: ARG002 - a saver's
        """Save what was asked for in a saver's folder, beside its own files."""
        at = f"epoch={trainer.current_epoch}-step={trainer.global_step}"
        for folder in self.folders():
            trainer.save_checkpoint(Path(folder, f"requested-{at}.ckpt"))

    def save_before_leaving(self, trainer: Any, module: Any) -> bool:
        """Save as the process is told to end; return whether there is a folder for it."""
        self.save_now(trainer, module)
        return bool(self.folders())

    def attach_module(self, module: Any) -> None:
        """Bind the guest's `log` and `log_dict` to the module of the run, as Lightning does."""
        super().attach_module(module)
        if module is None:
            self._seen = self._given = (None, None)
        names = vars(self.guest)
        for name in ("log", "log_dict"):
            if module is not None:
                names[name] = getattr(unwrapped(module), name)
            else:
                names.pop(name, None)

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return what calls the guest's method at `hook`, or None if it has none."""
        if isinstance(self, Checkpoint):
            found = self._slot_of_saver(hook)
            if found is not None:
                return found
            if hook in SAVER_SLOTS:
                return None
        if hook not in SAME_HOOKS or not self.guest_has(hook):
            is_counted = hook in _COUNTED and self.guest_has(hook.replace("_start", "_end"))
            return self._count_batch if is_counted else None
        method = getattr(self.guest, hook)
        if hook in _COUNTED:
            return self._counting(method)
        if hook == "setup":
            return self._telling_stage(method)
        if hook == "teardown":
            return self._unless_interrupted(method)
        return self._handing_over(method)

    def _count_batch(
        self, trainer: Any, module: Any, _batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Count a batch of an evaluation as its loop in Lightning does."""
        if trainer is not self._seen[0] or module is not self._seen[1]:
            self._meet(trainer, module)
        self._given[0].count_batch((dataloader_idx, batch_idx))

    def _counting(self, method: Callable[..., object]) -> Callable[..., object]:
        called = self._handing_over(method)

        def call(trainer: Any, module: Any, *arguments: Any) -> None:
            self._count_batch(trainer, module, *arguments)
            called(trainer, module, *arguments)

        return call

    def _handing_over(self, method: Callable[..., object]) -> Callable[..., object]:
        def call(trainer: Any, module: Any, *arguments: Any) -> None:
            seen = self._seen
            if trainer is not seen[0] or module is not seen[1]:
                self._meet(trainer, module)
            method(*self._given, *arguments)

        return call

    def _meet(self, trainer: Any, module: Any) -> None:
        self._seen = trainer, module
        self._given = trainer_view(trainer, self.guest), module_view(module, trainer, self.guest)

    def _unless_interrupted(self, method: Callable[..., object]) -> Callable[..., object]:
        called = self._telling_stage(method)

        def call(trainer: Any, module: Any, stage: str) -> None:
            if not trainer.interrupted:
                called(trainer, module, stage)

        return call

    def _telling_stage(self, method: Callable[..., object]) -> Callable[..., object]:
        called, home = self._handing_over(method), home_of(self.guest)

        def call(trainer: Any, module: Any, stage: str) -> None:
            called(trainer, module, word(home, "TrainerFn", stage))

        return call

    def _slot_of_saver(self, hook: str) -> Callable[..., object] | None:
        """Return what is called in a saver's slot, or instead of a validation's end."""
        has_validation = self.guest_has("on_validation_end")
        if hook == "on_validation_end" and has_validation:
            return self._put_off
        if hook == "on_epoch_checkpoint":
            return self._slot("on_train_epoch_end", takes_batch=False)
        if hook == "on_batch_checkpoint":
            return self._slot("on_train_batch_end", takes_batch=True)
        if hook == "on_train_batch_end" and self.guest_has(hook):
            return self._keep_batch
        return None

    def _keep_batch(self, _trainer: Any, _module: Any, outputs: Any, batch: Any, idx: int) -> None:
        self._batch = (outputs, batch, idx)

    def _put_off(self, trainer: Any, module: Any) -> None:
        if trainer.state.fn != "fit" or trainer.sanity_checking:
            self._handing_over(self.guest.on_validation_end)(trainer, module)
        else:
            self._is_due = True

    def _slot(self, name: str, *, takes_batch: bool) -> Callable[..., object] | None:
        validated = self.guest_has("on_validation_end")
        if not validated and not self.guest_has(name):
            return None
        at_end = self._handing_over(self.guest.on_validation_end) if validated else None
        at_slot = self._handing_over(getattr(self.guest, name)) if self.guest_has(name) else None

        def call(trainer: Any, module: Any) -> None:
            if takes_batch and at_slot is not None:
                at_slot(trainer, module, *self._batch)
            if self._is_due and at_end is not None:
                self._is_due = False
                at_end(trainer, module)
            if not takes_batch and at_slot is not None:
                at_slot(trainer, module)

        return call
