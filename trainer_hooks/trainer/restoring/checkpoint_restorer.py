"""Restore a checkpoint into a run, after checking that it fits."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from operator import is_
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import log, warn
from trainer_hooks.checkpoint.file import summarize
from trainer_hooks.checkpoint.parts import restoring_part
from trainer_hooks.checkpoint.weights import load_weights, require_fitting
from trainer_hooks.connector.callback_state import LoadReport
from trainer_hooks.errors import (
    CheckpointError,
    DataError,
    OptimizationError,
    StopTraining,
    TrainerHooksWarning,
    add_note,
)
from trainer_hooks.metrics.metric_objects import lost_metrics, metric_parts
from trainer_hooks.module.added_groups import add_groups_again, restored_on_error
from trainer_hooks.module.optimization import require_same_classes
from trainer_hooks.module.replaced_states import REPLACEABLE, replace_states
from trainer_hooks.runtime.parameter_names import plain_name, tensor_names, with_names_of
from trainer_hooks.runtime.state_backup import WeightsBackup
from trainer_hooks.trainer.core.registered_state import owners_of
from trainer_hooks.trainer.core.run_inputs import restore_datamodule
from trainer_hooks.trainer.messages.console_summary import log_loaded, log_resume
from trainer_hooks.trainer.restoring.changed_settings import reconcile_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trainer_hooks.context.context import RunContext
    from trainer_hooks.module.optimization import Optimization
    from trainer_hooks.trainer.core.run_inputs import RunInputs
    from trainer_hooks.trainer.core.trainer_core import TrainerCore


class CheckpointRestorer:
    """Restores a checkpoint into a run: all of it into a fit, else weights and data module.

    A fit restores its optimizers last, since hooks may replace them, or their groups, until the end
    of `on_fit_start`.

    Args:
        core: the trainer's core.
        context: the run.
        inputs: the inputs of the run.
        checkpoint: the checkpoint, with this rank's own state.
        path: where it was read, for messages.
        read_shards: fills tensors that the checkpoint has on the meta device; None if it has none.
    """

    def __init__(
        self,
        core: TrainerCore,
        context: RunContext,
        inputs: RunInputs,
        checkpoint: dict[str, Any],
        path: str,
        *,
        read_shards: Callable[[Any], object] | None,
    ) -> None:
        self._core, self._context, self._inputs = core, context, inputs
        self._checkpoint, self._path, self._read_shards = checkpoint, path, read_shards
        self._weights: dict[str, Any] = {}
        self._awaited_weights: dict[str, Any] = {}
        self._is_fit = inputs.fn == "fit"
        self._is_accepted = False
        self._loaded: list[str] = []
        self._restored_parts: list[object] | None = None
        self._restored_states: dict[str, Any] = {}

    @contextmanager
    def undone_on_error(self, *, with_weights: bool) -> Iterator[None]:
        """Put the module and the training back if the `with` block, of a fit, raises an error.

        Callbacks and the data module keep the states that they have loaded. In several processes
        nothing is put back, since an error in one ends them all. A note on the error names the
        parts that keep a state.

        Args:
            with_weights: whether the module's weights are put back too, which takes a copy of them
                on the host.
        """
        is_undone = not self._context.processes.is_distributed
        try:
            with self._training_undone(with_weights) if is_undone else nullcontext():
                yield
        except Exception as error:
            parts = [part for part in self._loaded if part != "the module" or not with_weights]
            if not is_undone:
                parts = [*self._loaded, "the trainer"]
            if self._loaded and parts and not isinstance(error, StopTraining):
                add_note(
                    error,
                    f"the resume from {self._path!r} failed, and {' and '.join(parts)} may have "
                    "taken states from it: make new ones before another fit.",
                )
            raise

    @contextmanager
    def _training_undone(self, with_weights: bool) -> Iterator[None]:
        context, training = self._context, self._core.training
        weights = WeightsBackup(context.module) if with_weights else None
        # callbacks are told of the error by `on_exception` and `teardown`, for which they need the
        # attributes that they have by then; the optimizers have a backup of their own
        restore_states = context.state_registry.backup(
            lambda entry: (
                not entry.is_restored_by_loop
                and not entry.only_from_snapshot
                and entry.name not in ("callbacks", "optimization", "added_groups", "loggers")
            )
        )
        attributes = ("setup", "saved_at", "newest_path", "newest_batches", "awaited_save")
        before = {name: getattr(training, name) for name in attributes}
        was_restored = training.progress.is_restored
        with restored_on_error(training.optimization):
            try:
                yield
            except BaseException:
                if weights is not None:
                    weights.restore()
                restore_states()
                for name, value in before.items():
                    setattr(training, name, value)
                training.progress.is_restored = was_restored
                context.resumed = {}
                raise

    def check(self) -> None:
        """Check that all but the optimizers can be restored, before any of it is.

        Raises:
            CheckpointError: the checkpoint does not fit. Nothing of the run is changed, but for its
                loaders where `reload_dataloaders_every_n_epochs` makes those of the saved epoch.
            DataError: it was saved inside an epoch of another loader.
        """
        context, checkpoint = self._context, self._checkpoint
        if self._is_fit:
            if context.data.reload_as_saved is not None:
                # first: the checks compare the checkpoint with the loaders of its epoch
                context.data.reload_as_saved(checkpoint, self._path)
            saved_world_size = checkpoint.get("trainer_hooks", {}).get("world_size", 1)
            if saved_world_size != context.processes.world_size:
                from trainer_hooks.trainer.restoring.elastic_resume import fit_to_world_size

                with restoring_part("stream", self._path):
                    checkpoint = fit_to_world_size(context, checkpoint, self._path)
                self._checkpoint = checkpoint
            with restoring_part("added_weights", self._path):
                self._awaited_weights = self._find_awaited_weights()
            _require_resumable(context, checkpoint, self._path, self._present_weights())

    @property
    def awaits_weights(self) -> bool:
        """Whether hooks have yet to add layers of the checkpoint."""
        return bool(self._awaited_weights)

    def _find_awaited_weights(self) -> dict[str, Any]:
        """Return the weights of layers that a hook had added to the built module, not yet here.

        A strategy that shards weights has divided the layers before such a hook.
        """
        if self._context.processes.is_sharded:
            return {}
        added = self._checkpoint.get("trainer_hooks", {}).get("added_weights", [])
        here = tensor_names(self._context.module)
        return {
            name: value
            for name, value in self._checkpoint["state_dict"].items()
            if name in added and plain_name(name) not in here
        }

    def _present_weights(self) -> dict[str, Any]:
        """Return the weights of the checkpoint but for those of layers that are still to come."""
        weights: dict[str, Any] = self._checkpoint["state_dict"]
        if not self._awaited_weights:
            return weights
        return {name: v for name, v in weights.items() if name not in self._awaited_weights}

    def _load_awaited_weights(self) -> None:
        """Load the weights of layers that hooks have added by now.

        Raises:
            CheckpointError: no hook has added them, or with another shape.
        """
        module, awaited = self._context.module, self._awaited_weights
        with restoring_part("state_dict", self._path):
            self._weights = {**self._weights, **awaited}
            is_strict = module.strict_loading
            require_fitting(module, self._weights, self._path, strict=is_strict)
            module.load_state_dict(with_names_of(module.state_dict(), awaited), strict=False)
        self._awaited_weights = {}

    def restore(self) -> None:
        """Restore all but the optimizers, and call the callbacks' `on_load_checkpoint`.

        Raises:
            CheckpointError: the weights do not fit, a callback's state is of a newer version, or a
                part is not one that its owner can load.
        """
        core, context, checkpoint = self._core, self._context, self._checkpoint
        training = core.training
        report: LoadReport | None = None
        # an evaluation without a fit before it takes the callbacks' states, too; after a fit they
        # would be overwritten by older ones
        takes_callbacks = self._is_fit or (
            training.progress.is_new_training and "callbacks" in checkpoint
        )
        upgraded: tuple[str, ...] = ()
        if takes_callbacks:
            versions = checkpoint.get("trainer_hooks", {}).get("state_versions", {})
            with restoring_part("callbacks", self._path):
                checkpoint["callbacks"], upgraded = core.connector.upgrade_states(
                    checkpoint.get("callbacks", {}), versions
                )
        # a fit has refused a checkpoint that does not fit; in an evaluation `load_weights` raises
        is_strict = context.module.strict_loading
        with restoring_part("state_dict", self._path):
            self._weights = context.processes.shard_checkpoint(
                {**checkpoint, "state_dict": self._present_weights()},
                context.module,
                self._read_shards,
            )["state_dict"]
            self._loaded.append("the module")
            load_weights(context.module, self._weights, self._path, strict=is_strict)
        if context.datamodule is not None and type(context.datamodule).__qualname__ in checkpoint:
            self._loaded.append("the data module")
        restore_datamodule(context, checkpoint, self._path)
        if checkpoint.get("callbacks"):
            self._loaded.append("the callbacks")
        self._call_on_load_checkpoint()
        if self._is_fit:
            # a checkpoint that is saved in the hooks until then holds these
            keys = () if context.processes.is_sharded else ("optimizer_states", "lr_schedulers")
            with restoring_part("lr_schedulers", self._path):
                training.optimization.awaited = {key: checkpoint[key] for key in keys}
            loaded = context.state_registry.load(
                checkpoint, self._path, by_loop=False, but=("optimization",)
            )
            report = loaded.get("callbacks")
            # not in `load_state_dict`, which a trial run calls too, to undo what it counted
            training.progress.is_restored = True
            training.newest_path = self._path
            training.newest_batches = training.progress.batches_completed
            training.awaited_save = None
            # the loop restores the rest, when it gets there
            context.resumed, context.resumed_path = checkpoint, self._path
            # later saves must count as newer than this one, wherever it was saved
            summary = summarize(self._path, core.custom_io)
            training.saved_at = max(training.saved_at, summary.saved_at)
        elif takes_callbacks:
            with restoring_part("callbacks", self._path):
                report = core.connector.load_state_dict(checkpoint["callbacks"])
        if report is not None:
            with restoring_part("plugins", self._path):
                core.start_checkpoint.report = _report_callbacks(core, checkpoint, report, upgraded)
            if not self._is_fit:
                _warn_of_callbacks(core.start_checkpoint.report)
        if not self._is_fit:
            log_loaded(self._inputs.fn, checkpoint, self._path)

    def require_fitting_optimizers(self) -> None:
        """Require the optimizers to fit, once the groups that hooks had added are added again.

        Raises:
            CheckpointError: they are others than those that were saved.
        """
        try:
            self._compare_optimizers(adds_groups=True)
        except OptimizationError as error:
            raise self._refusal(error) from error

    def restore_optimizers(self, *, may_change: bool) -> None:
        """Restore the optimizers and schedulers, as hooks have left them.

        Nothing is done if these optimizers, with these groups, are restored already.

        Args:
            may_change: whether hooks that are still to come may change them. Then optimizers that
                do not fit yet stay as they are. Else groups that a hook had added before the
                checkpoint was saved are added again, and optimizers that do not fit are refused.

        Raises:
            CheckpointError: they are others than those that were saved.
            OptionError: an override names no option.
        """
        if self._are_optimizers_restored():
            return
        optimization = self._context.training.optimization
        awaited = optimization.awaited
        self._leave_out_removed_schedulers()
        try:
            # an optimizer that refuses a state may have loaded a part of it
            with restored_on_error(optimization):
                self._compare_optimizers(adds_groups=not may_change)
                self._load_optimizers()
        except OptimizationError as error:
            if not may_change:
                raise self._refusal(error) from error
            optimization.awaited = awaited
            log.debug("the optimizers do not fit the checkpoint yet", exc_info=True)

    def _are_optimizers_restored(self) -> bool:
        """Return whether these optimizers and schedulers, with these groups, are restored."""
        parts, restored = _parts_of(self._context.training.optimization), self._restored_parts
        # by identity: a hook may put an equal group in the place of another
        return (
            restored is not None and len(parts) == len(restored) and all(map(is_, parts, restored))
        )

    def _refusal(self, error: OptimizationError) -> CheckpointError:
        return CheckpointError(f"checkpoint {self._path!r} cannot be resumed from: {error}")

    def finish(self) -> None:
        """End the restoring of a fit, after the hooks in which optimizers may be changed.

        Options that a hook has set meanwhile, such as a learning rate, are those of the checkpoint
        again, as in Lightning: the uncut run had changed them since.
        """
        core, training = self._core, self._core.training
        if self._awaited_weights:
            self._load_awaited_weights()
        if self._are_optimizers_restored():
            with restoring_part("optimizer_states", self._path):
                training.optimization.load_options(self._restored_states)
        self.restore_optimizers(may_change=False)
        self._restored_states = {}
        training.optimization.awaited = None
        assert core.start_checkpoint.report is not None
        epoch_length = self._checkpoint["trainer_hooks"]["stream"]["num_batches"]
        log_resume(training, core.start_checkpoint.report, self._path, epoch_length)

    def _leave_out_removed_schedulers(self) -> None:
        """Leave out the states of schedulers that a hook has removed since they were restored.

        Lightning's StochasticWeightAveraging does so in `on_fit_start`, to restore its own later.
        """
        states = self._checkpoint["lr_schedulers"]
        # the first of the parts
        restored = (self._restored_parts or [])[: len(states)]
        scheduler_ids = {
            id(config.scheduler) for config in self._context.training.optimization.schedulers
        }
        if scheduler_ids < set(map(id, restored)):
            pairs = zip(restored, states, strict=True)
            self._checkpoint["lr_schedulers"] = [
                state for scheduler, state in pairs if id(scheduler) in scheduler_ids
            ]

    def _compare_optimizers(self, *, adds_groups: bool) -> None:
        """Require the optimizers and schedulers that were saved, of the same classes and groups.

        Those that this run has in the place of saved ones have taken it before.

        Args:
            adds_groups: whether the groups that hooks had added are added again.
        """
        training, checkpoint = self._context.training, self._checkpoint
        optimization = training.optimization
        with restoring_part("setup", self._path):
            names = self._inputs.overrides & REPLACEABLE
            replaced = replace_states(checkpoint, optimization, training.setup, names)
        if replaced:
            log.info("in the place of the checkpoint's: %s", ", ".join(replaced))
        saved_setup = checkpoint["trainer_hooks"].get("setup", {})
        optimization.require_same_numbers(checkpoint)
        with restoring_part("setup", self._path):
            require_same_classes(optimization, checkpoint, saved_setup, training.setup)
        if adds_groups:
            with restoring_part("added_groups", self._path):
                add_groups_again(optimization, checkpoint, self._context.module)
        with restoring_part("optimizer_states", self._path):
            optimization.require_same_groups(checkpoint)

    def _load_optimizers(self) -> None:
        """Load the states of optimizers and schedulers, which fit."""
        context, training = self._context, self._context.training
        optimization = training.optimization
        with restoring_part("optimizer_states", self._path):
            # this rank's own shards; the optimizers compare the dtypes of its weights
            checkpoint = context.processes.shard_optimizer_states(
                {**self._checkpoint, "state_dict": self._weights},
                optimization.optimizers,
                self._read_shards,
            )
        if not self._is_accepted:
            self._is_accepted = True
            self._tell_differences()
            # before they are loaded: an override replaces options in the file
            with restoring_part("setup", self._path):
                options = self._inputs.overrides - REPLACEABLE
                reconcile_settings(self._core, checkpoint, self._path, options)
        with restoring_part("optimizer_states", self._path):
            optimization.load_state_dict(checkpoint)
        self._restored_parts, self._restored_states = _parts_of(optimization), checkpoint
        if context.processes.is_sharded:
            optimization.awaited = None

    def _tell_differences(self) -> None:
        """Warn of all that makes the resumed run another than the one that was cut."""
        context, checkpoint, path = self._context, self._checkpoint, self._path
        entries = checkpoint["trainer_hooks"]
        present = context.plan.window_after(entries.get("set_window"))
        accumulated = entries.get("accumulate_grad_batches", present)
        if accumulated != present:
            warn(
                f"checkpoint {path!r} was saved with accumulate_grad_batches={accumulated}, and "
                f"this run has {present}: from here on as many batches make a step, so it is not "
                "the run that was cut, whose steps were of another size.",
                TrainerHooksWarning,
            )
        with restoring_part("metrics", path):
            _warn_of_gaps(context, entries, metric_parts(context.module, owners_of(self._core)))
        assert self._core.start_checkpoint.report is not None
        _warn_of_callbacks(self._core.start_checkpoint.report)

    def _call_on_load_checkpoint(self) -> None:
        """Call the callbacks' `on_load_checkpoint`; warn if one changes weights in the dict."""
        context, checkpoint = self._context, self._checkpoint
        before = checkpoint["state_dict"], list(map(id, checkpoint["state_dict"].values()))
        context.hooks.on_load_checkpoint(context.trainer, context.module, checkpoint)
        after = checkpoint.get("state_dict")
        if after is not before[0] or list(map(id, after.values())) != before[1]:
            warn(
                "a callback changed checkpoint['state_dict'] in on_load_checkpoint, when the "
                "module had its weights already, as in Lightning: this has no effect. Change it "
                "in on_before_restore, or load weights into the module in on_load_checkpoint.",
                TrainerHooksWarning,
            )


