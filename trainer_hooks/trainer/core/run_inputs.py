"""The inputs of a run: the arguments of fit, validate, test or predict, and their loaders."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torch import nn

from trainer_hooks._log import is_own_module, warn
from trainer_hooks.checkpoint.parts import restoring_part
from trainer_hooks.connector.registry import adapt_if_foreign
from trainer_hooks.context.loaders import EvalLoaders
from trainer_hooks.data.data_hooks import defines
from trainer_hooks.data.loaders import (
    apply_batch_limit,
    as_eval_loaders,
    as_train_loader,
    describe_loader,
    number_of_batches,
    without_shuffling,
)
from trainer_hooks.data.stream import AwaitedStream, TrainStream
from trainer_hooks.errors import (
    DataError,
    ModuleError,
    OptionError,
    TrainerHooksWarning,
    foreign_hint,
)
from trainer_hooks.loops.module_steps import has_validation_step
from trainer_hooks.module.datamodule import DataModule
from trainer_hooks.module.module import Module, require_init
from trainer_hooks.module.torch_wrappers import uncompiled
from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trainer_hooks.context.context import RunContext
    from trainer_hooks.context.run_state import TrainerFn
    from trainer_hooks.loops.loop_position import LoopPosition
    from trainer_hooks.trainer.identity.run_identity import RunLabel

_LIMITS = {
    "validate": "limit_val_batches",
    "test": "limit_test_batches",
    "predict": "limit_predict_batches",
}
_LOADERS = {
    "validate": "val_dataloader",
    "test": "test_dataloader",
    "predict": "predict_dataloader",
}


@dataclass(frozen=True, slots=True)
class RunInputs:
    """The arguments of one call of fit, validate, test or predict.

    Attributes:
        fn: the method, as hooks get it for their `stage`.
        module: the module.
        datamodule: the data module, or None.
        train: the training loaders passed by the user, or None.
        evaluation: the evaluation loaders passed by the user, or None.
        ckpt_path: the checkpoint to start from, or None.
        label: of a fit the origin and identity that its checkpoints hold; None without savers, and
            on other ranks than 0.
        overrides: names of optimizer options whose values come from this run, not the checkpoint.
        keeps_predictions: whether predict returns the predictions.
        compiled: the wrapper that `torch.compile(module)` returned, if it was passed; or None.
        own_loop: the position of the loop that the user writes, and that hands over the loaders;
            None if the loop is the trainer's.
        make_optimizers: returns the optimizers in the place of the module's
            `configure_optimizers`; None if the module makes them.
        units: parts of the module whose forwards are called by themselves.
    """

    fn: TrainerFn
    module: Any
    datamodule: Any = None
    train: Any = None
    evaluation: Any = None
    ckpt_path: str | None = None
    label: RunLabel | None = None
    keeps_predictions: bool = True
    overrides: frozenset[str] = frozenset()
    compiled: Any = None
    own_loop: LoopPosition | None = None
    make_optimizers: Callable[[], Any] | None = None
    units: tuple[Any, ...] = ()

    def normalized(self) -> RunInputs:
        """Return the inputs with each argument in its place.

        A compiled module is unwrapped, a data module passed as loaders becomes the data module, and
        modules and data modules of other frameworks are replaced by their adapters.
        """
        inputs = self._adapted()
        module = uncompiled(inputs.module)
        if module is not inputs.module:
            inputs = replace(inputs, module=module, compiled=inputs.module)
        if (
            inputs.datamodule is None
            and isinstance(inputs.train, DataModule)
            and inputs.evaluation is None
        ):
            return replace(inputs, datamodule=inputs.train, train=None)
        if (
            inputs.datamodule is None
            and isinstance(inputs.evaluation, DataModule)
            and inputs.fn != "fit"
        ):
            return replace(inputs, datamodule=inputs.evaluation, evaluation=None)
        return inputs

    def _adapted(self) -> RunInputs:
        changed = {}
        for name, given, kind in (
            ("module", self.module, Module),
            ("datamodule", self.datamodule, DataModule),
            ("train", self.train, DataModule),
            ("evaluation", self.evaluation, DataModule),
        ):
            # a loader of any framework is taken as it is: only a data module has `prepare_data`
            is_loader = kind is DataModule and not callable(getattr(given, "prepare_data", None))
            if given is None or is_loader:
                continue
            adapted = adapt_if_foreign(given, kind)
            if adapted is not given:
                changed[name] = adapted
        return replace(self, **changed) if changed else self

    @property
    def makes_loaders(self) -> bool:
        """Whether the module or data module makes the loaders."""
        return (self.train if self.fn == "fit" else self.evaluation) is None


def check_inputs(inputs: RunInputs) -> None:
    """Raise unless the inputs are a module and, if there is one, a data module.

    Raises:
        ModuleError: the model is no module, or its `__init__` has not called its base class's.
        DataError: the data module is none, or comes with loaders besides.
    """
    if isinstance(inputs.module, type) or not isinstance(inputs.module, Module):
        is_class = isinstance(inputs.module, type)
        kind = inputs.module if isinstance(inputs.module, type) else type(inputs.module)
        article = "the class" if is_class else "an object of type"
        raise ModuleError(
            f"{inputs.fn} was given {article} {kind.__qualname__} as its model: it must be an "
            f"instance of trainer_hooks.Module.{_module_hint(inputs, kind, is_class)}"
        )
    require_init(inputs.module)
    evaluated = "val_dataloaders" if inputs.fn == "fit" else "dataloaders"
    for name, given in (("train_dataloaders", inputs.train), (evaluated, inputs.evaluation)):
        if isinstance(given, type):
            raise DataError(
                f"{inputs.fn} was given the class {given.__qualname__} as its data: it must be "
                f"loaders or a data module.{_call_hint(given)}"
            )
        if isinstance(given, DataModule):
            raise DataError(
                f"{inputs.fn} was given a DataModule as {name}, and other data beside it: pass it "
                "alone, as datamodule= or in the second place."
            )
        if given is not None and inputs.datamodule is not None:
            raise DataError(
                f"{inputs.fn} was given both {name}= and datamodule=: it must be one of them."
            )
    if inputs.datamodule is not None and not isinstance(inputs.datamodule, DataModule):
        is_class = isinstance(inputs.datamodule, type)
        kind = inputs.datamodule if isinstance(inputs.datamodule, type) else type(inputs.datamodule)
        hint = _call_hint(kind) if is_class else foreign_hint(kind, "DataModule")
        article = "the class " if is_class else ""
        raise DataError(
            f"{inputs.fn} was given {article}{kind.__qualname__} as datamodule: it must be an "
            f"instance of trainer_hooks.DataModule.{hint}"
        )


def _call_hint(kind: Any) -> str:
    """Return the cure where a class was given in place of its object."""
    return f" Write {kind.__qualname__}(...) instead of {kind.__qualname__}."


def _module_hint(inputs: RunInputs, kind: type, is_class: bool) -> str:
    """Return the cure where `fit` or another entry point was given something else as its model."""
    if foreign := foreign_hint(kind, "Module"):
        return foreign
    if is_class:
        return _call_hint(kind)
    if isinstance(inputs.train, Module) or isinstance(inputs.evaluation, Module):
        return f" The model comes first: {inputs.fn}(model, loaders)."
    if issubclass(kind, nn.Module):
        return (
            " Make it an attribute of a class that derives from trainer_hooks.Module and defines "
            "training_step and configure_optimizers."
        )
    return ""


def load_data(inputs: RunInputs, context: RunContext) -> None:
    """Make the loaders of a run.

    Raises:
        DataError: there is nothing to run, or a loader has no batch.
    """
    if inputs.fn != "fit":
        context.data.evaluation[inputs.fn] = _evaluation(inputs, context, inputs.fn)
        if not context.data.evaluation[inputs.fn]:
            raise DataError(
                f"{inputs.fn} has nothing to run: its loaders give no batch, or "
                f"{_LIMITS[inputs.fn]} is 0. Check the data set's length and the limit."
            )
        return
    if context.data.stream is None:
        load_training(inputs, context)
    # empty until they are made: the user's method may ask the trainer for them
    context.data.evaluation["validate"] = EvalLoaders()
    context.data.evaluation["validate"] = _validation(inputs, context)


def load_training(inputs: RunInputs, context: RunContext) -> None:
    """Make the training loader of a fit.

    Raises:
        DataError: there is none, or it has no batch.
    """
    source = _source(inputs, "train_dataloader", inputs.train)
    if source is None and inputs.own_loop is not None:
        context.data.stream = AwaitedStream()
        return
    if source is None:
        raise DataError(
            f"fit was given no training data{_without_return(inputs, 'train_dataloader')}: pass "
            "train_dataloaders=, a datamodule= with train_dataloader(), or define "
            f"{type(inputs.module).__qualname__}.train_dataloader()."
        )
    loader = as_train_loader(source)
    if context.plan.overfit_batches:
        # the same few batches in each epoch
        loader = without_shuffling(loader)
    loader = _shard(context, loader, trains=True)
    if number_of_batches(loader) == 0:
        raise DataError(
            f"the training loader {describe_loader(loader)} gives no batch: check the data set's "
            "length, and drop_last with a data set smaller than one batch."
        )
    plan = context.plan
    option = "overfit_batches" if plan.overfit_batches else "limit_train_batches"
    context.data.stream = TrainStream(loader, plan.limit_train_batches, option)
    if context.processes.is_distributed:
        _agree_on_length(context)


def _validation(inputs: RunInputs, context: RunContext) -> EvalLoaders:
    """Return the loaders of a fit's validations, if there are any."""
    if inputs.own_loop is not None:
        # as yet without a loader: callbacks that ask are told that validations may come
        return EvalLoaders(num_batches=[math.inf])
    if context.plan.limit_val_batches == 0 and inputs.evaluation is None:
        return EvalLoaders()  # without asking for loaders: with a limit of 0 there may be none
    if has_validation_step(inputs.module):
        return _evaluation(inputs, context, "validate")
    return EvalLoaders()


