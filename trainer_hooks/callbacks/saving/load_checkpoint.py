"""LoadCheckpoint: start a training from a checkpoint, or take its weights at some moment of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks._log import log, warn
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.saving.saver_options import check_flags, check_source
from trainer_hooks.checkpoint import (
    IgnoreKeys,
    check_ignore_keys,
    leave_out,
    load_checkpoint,
    load_weights,
)
from trainer_hooks.errors import CheckpointError, OptionError, TrainerHooksWarning, nearest
from trainer_hooks.hooks import Event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["LoadCheckpoint"]

_WHERE = "LoadCheckpoint"
_NO_MODULE = frozenset(
    {Event.ON_INIT_START, Event.ON_INIT_END, Event.ON_CLOSE, Event.ON_POST_CLOSE, Event.SETUP}
)
"""Events at which there is no module, or not yet all of it."""
_OPTIONAL = ("state_dict/", "optimizer_states", "lr_schedulers", "callbacks")
"""What of a checkpoint a training can go on without."""


class LoadCheckpoint(Callback):
    """Go on from a checkpoint as `fit(ckpt_path=...)` does, or load its weights at an event.

    It is done once in a training: a resumed one has done it already, and where the run was given a
    checkpoint by `ckpt_path` that one counts. The loggers begin a new run, other than with
    `fit(ckpt_path=...)`. Files of Lightning are taken too, as everywhere.

    Args:
        load_path: the checkpoint: a path, or an address such as `s3://bucket/run/last.ckpt`.
        load_weights_only: whether only the module's weights are loaded, and all else begins anew.
        strict_model_weights: whether every weight must be on both sides. Those that are ignored
            need not be; shapes must be the same anyway.
        ignore_keys: what is left out: patterns of keys, such as `"state_dict/head.*"`,
            `"optimizer_states"` or `"callbacks/EarlyStopping*"`; the module and the trainer keep
            what they have of it. Or a function that is given the checkpoint and changes it.
        event: when, as an `Event` or its name here or in Composer. All but the weights can be
            loaded at `"before_load"` alone, where a run gets what it goes on from.

    Attributes:
        load_path: as given.
        event: as an `Event`.
        is_loaded: whether it was done.

    State: whether it was done.

    Raises:
        OptionError: an argument is outside its rule.
        CheckpointError: in a run, the file is not there, damaged, or does not fit.

    Example::

        trainer = Trainer(max_epochs=1)
        trainer.fit(module, train_loader)
        trainer.save_checkpoint("pretrained.ckpt")

        load = LoadCheckpoint("pretrained.ckpt", load_weights_only=True)
        trainer = Trainer(max_epochs=1, callbacks=[load])
        trainer.fit(module, train_loader)
    """

    def __init__(
        self,
        load_path: str,
        load_weights_only: bool = False,
        strict_model_weights: bool = True,
        ignore_keys: IgnoreKeys | None = None,
        event: Event | str = "before_load",
    ) -> None:
        check_flags(
            _WHERE, load_weights_only=load_weights_only, strict_model_weights=strict_model_weights
        )
        self.load_path = check_source(load_path, "load_path", _WHERE)
        self.load_weights_only = load_weights_only
        self.strict_model_weights = strict_model_weights
        self.ignore_keys = check_ignore_keys(ignore_keys, _WHERE)
        self.event = _checked_event(event, load_weights_only)
        if not load_weights_only:
            _require_optional(self.ignore_keys)
        self.is_loaded = False
        self._is_chosen = False
        if self.event is not Event.BEFORE_LOAD:
            setattr(self, self.event.value, self._load_at_event)

    @property
    def state_key(self) -> str:
        """The class with the file and the event."""
        return self._generate_state_key(load_path=self.load_path, event=self.event.value)

    def state_dict(self) -> dict[str, Any]:
        """Return whether it was done."""
        return {"is_loaded": self.is_loaded}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take back whether it was done."""
        self.is_loaded = state_dict["is_loaded"]

    def on_before_load(self, trainer: Trainer, module: Module, path: str | None) -> None:
        """Begin anew with a new training, and load if it is time."""
        if trainer.state.fn == "fit" and trainer.progress.is_fresh:
            self.is_loaded = False
        if self.event is not Event.BEFORE_LOAD or self.is_loaded:
            return
        if path is not None:
            log.info("%s: the run goes on from %r, not %r", _WHERE, path, self.load_path)
        elif self.load_weights_only:
            self._load_weights(module)
        else:
            trainer.ckpt_path = self.load_path
            self._is_chosen = True

    def on_load_checkpoint(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Take out of its checkpoint what is to be ignored."""
        if not self._is_chosen:
            return
        before = set(checkpoint)
        self._take_out(checkpoint, module)
        present: dict[str, Sequence[Any]] = {
            "optimizer_states": trainer.optimizers,
            "lr_schedulers": [config.scheduler for config in trainer.lr_scheduler_configs],
        }
        for key in (before - set(checkpoint)) & set(present):
            checkpoint[key] = [item.state_dict() for item in present[key]]
        if "callbacks" in checkpoint:
            # it took no part in the run that saved this
            checkpoint["callbacks"].setdefault(self.state_key, {"is_loaded": True})

    def on_after_load(self, trainer: Trainer, module: Module, checkpoint: Any) -> None:
        """Note that it is done."""
        if self._is_chosen:
            self._is_chosen, self.is_loaded = False, True

    def _load_at_event(self, trainer: Trainer, module: Module, *_: Any) -> None:
        if not self.is_loaded:
            self._load_weights(module)

    def _load_weights(self, module: Module) -> None:
        checkpoint = load_checkpoint(self.load_path)
        if "state_dict" not in checkpoint:
            raise CheckpointError(
                f"checkpoint {self.load_path!r} of {_WHERE} holds no weights: its keys are "
                f"{', '.join(map(repr, checkpoint))}. Pass one that a trainer has saved."
            )
        self._take_out(checkpoint, module)
        load_weights(module, checkpoint["state_dict"], self.load_path)
        self.is_loaded = True
        log.info("%s: took the weights of %r at %s", _WHERE, self.load_path, self.event.value)

    def _take_out(self, checkpoint: dict[str, Any], module: Module) -> None:
        """Leave out what is ignored; the module's own weights stand in for those that are."""
        saved = list(checkpoint["state_dict"])
        unmatched = leave_out(checkpoint, self.ignore_keys) if self.ignore_keys else []
        if unmatched:
            warn(
                f"ignore_keys {', '.join(map(repr, unmatched))} of {_WHERE}: nothing in "
                f"{self.load_path!r} is called so. Write such as 'state_dict/{saved[0]}'.",
                TrainerHooksWarning,
            )
        kept, own = checkpoint.get("state_dict", {}), module.state_dict()
        is_free = not self.strict_model_weights
        own = {name: value for name, value in own.items() if is_free or name in saved}
        kept = {name: value for name, value in kept.items() if not is_free or name in own}
        checkpoint["state_dict"] = {**own, **kept}


def _checked_event(event: object, load_weights_only: bool) -> Event:
    """Return the event that `event` names.

    Raises:
        OptionError: there is none of that name, or what is asked for cannot be done there.
    """
    try:
        found = Event(event)  # type: ignore[arg-type]
    except ValueError:
        names = nearest(str(event), [item.value for item in Event])
        raise OptionError(
            f"event {event!r} of {_WHERE}: it must be an Event or its name, such as 'before_load' "
            f"or 'on_train_epoch_start'.{names}"
        ) from None
    if found in _NO_MODULE:
        raise OptionError(
            f"event {found.value!r} of {_WHERE}: there is no module then. Use 'before_load', or an "
            "event of the training."
        )
    if found is not Event.BEFORE_LOAD and not load_weights_only:
        raise OptionError(
            f"event {found.value!r} of {_WHERE}: counters, optimizers and the place in the data "
            "can be loaded at 'before_load' alone. Leave event out, or pass "
            "load_weights_only=True."
        )
    return found


def _require_optional(keys: IgnoreKeys | None) -> None:
    """Make sure that patterns leave what a training cannot go on without.

    Raises:
        OptionError: one does not.
    """
    for pattern in keys if isinstance(keys, list | tuple) else ():
        if not pattern.startswith(_OPTIONAL):
            raise OptionError(
                f"ignore_keys {pattern!r} of {_WHERE}: a training cannot go on without that. What "
                f"can be left out begins with {', '.join(map(repr, _OPTIONAL))}; or pass "
                "load_weights_only=True."
            )