def _parts_of(optimization: Optimization) -> list[object]:
    """Return the schedulers, then the optimizers with their groups and parameters."""
    parts: list[object] = [config.scheduler for config in optimization.schedulers]
    for optimizer in optimization.optimizers:
        parts.append(optimizer)
        for group in optimizer.param_groups:
            parts += [group, *group["params"]]
    return parts


def _report_callbacks(
    core: TrainerCore, checkpoint: dict[str, Any], loaded: LoadReport, upgraded: tuple[str, ...]
) -> LoadReport:
    """Return the load report of the callbacks.

    Args:
        core: the trainer's core.
        checkpoint: the checkpoint that the states came from.
        loaded: the connector's load report.
        upgraded: descriptions of the states that were of another version.
    """
    saved = checkpoint.get("trainer_hooks", {}).get("plugins", [])
    present = {
        record["distribution"]: record["version"] for record in core.connector.plugin_records()
    }
    changes = []
    for record in saved:
        name, version = record["distribution"], record["version"]
        if name not in present:
            changes.append(f"plugin {name} {version} does not take part now")
        elif present[name] != version:
            changes.append(f"plugin {name} is {present[name]} now and was {version}")
    # each change once: a plugin may supply several callbacks
    return LoadReport(
        loaded.restored, loaded.missing, loaded.unexpected, tuple(dict.fromkeys(changes)), upgraded
    )