def load_handed_over(inputs: RunInputs, context: RunContext, loader: Any) -> None:
    """Make the training stream of a loader that the user's own loop hands over.

    Raises:
        DataError: it has no batch.
    """
    load_training(replace(inputs, train=loader), context)


def load_evaluation(inputs: RunInputs, context: RunContext, loader: Any) -> EvalLoaders:
    """Return a validation loader that the user's own loop hands over, with its number of batches.

    Raises:
        DataError: it is several loaders.
    """
    made = _evaluation(replace(inputs, evaluation=loader), context, "validate")
    if len(made.loaders) != 1:
        raise DataError(
            f"run.batches was given {len(made.loaders)} validation loaders at once: hand over one, "
            "each in a `for` of its own, and write run.validation(num_dataloaders="
            f"{len(made.loaders)})."
        )
    return made


def reload_data(inputs: RunInputs, context: RunContext) -> None:
    """Make the loaders of a running run again, and swap them in.

    Loaders that were passed to the run stay.

    Raises:
        DataError: there is nothing to run, or a loader has no batch.
    """
    if inputs.fn != "fit":
        before = context.data.evaluation[inputs.fn]
        load_data(inputs, context)
        before.replace(context.data.evaluation[inputs.fn])  # in place: the running loop holds it
        context.data.evaluation[inputs.fn] = before
        return
    if inputs.train is None:
        load_training(inputs, context)
    if inputs.evaluation is None:
        context.data.evaluation["validate"].replace(_validation(inputs, context))


