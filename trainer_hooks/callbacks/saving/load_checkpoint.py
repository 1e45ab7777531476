"""LoadCheckpoint: start a training from a checkpoint, or load its weights at an event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks._log import log, warn
from trainer_hooks._options import answers_keywords
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.saving.saver_options import check_flags, check_source
from trainer_hooks.checkpoint.file import load_checkpoint
from trainer_hooks.checkpoint.paths import absolute_path
from trainer_hooks.checkpoint.weights import (
    IgnoreKeys,
    check_ignore_keys,
    load_weights,
    remove_keys,
)
from trainer_hooks.connector.state_types import checks_state
from trainer_hooks.errors import CheckpointError, OptionError, TrainerHooksWarning, did_you_mean
from trainer_hooks.hooks.event import Event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

_WHERE = "LoadCheckpoint"
_NO_MODULE = frozenset(
    {Event.ON_INIT_START, Event.ON_INIT_END, Event.ON_CLOSE, Event.ON_POST_CLOSE, Event.SETUP}
)
"""Events at which there is no module, or not yet all of it."""
_OPTIONAL = ("state_dict/", "optimizer_states", "lr_schedulers", "callbacks")
"""What of a checkpoint a training can go on without."""


class LoadCheckpoint(Callback):
    """Resume from a checkpoint as `fit(ckpt_path=...)` does, or load its weights at an event.

    It acts once in a training: a resumed training has loaded the file already, and a checkpoint
    passed as `ckpt_path` takes precedence. The loggers begin a new run, unlike with
    `fit(ckpt_path=...)`. Lightning checkpoints are accepted, as everywhere.

    Args:
        load_path: the checkpoint: a path, or an address such as `s3://bucket/run/last.ckpt`.
        load_weights_only: whether only the module's weights are loaded, and the rest starts anew.
        strict_model_weights: whether every weight must be on both sides. Ignored weights need not
            be; shapes must match in any case.
        ignore_keys: keys to leave out: patterns such as `"state_dict/head.*"`,
            `"optimizer_states"` or `"callbacks/EarlyStopping*"`; the module and the trainer keep
            their present values for these. Or a function that gets the checkpoint and changes it.
        event: when to load, as an `Event` or its name here or in Composer. Everything but the
            weights can be loaded at `"before_load"` alone, where a run is resumed.

    Attributes:
        load_path: as passed.
        event: as an `Event`.
        is_loaded: whether it has loaded the checkpoint.

    State: whether it has loaded the checkpoint.

    Raises:
        OptionError: an argument is outside its rule.
        CheckpointError: in a run, the file is missing, damaged, or does not fit.

    Example::

        trainer = Trainer(max_epochs=1)
        trainer.fit(module, train_loader)
        trainer.save_checkpoint("pretrained.ckpt")

        load = LoadCheckpoint("pretrained.ckpt", load_weights_only=True)
        trainer = Trainer(max_epochs=1, callbacks=[load])
        trainer.fit(module, train_loader)
    """

    @answers_keywords
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
            # on the instance: only hooks that a callback overrides are called, and this is one
            setattr(self, self.event.value, self._load_at_event)

    @property
    def state_key(self) -> str:
        """The class name with the file and the event."""
        return self._generate_state_key(load_path=self.load_path, event=self.event.value)

    def state_dict(self) -> dict[str, Any]:
        """Return whether it has loaded the checkpoint."""
        return {"is_loaded": self.is_loaded}

    @checks_state({"is_loaded": bool})
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore whether it has loaded the checkpoint."""
        self.is_loaded = state_dict["is_loaded"]

    def on_before_load(self, trainer: Trainer, module: Module, path: str | None) -> None:
        """Reset for a new training, and load if this is the event."""
        if trainer.state.fn == "fit" and trainer.progress.is_new_training:
            self.is_loaded = False
        if self.event is not Event.BEFORE_LOAD or self.is_loaded:
            return
        if path is not None:
            if absolute_path(path) != absolute_path(self.load_path):
                log.info("%s: the run goes on from %r, not %r", _WHERE, path, self.load_path)
        elif self.load_weights_only:
            self._load_weights(module)
        else:
            trainer.ckpt_path = self.load_path  # from here on the run resumes as with ckpt_path=
            self._is_chosen = True

    def on_before_restore(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Remove the ignored keys from its checkpoint."""
        if not self._is_chosen:
            return
        before = set(checkpoint)
        self._take_out(checkpoint, module)
        present: dict[str, Sequence[Any]] = {
            "optimizer_states": trainer.optimizers,
            "lr_schedulers": [config.scheduler for config in trainer.lr_scheduler_configs],
        }
        # an ignored part is replaced by the run's present state: a resume requires every part
        for key in (before - set(checkpoint)) & set(present):
            checkpoint[key] = [item.state_dict() for item in present[key]]
        if "callbacks" in checkpoint:
            # without a state of its own, the load report would list this callback as missing
            checkpoint["callbacks"].setdefault(self.state_key, {"is_loaded": True})

    def on_after_load(self, trainer: Trainer, module: Module, checkpoint: Any) -> None:
        """Record that it has loaded the checkpoint."""
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
        """Remove the ignored keys; the module's present weights replace ignored ones."""
        saved = list(checkpoint["state_dict"])
        unmatched = remove_keys(checkpoint, self.ignore_keys) if self.ignore_keys else []
        if unmatched:
            warn(
                f"ignore_keys {', '.join(map(repr, unmatched))} of {_WHERE}: nothing in "
                f"{self.load_path!r} is called so. Write such as 'state_dict/{saved[0]}'.",
                TrainerHooksWarning,
            )
        loaded, present = checkpoint.get("state_dict", {}), module.state_dict()
        # not strict: weights of the file alone are dropped, and those of the module alone stay
        is_free = not self.strict_model_weights
        present = {name: value for name, value in present.items() if is_free or name in saved}
        loaded = {name: value for name, value in loaded.items() if not is_free or name in present}
        # a strict load wants every weight: the module's own stand for the ignored ones
        checkpoint["state_dict"] = {**present, **loaded}


def _checked_event(event: object, load_weights_only: bool) -> Event:
    """Return the event with a name.

    Raises:
        OptionError: there is none of that name, or the load is not possible at this event.
    """
    try:
        checked = Event(event)  # type: ignore[arg-type]
    except ValueError:
        names = did_you_mean(str(event), [item.value for item in Event])
        raise OptionError(
            f"event {event!r} of {_WHERE}: it must be an Event or its name, such as 'before_load' "
            f"or 'on_train_epoch_start'.{names}"
        ) from None
    if checked in _NO_MODULE:
        raise OptionError(
            f"event {checked.value!r} of {_WHERE}: there is no module then. Use 'before_load', or "
            "an event of the training."
        )
    if checked is not Event.BEFORE_LOAD and not load_weights_only:
        raise OptionError(
            f"event {checked.value!r} of {_WHERE}: counters, optimizers and the place in the data "
            "can be loaded at 'before_load' alone. Leave event out, or pass "
            "load_weights_only=True."
        )
    return checked


def _require_optional(keys: IgnoreKeys | None) -> None:
    """Raise if a pattern matches a part that a resume needs.

    Raises:
        OptionError: one does.
    """
    for pattern in keys if isinstance(keys, list | tuple) else ():
        if not pattern.startswith(_OPTIONAL):
            raise OptionError(
                f"ignore_keys {pattern!r} of {_WHERE}: a training cannot go on without that. What "
                f"can be left out begins with {', '.join(map(repr, _OPTIONAL))}; or pass "
                "load_weights_only=True."
            )


def restore_weights_and_optimizers(trainer: Trainer, module: Module, path: str) -> None:
    """Load a file's weights into the module, and its optimizer and scheduler states into the run.

    Counters, random states and callbacks stay as they are.

    Args:
        trainer: the trainer with the optimizers and schedulers.
        module: the module.
        path: a checkpoint, or a file of weights alone.

    Raises:
        CheckpointError: there is no such file, or it does not fit the module.
    """
    checkpoint = load_checkpoint(path)
    load_weights(module, checkpoint["state_dict"], path, strict=module.strict_loading)
    states = checkpoint.get("optimizer_states", ())
    for optimizer, state in zip(trainer.optimizers, states, strict=False):
        optimizer.load_state_dict(state)
    states = checkpoint.get("lr_schedulers", ())
    for config, state in zip(trainer.lr_scheduler_configs, states, strict=False):
        config.scheduler.load_state_dict(state)
