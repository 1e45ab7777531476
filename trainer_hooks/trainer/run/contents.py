"""Contents: what a checkpoint of a session holds, as plain data and tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks._version import __version__
from trainer_hooks.checkpoint import FORMAT, Encoder, encode_state, lightning
from trainer_hooks.errors import UsageError
from trainer_hooks.trainer.run.conditions import conditions_of
from trainer_hooks.trainer.run.parts import moving_parts

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module
    from trainer_hooks.trainer.run.session import Session

__all__ = ["build"]


def build(
    session: Session, trainer: Trainer, weights_only: bool, *, in_parts: bool = False
) -> dict[str, Any]:
    """Return a checkpoint of the session; where another process writes it, an empty one.

    Args:
        session: whose it is.
        trainer: what hooks are given.
        weights_only: whether it is to hold weights alone.
        in_parts: whether each of several processes has its part of it, as `write_parts` takes it.

    Raises:
        UsageError: there is no module to save yet.
        CheckpointStateError: a state cannot be loaded back safely; it is named.
    """
    module, processes = session.module, session.processes
    if module is None:
        raise UsageError(
            "there is nothing to save yet: call fit, validate, test or predict with a module first."
        )
    checkpoint = _contents(session, trainer, module, weights_only)
    shards: dict[str, Any] = {}
    if in_parts:
        from trainer_hooks.trainer.run.parted import take_apart

        checkpoint, shards = take_apart(checkpoint, processes)
    else:
        checkpoint = processes.gathered(checkpoint, keeps=processes.is_global_zero)
    encoded = _encoded(checkpoint, session)
    if processes.is_several:
        from trainer_hooks.trainer.run.together import add_others, require_all

        is_whole = "world_size" in checkpoint["trainer_hooks"]
        context = session.context
        parts = moving_parts(session, module, None) if context is None else context.parts
        names = parts.names_of_process() if is_whole else []
        if in_parts:  # what the others have of their own is brought together as it is written
            require_all(session)
            return {"run": encoded, "shards": shards, "names": names}
        add_others(encoded, session, names)
        if not processes.is_global_zero:
            return {}
    return encoded


def _contents(
    session: Session, trainer: Trainer, module: Module, weights_only: bool
) -> dict[str, Any]:
    """Return what this process has to save, with what the hooks add."""
    checkpoint: dict[str, Any] = {
        "epoch": session.training.progress.epochs_completed,
        "global_step": session.training.progress.steps_completed,
        "pytorch-lightning_version": lightning.VERSION,
        "state_dict": module.state_dict(),
        "loops": {},
        "trainer_hooks": {"format": FORMAT, "version": __version__},
    }
    if module.saved_hparams is not None:
        checkpoint["hparams_name"] = module.hparams_name or "kwargs"
        checkpoint["hyper_parameters"] = dict(module.saved_hparams)
    with session.training.metrics.closed():
        datamodule = session.datamodule
        if datamodule is not None:
            if datamodule.saved_hparams is not None:
                checkpoint["datamodule_hparams_name"] = datamodule.hparams_name or "kwargs"
                checkpoint[lightning.DATA_HPARAMS] = dict(datamodule.saved_hparams)
            state = datamodule.state_dict()
            if state:
                checkpoint[type(datamodule).__qualname__] = state
        if not weights_only and module is session.training.module:
            _add_training(checkpoint, session, module)
        session.connector.relay.on_save_checkpoint(trainer, module, checkpoint)
    return checkpoint


def _add_training(checkpoint: dict[str, Any], session: Session, module: Module) -> None:
    """Add what a resumed run needs beyond the weights: all that moves, and what it is to fit."""
    context = session.context if session.fn == "fit" else None
    checkpoint["loops"] = lightning.loops_of(session.training.progress.state_dict())
    own = checkpoint["trainer_hooks"]
    own["state_versions"] = session.connector.state_versions()
    own["plugins"] = session.connector.plugin_records()
    own["world_size"] = session.processes.world_size
    own["setup"] = conditions_of(session)
    if context is None:
        moving_parts(session, module, None).write(checkpoint, {})
        left = session.training.left
        own["inside_batch"] = left.get("inside_batch", False)
        if "accumulate_grad_batches" in left:
            own["accumulate_grad_batches"] = left["accumulate_grad_batches"]
        return
    context.parts.write(checkpoint, context.validation.aside)
    own["inside_batch"] = context.batch.is_taken
    if context.data.stream is not None:
        own["accumulate_grad_batches"] = context.plan.accumulate_grad_batches


def _encoded(checkpoint: dict[str, Any], session: Session) -> dict[str, Any]:
    """Return a checkpoint whose every value can be opened without running code."""
    encoder = Encoder(checkpoint)
    labels = {entry.callback.state_key: entry.label for entry in session.connector.entries}
    encoded = {
        key: encode_state(value, f"checkpoint[{key!r}]", encoder)
        for key, value in checkpoint.items()
        if key != "callbacks"
    }
    if "callbacks" in checkpoint:
        encoded["callbacks"] = {
            key: encode_state(state, labels.get(key, f"callback {key!r}"), encoder)
            for key, state in checkpoint["callbacks"].items()
        }
    return encoded