def _warn_of_callbacks(report: LoadReport) -> None:
    if report.summary:
        warn(
            f"the checkpoint and this run's callbacks differ: {report.summary}.",
            TrainerHooksWarning,
        )


def _require_resumable(
    context: RunContext, checkpoint: dict[str, Any], source: str, weights: dict[str, Any]
) -> None:
    """Raise unless a training can resume from a checkpoint, but for its optimizers.

    Args:
        context: the run context.
        checkpoint: the checkpoint.
        source: its path, for messages.
        weights: those of its weights whose layers are there.

    Raises:
        CheckpointError: it holds weights alone, is of another module, or was saved under other
            conditions.
        DataError: it was saved inside an epoch of another loader.
    """
    entries = checkpoint.get("trainer_hooks", {})
    module = type(context.module).__qualname__
    # a file of weights alone has no optimizers, and that of another tool no random states
    if "optimizer_states" not in checkpoint or "rng" not in entries:
        raise CheckpointError(
            f"checkpoint {source!r} cannot be resumed from: it holds weights alone, or was saved "
            "neither by trainer_hooks nor by Lightning. To start anew from its weights, use "
            f"{module}.load_from_checkpoint."
        )
    # these checks come before any change: a resume that they refuse leaves the run as it was, but
    # for loaders that `reload_as_saved` has made
    context.state_registry.require(checkpoint, source)
    present = context.plan.window_after(entries.get("set_window"))
    accumulated = entries.get("accumulate_grad_batches", present)
    with restoring_part("progress", source):
        is_inside_window = bool(entries["progress"]["batches_in_window"])
    # between two windows another number may be taken, with a warning
    if is_inside_window and accumulated != present:
        raise CheckpointError(
            f"checkpoint {source!r} was saved inside a window of {accumulated} batches, but this "
            f"run has accumulate_grad_batches={present}: the "
            "gradients saved with it cannot be used. Resume with the same number, or from a "
            "checkpoint that was saved at the end of an epoch."
        )
    is_strict = context.module.strict_loading
    with restoring_part("state_dict", source):
        require_fitting(context.module, weights, source, strict=is_strict)
    if context.data.stream is not None:
        try:
            with restoring_part("stream", source):
                context.data.stream.require_same(entries["stream"])
        except DataError as error:
            raise DataError(f"checkpoint {source!r} cannot be resumed from: {error}") from error


