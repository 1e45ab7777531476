"""Build the checkpoint of a training, write it, and notify callbacks and loggers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks._names import ours
from trainer_hooks._version import __version__
from trainer_hooks.checkpoint import lightning
from trainer_hooks.checkpoint.encoding import encode_checkpoint
from trainer_hooks.checkpoint.file import write_checkpoint
from trainer_hooks.checkpoint.parts import FORMAT
from trainer_hooks.checkpoint.paths import absolute_path
from trainer_hooks.checkpoint.pickled_object import PickledObject
from trainer_hooks.checkpoint.safetensors_file import (
    dump_safetensors,
    is_safetensors,
    require_weights_only,
)
from trainer_hooks.context.position import read_position
from trainer_hooks.errors import TrainerHooksWarning, UsageError
from trainer_hooks.hooks.relay import current_hook
from trainer_hooks.module.torch_wrappers import unsharded_class
from trainer_hooks.runtime.parameter_names import tensor_names, with_plain_names
from trainer_hooks.trainer.core.registered_state import build_state_registry
from trainer_hooks.trainer.identity.run_origin import (
    compute_run_origin,
    process_identity,
    shown_command,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from trainer_hooks.checkpoint.background import BackgroundSave
    from trainer_hooks.context.context import RunContext, Trainer
    from trainer_hooks.context.state_registry import StateRegistry
    from trainer_hooks.module.module import Module
    from trainer_hooks.trainer.core.trainer_core import TrainerCore


def save_checkpoint(
    core: TrainerCore,
    trainer: Trainer,
    path: str | os.PathLike[str],
    weights_only: bool,
    storage_options: Any = None,
) -> str:
    """Write a checkpoint and return its absolute path.

    A pending background save is finished first. If that failed, its error is raised after this
    checkpoint is written.

    Raises:
        UsageError: there is no module to save yet, a safetensors file is to hold more than
            weights, or this process was forked inside the run.
        CheckpointStateError: a state cannot be loaded back safely; the message names its owner.
        CheckpointError: the file cannot be written, or the background save failed.
    """
    _require_own_process(core)
    if core.background.pending is not None:
        # not `finish`: the error of a failed background save must not prevent this save
        core.background.catch_up()
    _check_save(core, [path], weights_only)
    written = write_now(core, trainer, path, weights_only, storage_options)
    if not weights_only:
        core.training.record_save(written)
    notify_saved(core, trainer, written)
    # now the error of an earlier save may be raised: this checkpoint is there
    if core.background.pending is not None:
        core.background.finish()
    return written


def save_in_background(
    core: TrainerCore,
    trainer: Trainer,
    paths: Sequence[str | os.PathLike[str]],
    weights_only: bool,
) -> BackgroundSave:
    """Copy the state in memory, and write it to each of `paths` in another thread.

    Raises:
        UsageError: there is no module to save yet, no path, or a safetensors file is to hold more
            than weights.
        CheckpointStateError: a state cannot be loaded back safely; the message names its owner.
        CheckpointError: the previous background save failed.
    """
    if not paths:
        raise UsageError("save_in_background() was given no path: pass at least one.")
    _require_own_process(core)
    # the previous save first: it writes the one copy of the state that there is in memory
    core.background.finish()
    _check_save(core, paths, weights_only)
    is_sharded = core.processes.saves_shards and not any(map(is_safetensors, paths))
    checkpoint = build_checkpoint(core, trainer, weights_only, is_sharded=is_sharded)
    files = tuple(absolute_path(path) for path in paths)
    write = _begin_write(core, is_sharded=is_sharded)
    if not checkpoint:
        # rank 0 writes the checkpoint of all ranks; this rank's thread only notes the paths, so
        # that `on_checkpoint_saved` is called on every rank
        write = lambda _, path: path  # noqa: E731
    core.training.awaited_save = None  # of a save that has failed
    save = core.background.start(checkpoint, files, write)
    if not weights_only:
        core.training.begin_save(files[0])
    return save


def notify_saved(core: TrainerCore, trainer: Trainer, path: str) -> None:
    """Call `on_checkpoint_saved` for a durable checkpoint, then tell the loggers of the savers."""
    core.connector.relay.on_checkpoint_saved(trainer, core.module, path)  # type: ignore[arg-type]
    # on every rank: the loggers of other ranks than 0 are proxies that drop the call
    for logger in core.loggers:
        for saver in trainer.checkpoint_callbacks:
            if not ours(saver).notifies_loggers:
                logger.after_save_checkpoint(saver)


def _require_own_process(core: TrainerCore) -> None:
    """Refuse to save in a process that was forked inside the run.

    Raises:
        UsageError: this is such a process.
    """
    if core.connector.relay.is_forked_copy:
        raise UsageError(
            "a checkpoint was to be saved in a process that was forked inside the run: only the "
            "process that called fit saves. Save there, or pass data to the child."
        )


def _check_save(
    core: TrainerCore, paths: Sequence[str | os.PathLike[str]], weights_only: bool
) -> None:
    """Check the paths of a save, and warn once per hook in which a save is not exact.

    Raises:
        UsageError: a safetensors file is to hold more than weights.
        CheckpointError: the safetensors library is not installed.
    """
    for path in paths:
        if is_safetensors(path) and core.custom_io is None:
            require_weights_only(path, weights_only=weights_only)
    if weights_only or core.fn != "fit":
        return
    hook = current_hook()
    spec = core.connector.hooks.get(hook)  # None of an event of the user's own
    is_safe = spec is not None and (spec.traits.is_slot or spec.traits.is_safe_for_saving)
    if hook and not is_safe and hook not in core.warned_hooks:
        core.warned_hooks.add(hook)
        warn(
            f"a checkpoint was saved in the hook {hook}: a run that is resumed from it fires the "
            "hooks of that moment once more, or leaves out those whose turn was still to come. "
            "Save in on_batch_checkpoint or on_epoch_checkpoint, or call "
            f"trainer.request_checkpoint() in {hook}, which saves at the next such moment.",
            TrainerHooksWarning,
        )


def write_now(
    core: TrainerCore,
    trainer: Trainer,
    path: str | os.PathLike[str],
    weights_only: bool,
    storage_options: Any = None,
) -> str:
    """Write a checkpoint, a shard on each rank or all on rank 0; return its path. Notify nobody."""
    is_sharded = core.processes.saves_shards and not is_safetensors(path)
    checkpoint = build_checkpoint(core, trainer, weights_only, is_sharded=is_sharded)
    write = partial(_begin_write(core, storage_options, is_sharded=is_sharded), checkpoint, path)
    if is_sharded:
        from trainer_hooks.trainer.ranks.sharded_checkpoint import waiting_for_shards

        # no `run_on_rank_zero`: every rank writes, and `write_folder` shares their errors
        with waiting_for_shards(core.processes):
            return write()
    # all ranks must learn whether rank 0 could write, or they would wait at the next collective
    return core.processes.run_on_rank_zero(write)


def _begin_write(
    core: TrainerCore, storage_options: Any = None, *, is_sharded: bool
) -> Callable[..., str]:
    """Set the save's time, at a fit's first its origin and command; return the writing function.

    It takes the checkpoint and a path, and returns the absolute path.
    """
    training = core.training
    # strictly later than the previous save, even if the clock was set back or is another machine's:
    # `ckpt_path="last"` compares these times
    training.saved_at = max(time.time_ns(), training.saved_at + 1)
    if training.origin is None:  # of a fit without savers, which was not labelled as it began
        training.origin = compute_run_origin(training.hparams, core.connector.callbacks)
    if not training.command:
        training.command = shown_command(core.connector.callbacks)
    # the values of now: by the time that a thread writes, the training may have made another save
    summary: dict[str, Any] = {
        "module": unsharded_class(core.module).__name__,
        "saved_at": training.saved_at,
        "origin": training.origin,
        "process": process_identity(),
        "command": training.command,
        "identity": training.identity,
    }
    if is_sharded:
        from trainer_hooks.trainer.ranks.sharded_checkpoint import (
            saving_group,
            write_sharded_checkpoint,
        )

        return partial(write_sharded_checkpoint, group=saving_group(core.processes), **summary)
    return lambda checkpoint, path: write_checkpoint(
        checkpoint,
        path,
        dump=dump_safetensors if is_safetensors(path) else None,
        io=core.custom_io,
        storage_options=storage_options,
        **summary,
    )


def build_checkpoint(
    core: TrainerCore, trainer: Trainer, weights_only: bool, *, is_sharded: bool = False
) -> dict[str, Any]:
    """Return a checkpoint of the trainer as plain data; an empty one on ranks that write nothing.

    Args:
        core: the trainer's core.
        trainer: the trainer, for the hooks.
        weights_only: whether it is to hold weights alone.
        is_sharded: whether each rank writes its own shards, by `write_sharded_checkpoint`.

    Returns:
        The checkpoint. With `is_sharded` and several ranks, what `write_sharded_checkpoint` takes:
        the checkpoint without its shards as `run`, this rank's `shards`, and the `names` of the
        states of which each rank has its own.

    Raises:
        UsageError: there is no module to save yet.
        CheckpointStateError: a state cannot be loaded back safely; the message names its owner.
    """
    module, processes = core.module, core.processes
    if module is None:
        raise UsageError(
            "there is nothing to save yet: call fit, validate, test or predict with a module first."
        )
    checkpoint = _contents(core, trainer, module, weights_only)
    shards: dict[str, Any] = {}
    if is_sharded:
        from trainer_hooks.trainer.ranks.sharded_checkpoint import split_shards

        checkpoint, shards = split_shards(checkpoint, processes)
    else:
        # a collective: every rank gives its shards, and rank 0 alone keeps the whole tensors
        checkpoint = processes.gather_shards(checkpoint, keep_result=processes.is_global_zero)
    # encoded before the ranks exchange their own states, so that a state that cannot be saved
    # raises on the rank that has it, and names its owner
    encoded = encode_checkpoint(checkpoint, core.connector.label_of)
    if processes.is_distributed:
        from trainer_hooks.trainer.ranks.gathered_checkpoint import (
            gather_rank_state,
            require_no_failed_rank,
        )

        has_training = "world_size" in checkpoint["trainer_hooks"]
        names = _registry(core, module).per_rank_names() if has_training else []
        if is_sharded:  # the other ranks' own state is gathered when the shards are written
            require_no_failed_rank(core)
            return {"run": encoded, "shards": shards, "names": names}
        gather_rank_state(encoded, core, names)
        if not processes.is_global_zero:
            return {}
    return encoded


def _contents(
    core: TrainerCore, trainer: Trainer, module: Module, weights_only: bool
) -> dict[str, Any]:
    """Return this rank's checkpoint, with the additions of `on_save_checkpoint`."""
    training, connector = core.training, core.connector
    checkpoint: dict[str, Any] = {
        "epoch": training.progress.epochs_completed,
        "global_step": training.progress.steps_completed,
        # Lightning's migrations look it up in each file that they read
        "pytorch-lightning_version": lightning.VERSION,
        # so that it loads with and without torch.compile of a layer
        "state_dict": with_plain_names(module.state_dict()),
        "loops": {},
        "trainer_hooks": {"format": FORMAT, "version": __version__},
    }
    _add_hparams(checkpoint, module, "hyper_parameters", "hparams_name", "hparams_type")
    # a hook that logs while it saves would change the metrics that are being saved
    with training.metrics.closed():
        datamodule = core.datamodule
        if datamodule is not None:
            _add_hparams(
                checkpoint, datamodule, lightning.DATA_HPARAMS,
                "datamodule_hparams_name", "datamodule_hparams_type",
            )  # fmt: skip
            state = datamodule.state_dict()
            if state:
                checkpoint[type(datamodule).__qualname__] = state
        # the state is that of the fit's module; another one, only evaluated, has weights alone
        if not weights_only and module is training.module:
            _add_training(core, module, checkpoint)
        # last: callbacks may look at all of it, and change it
        connector.relay.on_save_checkpoint(trainer, module, checkpoint)
    owners = (("hyper_parameters", module), (lightning.DATA_HPARAMS, core.datamodule))
    for key, owner in owners:
        if owner is not None and isinstance(checkpoint.get(key), Mapping):
            ours(owner)._fit_hparams(checkpoint, key)  # noqa: SLF001 - of the package
    return checkpoint