def _evaluation(inputs: RunInputs, context: RunContext, stage: str) -> EvalLoaders:
    from trainer_hooks.data.evaluator import evaluators_in

    source = _source(inputs, _LOADERS[stage], inputs.evaluation)
    if source is None:
        if inputs.fn == "fit":
            return EvalLoaders()  # a fit need not validate
        raise DataError(
            f"{stage} was given no data{_without_return(inputs, _LOADERS[stage])}: pass "
            f"dataloaders=, a datamodule= with {_LOADERS[stage]}(), or define "
            f"{type(inputs.module).__qualname__}.{_LOADERS[stage]}()."
        )
    evaluators = evaluators_in(source)
    if evaluators:
        source = [evaluator.dataloader for evaluator in evaluators]
    loaders, option = as_eval_loaders(source, stage), _LIMITS[stage]
    limit = getattr(context.plan, option)
    if context.plan.overfit_batches and stage == "validate":
        loaders, option = [without_shuffling(item) for item in loaders], "overfit_batches"
    loaders = [_shard(context, item, trains=False) for item in loaders]
    sizes = [number_of_batches(item) for item in loaders]
    for position, size in enumerate(sizes):
        if context.processes.is_distributed:
            break  # one rank's shard may be empty, as long as another's is not
        if size == 0 and (any(sizes) or inputs.fn == "fit"):
            warn(
                f"{stage} loader {position}, {loaders[position]!r}, has no batch: it is left "
                "out. Check its data set's length, and drop_last.",
                TrainerHooksWarning,
            )
    counts = [apply_batch_limit(size, limit, option) for size in sizes]
    for index, evaluator in enumerate(evaluators):
        # -1 and None are Composer's for all
        if (evaluator.subset_num_batches or -1) > 0:
            counts[index] = min(counts[index], evaluator.subset_num_batches or 0)
    if context.processes.is_distributed:
        return _eval_data_of_all(context, EvalLoaders(loaders, counts, evaluators, given=source))
    return EvalLoaders(loaders, counts, evaluators, given=source)


