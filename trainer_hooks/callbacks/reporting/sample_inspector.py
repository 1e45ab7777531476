"""SampleInspector: log the first samples that the model receives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from trainer_hooks._files import replace_file
from trainer_hooks._options import (
    Combination,
    Rule,
    check_choices,
    is_number,
    one_of,
    option_rules,
    whole_number,
)
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.base import evaluation_stage
from trainer_hooks.callbacks.reporting.sample_images import (
    KEY,
    describe_sample,
    is_image,
    pick_part,
    to_image,
    write_png,
)
from trainer_hooks.checkpoint.paths import is_remote
from trainer_hooks.connector.state_types import checks_state
from trainer_hooks.errors import DataError
from trainer_hooks.hooks.spec import keeps_optimizers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trainer_hooks.callbacks.reporting.sample_images import Key
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

_WHERE = "SampleInspector"
_STAGES = ("train", "validate", "test", "predict")
_TEXTS_ARE_DECODED = "texts, and they alone, are decoded. Pass both, or leave one out."
_CHANNEL_NUMBERS = Rule(
    "a finite number, or one for each channel",
    lambda values: (
        is_number(values)
        or (isinstance(values, list | tuple) and bool(values) and all(map(is_number, values)))
    ),
    "Pass them as they were used to normalize.",
).unless(None)
"""The rule for means and deviations."""


class SampleInspector(Callback):
    """Log the first samples that the model receives, as images or texts.

    Wrong colours, wrong labels, a normalization that is done twice, texts that are cut: most
    mistakes with data can be seen in a few samples. They are taken from the first batches of each
    stage as they are on the device, after all transformations of batches, so they are the model's
    inputs and not the content of the files. When there are enough, no batch is looked at any more.

    All loggers get them (`log_image`, `log_text` or `log_table`), and `samples/` in the log folder:
    images as PNG files, and `samples/samples.json` with captions and texts, which
    `trainer-hooks report` shows.

    Samples of shape (C, H, W) with 1, 3 or 4 channels count as images, and any samples as texts if
    `decode` is given; of all else the shape, type and range are shown. Colours beyond 0 to 1 are
    rescaled to that range, and the caption says so.

    Args:
        max_samples: the number of samples of each stage.
        stages: one or more of `"train"`, `"validate"`, `"test"` and `"predict"`. The sanity check
            does not count as validation.
        inputs: the location of the inputs in a batch: a key, an index, or a function of the batch;
            the first tensor unless given.
        targets: the location of the targets, for the captions, likewise. None to leave them out.
        mean: means of the channels that were subtracted, to be added again.
        std: deviations of the channels that were divided by, to be multiplied by again.
        decode: returns the text of one sample, such as `tokenizer.decode`.
        kind: `"image"`, `"text"` or `"values"`, where the samples' form does not show it.

    Attributes:
        taken: the number of samples of each stage that were shown.

    Raises:
        OptionError: an argument is outside its rule.
        DataError: in a run, a batch has no part at that location.
        UsageError: pillow, which writes the images, is not installed.

    State: the number of samples of each stage that were shown; a resumed run shows the rest.

    Example::

        inspector = SampleInspector(max_samples=4, targets=1)
        trainer = Trainer(max_epochs=2, callbacks=[inspector])
        trainer.fit(module, train_loader, val_loader)
        print(inspector.taken)
    """

    @option_rules(
        *(
            Combination(
                (given, other),
                lambda value, other_value: value is None or other_value is not None,
                f"a normalization has both. Pass {other}, too.",
                f"{given} of {{owner}} without {other}",
            )
            for given, other in (("mean", "std"), ("std", "mean"))
        ),
        Combination(
            ("kind", "decode"),
            lambda kind, decode: kind != "text" or decode is not None,
            _TEXTS_ARE_DECODED,
            "kind {kind!r} of {owner} without decode",
        ),
        Combination(
            ("kind", "decode"),
            lambda kind, decode: kind in (None, "text") or decode is None,
            _TEXTS_ARE_DECODED,
            "kind {kind!r} of {owner} with decode",
        ),
        max_samples=whole_number(1),
        kind=one_of(None, "image", "text", "values"),
        inputs=KEY,
        targets=KEY,
        mean=_CHANNEL_NUMBERS,
        std=_CHANNEL_NUMBERS,
        decode=Rule(
            "a function that makes a text of one sample",
            callable,
            "Pass one, such as tokenizer.decode.",
        ).unless(None),
    )
    def __init__(
        self,
        max_samples: int = 8,
        stages: str | Sequence[str] = ("train", "validate"),
        inputs: Key = None,
        targets: Key = None,
        mean: float | Sequence[float] | None = None,
        std: float | Sequence[float] | None = None,
        decode: Callable[[Any], str] | None = None,
        kind: str | None = None,
    ) -> None:
        self.max_samples = max_samples
        self.stages = check_choices("stages", stages, _WHERE, _STAGES)
        self.inputs, self.targets = inputs, targets
        self.mean, self.std = _as_tuple(mean), _as_tuple(std)
        self.decode = decode
        self.kind = kind
        self.taken = dict.fromkeys(_STAGES, 0)

    def state_dict(self) -> dict[str, Any]:
        """Return the number of samples shown of each stage."""
        return {"taken": dict(self.taken)}

    @checks_state({"taken": dict[str, int]})
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the number of samples shown of each stage."""
        self.taken = {**dict.fromkeys(_STAGES, 0), **state_dict["taken"]}

    @keeps_optimizers
    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Reset the counts when a new training begins."""
        if trainer.progress.is_new_training:
            self.taken = dict.fromkeys(_STAGES, 0)

    def on_train_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int
    ) -> None:
        """Show samples of the first training batches."""
        self._show_missing_samples(trainer, "train", batch)

    def on_validation_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Show samples of the first batches of an evaluation, except for the sanity check."""
        if not trainer.sanity_checking:
            self._show_missing_samples(trainer, evaluation_stage(trainer), batch)

    on_test_batch_start = on_predict_batch_start = on_validation_batch_start

    def _show_missing_samples(self, trainer: Trainer, stage: str, batch: Any) -> None:
        """Show the samples of a batch that are still missing."""
        shown = self.taken[stage]
        if shown >= self.max_samples or stage not in self.stages or trainer.fast_dev_run:
            return
        inputs = pick_part(batch, self.inputs, "inputs", _WHERE)
        if inputs is None or not hasattr(inputs, "__len__"):
            raise DataError(
                f"inputs of {_WHERE}: a batch of type {type(batch).__name__} holds no tensor of "
                "several samples. Pass inputs=..., a key or a function of the batch."
            )
        targets = (
            None if self.targets is None else pick_part(batch, self.targets, "targets", _WHERE)
        )
        count = min(len(inputs), self.max_samples - shown)
        self.taken[stage] = shown + count
        # counted on all ranks, so that they agree when they are restored from rank 0's checkpoint
        if not trainer.is_global_zero:
            return
        captions = [f"{stage} {shown + number}" for number in range(count)]
        if targets is not None:
            captions = [
                f"{caption}, target {_short_text(targets[number])}"
                for number, caption in enumerate(captions)
            ]
        samples = [inputs[number] for number in range(count)]
        self._show(trainer, stage, shown, samples, captions)

    def _show(
        self, trainer: Trainer, stage: str, first: int, samples: list[Any], captions: list[str]
    ) -> None:
        """Write samples to the log folder, and log them."""
        root = trainer.log_dir or trainer.default_root_dir
        # pillow writes local files only; the loggers get the samples in any case
        folder = None if is_remote(root) else Path(root) / "samples"
        position = {"epoch": trainer.current_epoch, "step": trainer.global_step}
        entries: list[dict[str, Any]] = []
        images: list[Tensor] = []
        for number, (sample, caption) in enumerate(zip(samples, captions, strict=True)):
            entry: dict[str, Any] = {"caption": caption, **position}
            if self._form_of(sample) == "image":
                pixels, remark = to_image(sample, self.mean, self.std)
                entry["caption"] = captions[number] = f"{caption} ({remark})" if remark else caption
                entry["file"] = f"{stage}-{first + number}.png"
                images.append(pixels)
                if folder is not None:
                    folder.mkdir(parents=True, exist_ok=True)
                    write_png(pixels, folder / entry["file"])
            else:
                entry["text"] = str(self.decode(sample)) if self.decode else describe_sample(sample)
            entries.append({"stage": stage, "number": first + number, **entry})
        if folder is not None:
            _add_to_index(folder, entries)
        self._log(trainer, f"samples/{stage}", images, captions, entries)

    def _log(
        self,
        trainer: Trainer,
        key: str,
        images: list[Tensor],
        captions: list[str],
        entries: list[dict[str, Any]],
    ) -> None:
        step = trainer.progress.batches_stepped
        for logger in trainer.loggers:
            if images:
                logger.log_image(key, images, step, captions=captions)
            elif self.decode is not None:
                text = "\n\n".join(f"{entry['caption']}:\n{entry['text']}" for entry in entries)
                logger.log_text(key, text, step)
            else:
                rows = [[entry["caption"], entry["text"]] for entry in entries]
                logger.log_table(key, ["sample", "values"], rows, step=step)

    def _form_of(self, sample: Any) -> str:
        if self.kind is not None:
            return self.kind
        if self.decode is not None:
            return "text"
        return "image" if isinstance(sample, Tensor) and is_image(sample) else "values"


def _add_to_index(folder: Path, entries: list[dict[str, Any]]) -> None:
    """Add entries to the index of a folder, in place of earlier entries of the same samples."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "samples.json"
    earlier: list[dict[str, Any]] = []
    if path.is_file():
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:  # not written by this callback; the report shows the images without it
            content = []
        if isinstance(content, list):
            earlier = [item for item in content if isinstance(item, dict)]

    def identity(entry: dict[str, Any]) -> tuple[Any, Any]:
        return entry.get("stage"), entry.get("number")

    # a resumed run shows the samples again that it showed after its checkpoint
    new = {identity(entry) for entry in entries}
    remaining = [entry for entry in earlier if "stage" not in entry or identity(entry) not in new]
    replace_file(path, lambda file: json.dump([*remaining, *entries], file, indent=1))


def _short_text(target: Any) -> str:
    """Return a target as a short text; of a tensor with several elements the shape."""
    if isinstance(target, Tensor):
        return f"{target.item():g}" if target.numel() == 1 else f"of shape {tuple(target.shape)}"
    return str(target)[:100]


def _as_tuple(values: float | Sequence[float] | None) -> tuple[float, ...] | None:
    if values is None:
        return None
    return tuple(map(float, (values,) if isinstance(values, int | float) else values))
