"""Job: what an entry point was asked to do, and the data that it is to do it with."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from trainer_hooks import data as loading
from trainer_hooks._log import warn
from trainer_hooks.connector import adopted
from trainer_hooks.context import EvalData
from trainer_hooks.data import (
    TrainStream,
    as_eval_loaders,
    as_train_loader,
    defines,
    limited,
    number_of_batches,
    shown,
    without_shuffling,
)
from trainer_hooks.errors import DataError, ModuleError, TrainerHooksWarning, foreign_hint
from trainer_hooks.loops import has_evaluation
from trainer_hooks.module import DataModule, Module, uncompiled

if TYPE_CHECKING:
    from trainer_hooks.context import RunContext

__all__ = ["Job", "check_kinds", "load_data", "load_training", "reload_data"]

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
class Job:
    """What an entry point was asked to do.

    Attributes:
        fn: `"fit"`, `"validate"`, `"test"` or `"predict"`.
        module: the module.
        datamodule: the data module, or None.
        train: the training loaders given, or None.
        evaluation: the loaders given for evaluation, or None.
        ckpt_path: the checkpoint to start from, or None.
        overrides: options of optimizers that this run decides on, not the checkpoint.
        keeps_predictions: whether predict returns them.
        compiled: what `torch.compile(module)` returned, if that was given; None otherwise.
    """

    fn: str
    module: Any
    datamodule: Any = None
    train: Any = None
    evaluation: Any = None
    ckpt_path: str | None = None
    keeps_predictions: bool = True
    overrides: frozenset[str] = frozenset()
    compiled: Any = None

    def in_place(self) -> Job:
        """Return the same job, with a compiled module and a data module among loaders in place.

        In the place of a module or data module of another framework is what stands for it.
        """
        job = self._adopted()
        module = uncompiled(job.module)
        if module is not job.module:
            job = replace(job, module=module, compiled=job.module)
        if job.datamodule is None and isinstance(job.train, DataModule) and job.evaluation is None:
            return replace(job, datamodule=job.train, train=None)
        if job.datamodule is None and isinstance(job.evaluation, DataModule) and job.fn != "fit":
            return replace(job, datamodule=job.evaluation, evaluation=None)
        return job

    def _adopted(self) -> Job:
        changed = {}
        for name, given, kind in (
            ("module", self.module, Module),
            ("datamodule", self.datamodule, DataModule),
            ("train", self.train, DataModule),
            ("evaluation", self.evaluation, DataModule),
        ):
            # loaders are of many frameworks, and none of them prepares data
            is_loader = kind is DataModule and not callable(getattr(given, "prepare_data", None))
            if given is None or is_loader:
                continue
            stand_in = adopted(given, kind)
            if stand_in is not given:
                changed[name] = stand_in
        return replace(self, **changed) if changed else self

    @property
    def makes_loaders(self) -> bool:
        """Whether the loaders that it is about come from a module or data module."""
        return (self.train if self.fn == "fit" else self.evaluation) is None


def check_kinds(job: Job) -> None:
    """Make sure that a job is about a module and a data module."""
    if isinstance(job.module, type) or not isinstance(job.module, Module):
        kind = job.module if isinstance(job.module, type) else type(job.module)
        hint = " It is a class: pass an instance." if kind is job.module else ""
        hint += foreign_hint(kind, "Module")
        raise ModuleError(
            f"{job.fn} was given {type(job.module).__qualname__} {str(job.module)[:60]!r} as its "
            f"model: it must be an instance of trainer_hooks.Module.{hint}"
        )
    evaluated = "val_dataloaders" if job.fn == "fit" else "dataloaders"
    for name, given in (("train_dataloaders", job.train), (evaluated, job.evaluation)):
        if isinstance(given, DataModule):
            raise DataError(
                f"{job.fn} was given a DataModule as {name}, and other data beside it: pass it "
                "alone, as datamodule= or in the second place."
            )
        if given is not None and job.datamodule is not None:
            raise DataError(
                f"{job.fn} was given both {name}= and datamodule=: it must be one of them."
            )
    if job.datamodule is not None and not isinstance(job.datamodule, DataModule):
        kind = type(job.datamodule)
        raise DataError(
            f"{job.fn} was given {kind.__qualname__} as datamodule: it must be an instance of "
            f"trainer_hooks.DataModule.{foreign_hint(kind, 'DataModule')}"
        )


def load_data(job: Job, context: RunContext) -> None:
    """Find a run's loaders, and say so if there are none.

    Raises:
        DataError: there is nothing to run, or a loader that has no batch.
    """
    if job.fn != "fit":
        context.data.evaluation[job.fn] = _evaluation(job, context, job.fn)
        if not context.data.evaluation[job.fn]:
            raise DataError(
                f"{job.fn} has nothing to run: its loaders give no batch, or "
                f"{_LIMITS[job.fn]} is 0. Check the data set's length and the limit."
            )
        return
    if context.data.stream is None:
        load_training(job, context)
    context.data.evaluation["validate"] = EvalData()
    context.data.evaluation["validate"] = _validation(job, context)


def load_training(job: Job, context: RunContext) -> None:
    """Find a fit's training loader.

    Raises:
        DataError: there is none, or it has no batch.
    """
    source = _source(job, "train_dataloader", job.train)
    if source is None:
        raise DataError(
            "fit was given no training data: pass train_dataloaders=, a datamodule= with "
            f"train_dataloader(), or define {type(job.module).__qualname__}.train_dataloader()."
        )
    loader = as_train_loader(source)
    if context.plan.overfit_batches:
        loader = without_shuffling(loader)
    loader = _share(context, loader, trains=True)
    if number_of_batches(loader) == 0:
        raise DataError(
            f"the training loader {shown(loader)} gives no batch: check the data set's length, and "
            "drop_last with a data set smaller than one batch."
        )
    plan = context.plan
    option = "overfit_batches" if plan.overfit_batches else "limit_train_batches"
    context.data.stream = TrainStream(loader, plan.limit_train_batches, option)
    if context.processes.is_several:
        _agree_on_length(context)


def _validation(job: Job, context: RunContext) -> EvalData:
    """Return the loaders of a fit's validations, if there are any."""
    if context.plan.limit_val_batches == 0 and job.evaluation is None:
        return EvalData()  # the loaders may not even be there
    if has_evaluation(job.module, "validate"):
        return _evaluation(job, context, "validate")
    if job.evaluation is not None:
        warn(
            f"fit was given val_dataloaders, but {type(job.module).__qualname__} has no "
            "validation_step, so nothing is validated: define it, or leave the loaders out.",
            TrainerHooksWarning,
        )
    return EvalData()


