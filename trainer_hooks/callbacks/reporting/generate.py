"""Generate: show what a generative module makes of given prompts, as it learns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks.callbacks.monitoring import check_count, is_training
from trainer_hooks.callbacks.on_cue import OnCue
from trainer_hooks.clock import TimeUnit, When, parse_when
from trainer_hooks.errors import ModuleError, OptionError
from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["Generate"]

_WHERE = "Generate"
_COLUMNS = ["prompt", "generation"]


class Generate(OnCue):
    """Log what the module generates for some prompts, at an interval, as a table `generations`.

    It calls `module.generate(inputs, **generate_kwargs)` in evaluation mode and without gradients.
    The inputs are the prompts of one batch. If the module has a `tokenizer` as those of
    transformers, they go through it, `generate` is called with what it returns as keywords, and
    `tokenizer.batch_decode` makes texts of the result, one for each prompt; without one,
    `generate` takes the list of prompts and returns as many texts. Random numbers that are drawn
    are put back, so the training goes on as it would without. It is called outside autocast.

    Args:
        prompts: the texts to start from; one may stand alone.
        interval: a time such as `"500ba"` or `"1ep"`, a number of epochs, a filter, or a function
            of `trainer.clock` that returns whether to generate.
        batch_size: how many prompts are given to `generate` at once; by default all.
        **generate_kwargs: handed to `generate`.

    Raises:
        OptionError: an argument is outside its rule.
        ModuleError: in a run, the module has no `generate`, or it returned another number of texts.

    State: the counts when it last looked whether it is due.

    Example::

        module.generate = lambda prompts, end="!": [prompt + end for prompt in prompts]
        shown = Generate(["Hello", "Good day"], "1ep", batch_size=1, end="?")
        trainer = Trainer(max_epochs=2, callbacks=[shown])
        trainer.fit(module, train_loader)
    """

    def __init__(
        self,
        prompts: str | Sequence[str],
        interval: When | int,
        batch_size: int | None = None,
        **generate_kwargs: Any,
    ) -> None:
        several = [prompts] if isinstance(prompts, str) else prompts
        is_list = isinstance(several, list | tuple) and bool(several)
        if not is_list or not all(isinstance(prompt, str) for prompt in several):
            raise OptionError(
                f"prompts {prompts!r} of {_WHERE}: they must be texts. Pass one or a list of them."
            )
        self.prompts = tuple(several)
        self.interval = parse_when(interval, "interval", _WHERE, bare=TimeUnit.EPOCH)
        if batch_size is not None:
            check_count("batch_size", batch_size, _WHERE, least=1)
        self.batch_size = batch_size
        self.generate_kwargs = generate_kwargs
        super().__init__(self.interval)

    @property
    def state_key(self) -> str:
        """The class with its interval and prompts."""
        return self._generate_state_key(interval=repr(self.interval), prompts=list(self.prompts))

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Make sure that the module can generate, before anything is trained."""
        if not callable(getattr(module, "generate", None)):
            raise ModuleError(
                f"module {type(module).__qualname__} of {_WHERE}: it must have a method "
                "generate(inputs, **generate_kwargs). Write one, or leave the callback out."
            )
        super().on_fit_start(trainer, module)

    def on_batch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Generate after a batch, if that is due."""
        self._generate_if_due(trainer, module)

    def on_epoch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Generate after an epoch and its validation, if that is due."""
        self._generate_if_due(trainer, module)

    def _generate_if_due(self, trainer: Trainer, module: Module) -> None:
        if not self._cue.is_due(trainer.clock) or not is_training(trainer):
            return
        size = self.batch_size or len(self.prompts)
        rows: list[list[str]] = []
        with rng.isolated(), torch.no_grad(), _Evaluating(module):
            for first in range(0, len(self.prompts), size):
                prompts = list(self.prompts[first : first + size])
                rows += [
                    list(pair) for pair in zip(prompts, self._texts(module, prompts), strict=True)
                ]
        step = trainer.progress.batches_stepped
        for logger in trainer.loggers:
            logger.log_table("generations", list(_COLUMNS), rows, step=step)

    def _texts(self, module: Any, prompts: list[str]) -> list[str]:
        """Return what the module makes of some prompts."""
        tokenizer = getattr(module, "tokenizer", None)
        if tokenizer is None:
            found = module.generate(prompts, **self.generate_kwargs)
        else:
            tokens = tokenizer(prompts, return_tensors="pt", padding=True)
            inputs = {name: value.to(module.device) for name, value in tokens.items()}
            made = module.generate(**inputs, **self.generate_kwargs)
            found = tokenizer.batch_decode(made, skip_special_tokens=True)
        texts = [str(text) for text in found]
        if len(texts) != len(prompts):
            raise ModuleError(
                f"{len(texts)} generations of {type(module).__qualname__} for {len(prompts)} "
                f"prompts of {_WHERE}: there must be one for each. Return as many."
            )
        return texts


class _Evaluating:
    """Put a module into evaluation mode for a while, and each part back as it was."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._modes: Iterable[tuple[torch.nn.Module, bool]] = [
            (part, part.training) for part in module.modules()
        ]
        self._module = module

    def __enter__(self) -> None:
        self._module.eval()

    def __exit__(self, *error: object) -> None:
        for part, mode in self._modes:
            part.training = mode
