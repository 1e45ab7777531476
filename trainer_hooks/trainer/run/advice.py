"""What is said once of a fit that is as it may be, and perhaps not as it was meant."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from torch.utils.data import DataLoader, RandomSampler

from trainer_hooks._log import warn
from trainer_hooks.data import shown
from trainer_hooks.errors import TrainerHooksAdvice

if TYPE_CHECKING:
    from trainer_hooks.context import RunContext
    from trainer_hooks.trainer.run.session import Session

__all__ = ["advise", "advise_on_shuffling"]


def advise(session: Session, context: RunContext) -> None:
    """Say what may not be meant of a fit that is about to begin; each thing once a trainer."""
    if session.is_trial or session.config.fast_dev_run:
        return
    for subject, advice in (
        ("length", _on_length(session, context)),
        ("logging", _on_logging(session, context)),
        ("modes", _on_modes(context)),
        ("hparams", _on_hparams(session)),
    ):
        if advice and subject not in session.advised:
            session.advised.add(subject)
            warn(advice, TrainerHooksAdvice)


def advise_on_shuffling(session: Session, context: RunContext) -> None:
    """Say that an evaluation draws its samples in a random order, once for each stage."""
    if session.is_trial:
        return
    for stage, data in context.data.evaluation.items():
        for loader in data.loaders:
            is_shuffled = isinstance(loader, DataLoader) and isinstance(
                loader.sampler, RandomSampler
            )
            if is_shuffled and stage not in session.advised:
                session.advised.add(stage)
                warn(
                    f"the {stage} loader {shown(loader)} draws its samples in a random order, so "
                    "that batches cannot be compared between two evaluations. Make it with "
                    "shuffle=False.",
                    TrainerHooksAdvice,
                )


def _on_length(session: Session, context: RunContext) -> str:
    config, plan = session.config, context.plan
    is_default = config.max_epochs is None and plan.max_epochs == config.plan().max_epochs >= 0
    if not is_default or plan.max_duration is not None or plan.max_steps >= 0:
        return ""
    return (
        f"no length of the training was given, so that it ends after {plan.max_epochs} epochs. Set "
        "Trainer(max_epochs=...), to -1 for no end."
    )


def _on_logging(session: Session, context: RunContext) -> str:
    stream, plan = context.data.stream, context.plan
    if not session.loggers or stream is None or stream.num_batches in (0, math.inf):
        return ""
    steps = math.ceil(stream.num_batches / plan.accumulate_grad_batches)
    if steps >= plan.log_every_n_steps:
        return ""
    return (
        f"an epoch has {steps} steps, and loggers are given single values every "
        f"{plan.log_every_n_steps}: some epochs have none. Set Trainer(log_every_n_steps=...) to "
        f"{steps} or less."
    )


def _on_modes(context: RunContext) -> str:
    module = context.module
    names = [
        name or type(module).__qualname__
        for name, part in module.named_modules()
        if not part.training
        and (part is module or any(p.requires_grad for p in part.parameters(recurse=False)))
    ]
    if not names:
        return ""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return (
        f"{', '.join(names[:3])}{more} will be trained in eval mode, in which dropout and batch "
        "statistics are off. Call train() on it before fit, or freeze it with "
        "requires_grad_(False)."
    )


def _on_hparams(session: Session) -> str:
    if not session.loggers or session.datamodule is None or session.module is None:
        return ""
    data, module = session.datamodule.logged_hparams or {}, session.module.logged_hparams or {}
    both = sorted(name for name in data if name in module and data[name] != module[name])
    if not both:
        return ""
    return (
        f"the hyperparameters {', '.join(map(repr, both))} have one value in the data module and "
        "another in the module, whose value the loggers are given. Rename them, or leave them out "
        "with save_hyperparameters(ignore=...) in one of the two."
    )