def _shard(context: RunContext, loader: Any, *, trains: bool) -> Any:
    """Return this rank's shard of a loader, if there are several ranks and loaders are sharded."""
    if not context.processes.is_distributed or not context.plan.shares_loaders:
        return loader
    from trainer_hooks.data.loader_sharding import common_seed, shard_loader

    data = context.data
    if data.sharding_seed is None:
        data.sharding_seed = common_seed()
    return shard_loader(
        loader, context.processes.data_topology, is_training=trains, seed=data.sharding_seed
    )


def _agree_on_length(context: RunContext) -> None:
    """Limit all ranks to the same number of training batches.

    Raises:
        DataError: some ranks know their number of batches, and others do not.
    """
    stream = context.data.stream
    assert stream is not None
    # a rank with more batches would wait in its last backward for ranks that have none left
    # A limit need not be reached where the length is unknown: all end with the first rank's last.
    stream.looks_ahead = number_of_batches(stream.loader) == math.inf
    sizes = context.processes.gather(math.inf if stream.looks_ahead else stream.num_batches)
    if math.inf in sizes and min(sizes) != math.inf:
        raise DataError(
            f"the training loaders of the processes have {sizes} batches: all must have a length, "
            "or none. Give each a __len__."
        )
    if min(sizes) != max(sizes):
        warn(
            f"the training loaders of the processes have {sizes} batches: each takes "
            f"{min(sizes)}, as all must have as many.",
            TrainerHooksWarning,
        )
        stream.limit_to(min(sizes))


def _eval_data_of_all(context: RunContext, data: EvalLoaders) -> EvalLoaders:
    """Add the greatest and smallest number of batches of any rank to evaluation loaders."""
    counts = context.processes.gather(data.num_batches)
    if len({len(of_rank) for of_rank in counts}) > 1:
        raise DataError(
            f"the processes have {list(map(len, counts))} loaders for an evaluation: all "
            "must have as many."
        )
    columns = list(zip(*counts, strict=True))
    data.most = [max(column) for column in columns]
    data.fewest = [0 if math.inf in column else min(column) for column in columns]
    return data


def _source(inputs: RunInputs, name: str, given: Any) -> Any:
    """Return the loaders passed by the user, or those that the data module or module makes."""
    if given is not None:
        return given
    # the data module first, as in Lightning
    for owner in (inputs.datamodule, inputs.module):
        if owner is not None and defines(owner, name):
            return getattr(owner, name)()
    return None


def _without_return(inputs: RunInputs, name: str) -> str:
    """Return, for a message, which method has just returned None in place of a loader."""
    owner = next(
        (
            candidate
            for candidate in (inputs.datamodule, inputs.module)
            if candidate and defines(candidate, name)
        ),
        None,
    )
    return "" if owner is None else f", since {type(owner).__qualname__}.{name}() returned None"


def checked_overrides(overrides: str | Iterable[str] | None, ckpt_path: object) -> frozenset[str]:
    """Return the names of optimizer options whose values come from this run on a resume.

    Raises:
        OptionError: they are no names, or there is no checkpoint to resume from.
    """
    if overrides is None:
        return frozenset()
    names = [overrides] if isinstance(overrides, str) else list(overrides)
    # a dict looks like names, but its values would be ignored
    is_names = not hasattr(overrides, "items") and all(isinstance(name, str) for name in names)
    if not is_names:
        raise OptionError(
            f"overrides={overrides!r}: it must be names of an optimizer's options, as in "
            "overrides=['lr']; their values are those of this run's configure_optimizers."
        )
    if ckpt_path is None:
        raise OptionError(
            f"overrides={overrides!r} without ckpt_path: there is no checkpoint whose options "
            "could be overridden. Leave it out, or pass ckpt_path."
        )
    return frozenset(names)