def reload_data(job: Job, context: RunContext) -> None:
    """Let the module or data module make a run's loaders anew; a fit takes them up as it can.

    Those that were passed to the run stay.

    Raises:
        DataError: there is nothing to run, or a loader that has no batch.
    """
    if job.fn != "fit":
        before = context.data.evaluation[job.fn]
        load_data(job, context)
        before.replace(context.data.evaluation[job.fn])
        context.data.evaluation[job.fn] = before
        return
    if job.train is None:
        load_training(job, context)
    if job.evaluation is None:
        context.data.evaluation["validate"].replace(_validation(job, context))


def _evaluation(job: Job, context: RunContext, stage: str) -> EvalData:
    source = _source(job, _LOADERS[stage], job.evaluation)
    if source is None:
        if job.fn == "fit":
            return EvalData()
        raise DataError(
            f"{stage} was given no data: pass dataloaders=, a datamodule= with "
            f"{_LOADERS[stage]}(), or define "
            f"{type(job.module).__qualname__}.{_LOADERS[stage]}()."
        )
    evaluators = loading.evaluators_in(source)
    given = source
    if evaluators:
        given = source = [evaluator.dataloader for evaluator in evaluators]
    loaders, option = as_eval_loaders(source, stage), _LIMITS[stage]
    limit = getattr(context.plan, option)
    if context.plan.overfit_batches and stage == "validate":
        loaders, option = [without_shuffling(item) for item in loaders], "overfit_batches"
    loaders = [_share(context, item, trains=False) for item in loaders]
    sizes = [number_of_batches(item) for item in loaders]
    for position, size in enumerate(sizes):
        if context.processes.is_several:
            break  # the share of one process may be empty
        if size == 0 and (any(sizes) or job.fn == "fit"):
            warn(
                f"{stage} loader {position}, {loaders[position]!r}, has no batch: it is left "
                "out. Check its data set's length, and drop_last.",
                TrainerHooksWarning,
            )
    counts = [limited(size, limit, option) for size in sizes]
    for place, evaluator in enumerate(evaluators):
        if (evaluator.subset_num_batches or -1) > 0:
            counts[place] = min(counts[place], evaluator.subset_num_batches or 0)
    if context.processes.is_several:
        return _eval_data_of_all(context, EvalData(loaders, counts, evaluators, given=given))
    return EvalData(loaders, counts, evaluators, given=given)


def _share(context: RunContext, loader: Any, *, trains: bool) -> Any:
    """Return this process's share of a loader, if there are several and it is to be shared."""
    if not context.processes.is_several or not context.plan.shares_loaders:
        return loader
    return loading.shared(loader, context.processes.data_topology, trains=trains)


def _agree_on_length(context: RunContext) -> None:
    """Let all processes have as many training batches, or be told of each whether it is the last.

    Raises:
        DataError: some know how many batches they have, and others do not.
    """
    stream = context.data.stream
    assert stream is not None
    sizes = context.processes.gather(stream.num_batches)
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


def _eval_data_of_all(context: RunContext, data: EvalData) -> EvalData:
    """Return the loaders of an evaluation by several processes, of which some may have less."""
    counts = context.processes.gather(data.num_batches)
    if len({len(one) for one in counts}) > 1:
        raise DataError(
            f"the processes have {[len(one) for one in counts]} loaders for an evaluation: all "
            "must have as many."
        )
    columns = list(zip(*counts, strict=True))
    data.most = [max(column) for column in columns]
    data.fewest = [0 if math.inf in column else min(column) for column in columns]
    return data


def _source(job: Job, name: str, given: Any) -> Any:
    """Return what was passed, or what the data module or the module has under `name`."""
    if given is not None:
        return given
    for owner in (job.datamodule, job.module):
        if owner is not None and defines(owner, name):
            return getattr(owner, name)()
    return None
