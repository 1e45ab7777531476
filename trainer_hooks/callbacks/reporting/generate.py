"""Generate: log the output of a generative module for some prompts, at an interval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks._options import Combination, option_rules, whole_number
from trainer_hooks.callbacks.base import ScheduledCallback, is_real_fit
from trainer_hooks.clock.schedules import When, parse_when
from trainer_hooks.clock.timing import TimeUnit
from trainer_hooks.errors import ModuleError
from trainer_hooks.hooks.spec import keeps_optimizers
from trainer_hooks.runtime import rng
from trainer_hooks.runtime.modes import evaluation_mode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

_WHERE = "Generate"


def _are_texts(prompts: object) -> bool:
    """Return whether prompts are a text or a list of texts that is not empty."""
    texts = [prompts] if isinstance(prompts, str) else prompts
    is_list = isinstance(texts, list | tuple) and bool(texts)
    return is_list and all(isinstance(prompt, str) for prompt in texts)  # type: ignore[attr-defined]


class Generate(ScheduledCallback):
    """Log the module's generations for some prompts, at an interval, as a table `generations`.

    It calls `module.generate(inputs, **generate_kwargs)` in evaluation mode and without gradients.
    The inputs are the prompts of one batch. If the module has a `tokenizer` as those of
    transformers, the prompts go through it, `generate` is called with its result as keyword
    arguments, and `tokenizer.batch_decode` turns the generations into texts, one for each prompt;
    without one, `generate` takes the list of prompts and returns as many texts. The random state is
    restored afterwards, so the training goes on as it would without. It is called outside autocast.

    Args:
        prompts: the texts to start from; a single text is one prompt.
        interval: a time such as `"500ba"` or `"1ep"`, a number of epochs, a filter, or a function
            of `trainer.clock` that returns whether to generate.
        batch_size: the number of prompts for one call of `generate`; by default all.
        **generate_kwargs: further arguments of `generate`.

    Raises:
        OptionError: an argument is outside its rule.
        ModuleError: in a run, the module has no `generate`, or it returned another number of texts.

    State: the clock's counts at the last check of the interval.

    Example::

        module.generate = lambda prompts, end="!": [prompt + end for prompt in prompts]
        shown = Generate(["Hello", "Good day"], "1ep", batch_size=1, end="?")
        trainer = Trainer(max_epochs=2, callbacks=[shown])
        trainer.fit(module, train_loader)
    """

    @option_rules(
        Combination(
            ("prompts",),
            _are_texts,
            "they must be texts. Pass one or a list of them.",
            "prompts {prompts!r} of {owner}",
        ),
        batch_size=whole_number(1).unless(None),
    )
    def __init__(
        self,
        prompts: str | Sequence[str],
        interval: When | int,
        batch_size: int | None = None,
        **generate_kwargs: Any,
    ) -> None:
        self.prompts = (prompts,) if isinstance(prompts, str) else tuple(prompts)
        self.interval = parse_when(interval, "interval", _WHERE, bare=TimeUnit.EPOCH)
        self.batch_size = batch_size
        self.generate_kwargs = generate_kwargs
        super().__init__(self.interval)

    @property
    def state_key(self) -> str:
        """The class name with the interval and the prompts."""
        return self._generate_state_key(interval=repr(self.interval), prompts=list(self.prompts))

    @keeps_optimizers
    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Check that the module has a `generate`, before anything is trained."""
        if not callable(getattr(module, "generate", None)):
            raise ModuleError(
                f"module {type(module).__qualname__} of {_WHERE}: it must have a method "
                "generate(inputs, **generate_kwargs). Write one, or leave the callback out."
            )
        super().on_fit_start(trainer, module)

    def on_batch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Generate after a batch, or after an epoch and its validation, if that is due."""
        if not self._is_due(trainer) or not is_real_fit(trainer):
            return
        size = self.batch_size or len(self.prompts)
        rows: list[list[str]] = []
        # isolated: sampling must not change the random numbers of the training
        with rng.isolated(), evaluation_mode(module):
            for first in range(0, len(self.prompts), size):
                prompts = list(self.prompts[first : first + size])
                rows += map(list, zip(prompts, self._texts(module, prompts), strict=True))
        step = trainer.progress.batches_stepped
        for logger in trainer.loggers:
            logger.log_table("generations", ["prompt", "generation"], rows, step=step)

    on_epoch_checkpoint = on_batch_checkpoint

    def _texts(self, module: Any, prompts: list[str]) -> list[str]:
        """Return the module's generations for some prompts."""
        tokenizer = getattr(module, "tokenizer", None)
        if tokenizer is None:
            generations = module.generate(prompts, **self.generate_kwargs)
        else:
            # padding: prompts of different lengths make one batch
            tokens = tokenizer(prompts, return_tensors="pt", padding=True)
            inputs = {name: value.to(module.device) for name, value in tokens.items()}
            sequences = module.generate(**inputs, **self.generate_kwargs)
            generations = tokenizer.batch_decode(sequences, skip_special_tokens=True)
        texts = [str(text) for text in generations]
        if len(texts) != len(prompts):
            raise ModuleError(
                f"{len(texts)} generations of {type(module).__qualname__} for {len(prompts)} "
                f"prompts of {_WHERE}: there must be one for each. Return as many."
            )
        return texts
