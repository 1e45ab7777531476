"""Former module of `TrainerCallback`, which is in `trainer_hooks.compat.accelerated` now."""

from __future__ import annotations

from trainer_hooks._lazy import loader_of

__getattr__ = loader_of(__name__, {}, moved={"TrainerCallback": "trainer_hooks.compat.accelerated"})