def _warn_of_gaps(context: RunContext, entries: dict[str, Any], parts: dict[str, Any]) -> None:
    """Warn of state that the checkpoint lacks, so that the resume is not exact."""
    lost = lost_metrics(entries["metrics"]["epoch"], parts)
    if lost:
        warn(
            f"the metric objects logged as {', '.join(map(repr, lost))} were not found, so what "
            "they held of the epoch under way is left out: keep each as an attribute of the "
            "module, or in a list or dict that is one.",
            TrainerHooksWarning,
        )
    if entries.get("broken_off"):
        warn(
            f"the checkpoint was saved after an error in {entries['broken_off']}, when some "
            "callbacks had had their turn: a resumed run either calls it on them once more or "
            "leaves out the others, so that this run is not exactly the one that was cut. Resume "
            "from a checkpoint that was saved before the error to have that.",
            TrainerHooksWarning,
        )
    if context.processes.is_distributed:
        from torch.distributed import ProcessGroup

        options = getattr(context.processes, "options", None)
        state = getattr(options, "ddp_comm_state", None)
        # torch's own hooks take a group of processes, or None
        if state is not None and not isinstance(state, ProcessGroup):
            warn(
                f"no checkpoint holds the {type(state).__qualname__} that DDPStrategy has as "
                "ddp_comm_state: it begins anew, so that this run may differ from the one that "
                "was cut. Leave ddp_comm_hook out to have an exact resume.",
                TrainerHooksWarning,
            )
    if entries.get("inside_batch"):
        progress = context.training.progress
        warn(
            f"the checkpoint was saved inside batch {progress.batches_in_epoch} of epoch "
            f"{progress.epochs_completed}, before that was done. It is trained again from "
            "its start, but random numbers, gradients, metrics and perhaps weights had moved on "
            "by then, so that this run is not exactly the one that was cut. Resume from a "
            "checkpoint that was saved between two batches to have that.",
            TrainerHooksWarning,
        )
