"""A loop by `Run` that does what `Trainer.fit` does, for tests that compare the two."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from torch import Tensor

from trainer_hooks import Run
from trainer_hooks.loops.module_steps import build_evaluation_step, build_training_step
from trainer_hooks.trainer.own_loop import LoopTrainer

if TYPE_CHECKING:
    from trainer_hooks import Module, Trainer


def due_every(interval: int | float, train: Any) -> int | float:
    """Return `val_check_interval` as a number of batches, or infinity for the epoch's end alone."""
    if isinstance(interval, int):
        return interval
    return math.inf if interval == 1.0 else max(1, int(len(train) * interval))


def fit_by_run(
    module: Module,
    train: Any,
    val: Any = None,
    *,
    callbacks: Any = (),
    ckpt_path: Any = None,
    is_known: bool = True,
    **options: Any,
) -> Trainer:
    """Train a module by a loop of `Run` as fit would, and return the trainer of its hooks.

    Args:
        module: the module, whose steps are called in the loop.
        train: the training loader.
        val: the validation loader, or a list of them.
        callbacks: the callbacks.
        ckpt_path: the checkpoint to resume from.
        is_known: whether `Run` is given the training loader, so that its length is known early.
        options: the Trainer's options.
    """
    run, train_all = run_like_fit(
        module, train, val, callbacks=callbacks, ckpt_path=ckpt_path, is_known=is_known, **options
    )
    train_all()
    return run.trainer


def run_like_fit(
    module: Module,
    train: Any,
    val: Any = None,
    *,
    is_known: bool = True,
    run_class: type[Run] = Run,
    **options: Any,
) -> tuple[Run, Any]:
    """Return a `Run`, and the function that trains with it as fit would."""
    interval = options.pop("val_check_interval", 1.0)
    every_n = options.pop("check_val_every_n_epoch", 1)
    options.pop("num_sanity_val_steps", None)
    # a list of batches is one loader
    is_several = isinstance(val, list) and not isinstance(val[0], Tensor)
    loaders = [] if val is None else val if is_several else [val]
    run = run_class(module, train_dataloaders=train if is_known else None, **options)
    steps: dict[str, Any] = {}

    def validate() -> None:
        with run.validation(num_dataloaders=len(loaders)):
            for index, loader in enumerate(loaders):
                for number, batch in enumerate(run.batches(loader)):
                    extra = (index,) if len(loaders) > 1 else ()
                    run.output(steps["validate"](batch, number, *extra))

    def train_all() -> None:
        every = due_every(interval, train)
        with run:
            context = run.trainer._core.context
            # those of a module that has a forward and a loss alone, too
            steps["train"] = build_training_step(context)
            if loaders:
                # its signature depends on their number, and the run gets them later
                known = context.data.evaluation["validate"].loaders
                known.extend(loaders)
                steps["validate"] = build_evaluation_step(context, "validate", context.hooks)
                known.clear()
            for epoch in run.epochs():
                is_chosen = every_n is None or (epoch + 1) % every_n == 0
                for batch in run.batches(train):
                    returned = steps["train"](batch, run.progress.batches_in_epoch)
                    loss = returned["loss"] if isinstance(returned, dict) else returned
                    if loss is None:
                        continue
                    run.backward(loss)
                    run.step()
                    if isinstance(returned, dict):
                        run.output({k: v for k, v in returned.items() if k != "loss"})
                    counters = run.progress
                    count = counters.batches_in_epoch if every_n else counters.batches_completed
                    if loaders and is_chosen and (count + 1) % every == 0:
                        validate()
                stops = run.trainer.should_stop
                at_end = every == math.inf or stops
                is_done = run.progress.validated_at == run.progress.batches_completed
                if loaders and is_chosen and at_end and not is_done:
                    validate()

    return run, train_all


class TrainerByRun(LoopTrainer):
    """A trainer whose `fit` is a loop by `Run`, for tests that make a Trainer and call fit."""

    def __init__(self, **options: Any) -> None:
        self._interval = options.pop("val_check_interval", None) or 1.0
        self._every_n = options.pop("check_val_every_n_epoch", 1)
        super().__init__(**{**options, "num_sanity_val_steps": 0})

    def fit(  # type: ignore[override]
        self,
        model: Module,
        train_dataloaders: Any = None,
        val_dataloaders: Any = None,
        datamodule: Any = None,
        ckpt_path: Any = None,
    ) -> None:
        """Train by a loop of Run that does what fit does."""
        by_this_trainer = type(
            "RunOfThisTrainer", (Run,), {"trainer_class": staticmethod(lambda **_: self)}
        )
        makes = datamodule or model
        train = train_dataloaders if train_dataloaders is not None else makes.train_dataloader()
        val = val_dataloaders
        if val is None and hasattr(makes, "val_dataloader"):
            val = makes.val_dataloader()
        _, train_all = run_like_fit(
            model, train, val, run_class=by_this_trainer, ckpt_path=ckpt_path,
            val_check_interval=self._interval, check_val_every_n_epoch=self._every_n,
        )  # fmt: skip
        train_all()
