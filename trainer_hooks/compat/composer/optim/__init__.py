"""Composer's optimizers and schedulers."""

from __future__ import annotations

from trainer_hooks.compat.composer.optim.compiling import compile_composer_scheduler
from trainer_hooks.compat.composer.optim.decoupled import DecoupledAdamW, DecoupledSGDW
from trainer_hooks.compat.composer.optim.scheduler import (
    ComposerScheduler,
    ConstantScheduler,
    CosineAnnealingScheduler,
    CosineAnnealingWarmRestartsScheduler,
    ExponentialScheduler,
    LinearScheduler,
    MultiStepScheduler,
    PolynomialScheduler,
    StepScheduler,
)
from trainer_hooks.compat.composer.optim.warmup import (
    ConstantWithWarmupScheduler,
    CosineAnnealingWithWarmupScheduler,
    LinearWithWarmupScheduler,
    MultiStepWithWarmupScheduler,
    PolynomialWithWarmupScheduler,
)

__all__ = [
    "ComposerScheduler",
    "ConstantScheduler",
    "ConstantWithWarmupScheduler",
    "CosineAnnealingScheduler",
    "CosineAnnealingWarmRestartsScheduler",
    "CosineAnnealingWithWarmupScheduler",
    "DecoupledAdamW",
    "DecoupledSGDW",
    "ExponentialScheduler",
    "LinearScheduler",
    "LinearWithWarmupScheduler",
    "MultiStepScheduler",
    "MultiStepWithWarmupScheduler",
    "PolynomialScheduler",
    "PolynomialWithWarmupScheduler",
    "StepScheduler",
    "compile_composer_scheduler",
]