def restore_datamodule(context: RunContext, checkpoint: dict[str, Any], source: str) -> None:
    """Restore the data module's state from a checkpoint, if there is one.

    Args:
        context: the run.
        checkpoint: the loaded checkpoint.
        source: its path, for messages.

    Raises:
        CheckpointError: the data module cannot load the state.
    """
    datamodule = context.datamodule
    if datamodule is not None:
        name = type(datamodule).__qualname__
        with restoring_part(name, source):
            if state := checkpoint.get(name):
                datamodule.load_state_dict(state)


class LoaderReload:
    """Reload the loaders every `reload_dataloaders_every_n_epochs` epochs.

    A checkpoint holds the epoch in which the loaders were made, and the random state of that
    moment. A resumed run makes them again with both, before it continues inside them.

    Args:
        inputs: the inputs of the run.
        context: the run.
    """

    def __init__(self, inputs: RunInputs, context: RunContext) -> None:
        self._inputs, self._context = inputs, context
        self._loaded: dict[str, Any] | None = None
        context.data.renew, context.data.reload_as_saved = self.begin_epoch, self.reload_as_saved
        self._note()

    def load(self, checkpoint: dict[str, Any] | None, source: str | None) -> None:
        """Make the first loaders of the run, at once as in the epoch of its checkpoint if possible.

        It is not where something that comes before the restore may change them: then they are made
        here as in a new run, and again by `reload_as_saved`.

        Args:
            checkpoint: the checkpoint that the run resumes from, as far as is known now.
            source: its path.
        """
        inputs, context = self._inputs, self._context
        renewed = (checkpoint or {}).get("trainer_hooks", {}).get("renewed")
        if not renewed or source is None or context.data.stream is not None:
            load_data(inputs, context)
            return
        hooks = context.hooks
        users = [
            member
            for hook in ("on_before_load", "on_load_checkpoint", "on_before_restore")
            for member in hooks.implementers(hook)
            # an adapter is ours, and calls code of the user
            if not is_own_module(type(member).__module__) or hasattr(member, "guest")
        ]
        has_state = type(context.datamodule).__qualname__ in (checkpoint or {})
        if users or has_state or context.processes.is_distributed:
            load_data(inputs, context)
            return
        self._loaded = renewed
        self._make_as_saved(renewed, source, load_data)

    def begin_epoch(self) -> None:
        """Reload the loaders if it is due at this epoch's start."""
        context = self._context
        epoch = context.training.progress.epochs_completed
        is_due = epoch % context.plan.reload_dataloaders_every_n_epochs == 0
        if is_due and context.data.renewed["epoch"] != epoch:
            # before they are made: with this random state a resume makes the same loaders
            self._note()
            reload_data(self._inputs, context)

    def reload_as_saved(self, checkpoint: dict[str, Any], source: str) -> None:
        """Make the loaders as in the epoch in which those of a checkpoint were made.

        This comes before the checkpoint is restored, because the restore compares it with them.

        Args:
            checkpoint: the loaded checkpoint.
            source: its path, for messages.
        """
        renewed = checkpoint.get("trainer_hooks", {}).get("renewed")
        # by identity: a hook may have chosen another checkpoint since
        if not renewed or renewed is self._loaded:
            return
        # the loaders are made from this state. The restore loads it once more, after all checks:
        # making loaders may have changed it, as a count of them
        restore_datamodule(self._context, checkpoint, source)
        self._make_as_saved(renewed, source, reload_data)

    def _make_as_saved(
        self,
        renewed: dict[str, Any],
        source: str,
        make: Callable[[RunInputs, RunContext], None],
    ) -> None:
        """Make the loaders with the epoch and the random state in which those saved were made."""
        context, progress = self._context, self._context.training.progress
        present, numbers = progress.epochs_completed, rng.capture()
        try:
            with restoring_part("renewed", source):
                # the user's methods may make other loaders in another epoch
                progress.epochs_completed = int(renewed["epoch"])
                rng.restore(renewed["rng"])
            make(self._inputs, context)
        finally:
            progress.epochs_completed = present
            rng.restore(numbers)

    def _note(self) -> None:
        epoch = self._context.training.progress.epochs_completed
        self._context.data.renewed = {"epoch": epoch, "rng": rng.capture()}