def _add_hparams(checkpoint: dict[str, Any], owner: Any, key: str, name: str, type_: str) -> None:
    """Add the hyperparameters that a module or data module has saved, if there are any.

    Args:
        checkpoint: the checkpoint.
        owner: the module or data module.
        key: the key of the hyperparameters.
        name: the key of the name under which they are passed.
        type_: the key of their class.
    """
    attributes = ours(owner)
    hparams = attributes._hparams_for_checkpoint()  # noqa: SLF001 - of the package
    if hparams is None:
        return
    # Lightning's word for hyperparameters that are passed one by one
    checkpoint[name] = attributes.hparams_name or "kwargs"
    checkpoint[key] = dict(hparams)
    if attributes.hparams_type is not None:
        checkpoint[type_] = PickledObject.of(attributes.hparams_type)


def _add_training(core: TrainerCore, module: Module, checkpoint: dict[str, Any]) -> None:
    """Add the counters, every state of the registry, and the position of the fit."""
    training, connector = core.training, core.connector
    checkpoint["loops"] = lightning.loops_of(training.progress.state_dict())
    entries = checkpoint["trainer_hooks"]
    # what a resume compares with its own run
    entries["state_versions"] = connector.state_versions()
    entries["plugins"] = connector.plugin_records()
    entries["world_size"] = core.processes.world_size
    entries["setup"] = {**training.setup, "precision": core.precision.name}
    later = checkpoint["state_dict"].keys() - training.built
    # of layers that hooks have added; a module may put states of other kinds among its weights
    if later and (added := sorted(later & tensor_names(module))):
        entries["added_weights"] = added
    # every entry of the state registry: the callbacks' states too, as the entry `callbacks`
    # calls `connector.state_dict`
    context = core.context if core.fn == "fit" else None
    if context is None:  # between two runs, as `trainer.save_checkpoint` after a fit
        position = training.ended
    else:
        position = read_position(context)
        if not context.resumed:  # else the loop has yet to go on from the slot of that checkpoint
            position.slot = _slot_of_save(core, context)
    _registry(core, module).write(checkpoint, position.replacements)
    entries["inside_batch"] = position.is_inside_batch
    if position.slot:
        entries["slot"] = position.slot
    if broken_off := core.broken_off or position.broken_off:
        entries["broken_off"] = broken_off
    if position.window is not None:
        entries["accumulate_grad_batches"] = position.window


def _registry(core: TrainerCore, module: Module) -> StateRegistry:
    """Return the states of the running fit, else those of the fit that has ended."""
    if core.context is not None and core.fn == "fit":
        return core.context.state_registry
    return build_state_registry(core, module, None)


def _slot_of_save(core: TrainerCore, context: RunContext) -> dict[str, str]:
    """Return the slot in which a checkpoint is saved and whose turn it is; an empty dict if none.

    If the process is killed before the callbacks after that one had their turn, a resume calls
    them: `loops/batch_end.UnfinishedSlot`.
    """
    hook = current_hook()
    if not hook and context.requests.serving:
        return {"hook": "save_now", "after": context.requests.serving}
    spec = core.connector.hooks.get(hook)
    if spec is None or not spec.traits.is_slot:
        return {}
    key = core.connector.current_state_key()  # empty for the module's own hook
    return {"hook": hook, "after": key} if key else {}
