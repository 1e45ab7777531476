"""SampleInspector: show what actually goes into the model."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from trainer_hooks._files import replace_file
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.monitoring import check_choice, check_count, check_several
from trainer_hooks.callbacks.reporting.sample_views import (
    check_key,
    described,
    is_picture,
    picked,
    picture,
    write_png,
)
from trainer_hooks.checkpoint import is_remote
from trainer_hooks.errors import DataError, OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trainer_hooks.callbacks.reporting.sample_views import Key
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["SampleInspector"]

_WHERE = "SampleInspector"
_STAGES = ("train", "validate", "test", "predict")
_KINDS = (None, "image", "text", "values")


class SampleInspector(Callback):
    """Show the first samples that the model is given, as pictures or texts.

    Wrong colours, wrong labels, a normalization that is done twice, texts that are cut: most of
    what goes wrong with data can be seen in a few samples. They are taken from the first batches of
    each stage as they are on the device, after everything that changes batches, so it is what the
    model is given and not what the files hold. When there are enough, nothing is looked at any
    more.

    They go to all loggers (`log_image`, `log_text` or `log_table`), and to `samples/` in the log
    folder: pictures as PNG files, and `samples/samples.json` with captions and texts, which
    `trainer-hooks report` shows.

    A batch is taken for pictures if its samples are of shape (C, H, W) with 1, 3 or 4 channels, for
    texts if `decode` is given; of anything else the shape, type and range are told. Colours beyond
    0 to 1 are stretched to that, and the caption says so.

    Args:
        max_samples: how many samples of each stage.
        stages: of `"train"`, `"validate"`, `"test"` and `"predict"` those to look at. The sanity
            check counts as no validation.
        inputs: where the inputs lie in a batch: a key, an index, or a function of the batch; the
            first tensor unless given.
        targets: where the targets lie, for the captions; likewise. None to leave them out.
        mean: means of the channels that were subtracted, to be added again.
        std: deviations of the channels that were divided by, to be multiplied by again.
        decode: makes a text of one sample, such as `tokenizer.decode`.
        kind: `"image"`, `"text"` or `"values"`, where it is not seen by itself.

    Attributes:
        taken: how many samples of each stage were shown.

    Raises:
        OptionError: an argument is outside its rule.
        DataError: in a run, a batch has nothing at the place that was given.
        UsageError: pillow, which writes the pictures, is not installed.

    State: how many samples of each stage were shown, so that a resumed run shows the rest.

    Example::

        inspector = SampleInspector(max_samples=4, targets=1)
        trainer = Trainer(max_epochs=2, callbacks=[inspector])
        trainer.fit(module, train_loader, val_loader)
        print(inspector.taken)
    """

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
        self.max_samples = check_count("max_samples", max_samples, _WHERE, least=1)
        self.stages = check_several("stages", stages, _WHERE, _STAGES)
        self.inputs = check_key("inputs", inputs, _WHERE)
        self.targets = check_key("targets", targets, _WHERE)
        self.mean, self.std = _check_channels("mean", mean), _check_channels("std", std)
        if (mean is None) != (std is None):
            given, other = ("mean", "std") if std is None else ("std", "mean")
            raise OptionError(
                f"{given} of {_WHERE} without {other}: a normalization has both. Pass {other}, too."
            )
        if decode is not None and not callable(decode):
            raise OptionError(
                f"decode {decode!r} of {_WHERE}: it must be a function that makes a text of one "
                "sample. Pass one, such as tokenizer.decode."
            )
        self.decode = decode
        self.kind: str | None = check_choice("kind", kind, _WHERE, _KINDS)
        if (kind == "text") != (decode is not None) and (kind is not None):
            raise OptionError(
                f"kind {kind!r} of {_WHERE} {'with' if decode else 'without'} decode: texts, and "
                "they alone, are decoded. Pass both, or leave one out."
            )
        self.taken = dict.fromkeys(_STAGES, 0)

    def state_dict(self) -> dict[str, Any]:
        """Return how many samples were shown."""
        return {"taken": dict(self.taken)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take it back."""
        self.taken = {**dict.fromkeys(_STAGES, 0), **state_dict["taken"]}

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Begin anew with a new training."""
        if trainer.progress.is_fresh:
            self.taken = dict.fromkeys(_STAGES, 0)

    def on_train_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int
    ) -> None:
        """Show samples of the first training batches."""
        self._look(trainer, "train", batch)

    def on_validation_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Show samples of the first validation batches."""
        if not trainer.sanity_checking:
            self._look(trainer, "validate", batch)

    def on_test_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Show samples of the first test batches."""
        self._look(trainer, "test", batch)

    def on_predict_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Show samples of the first batches to predict."""
        self._look(trainer, "predict", batch)

    def _look(self, trainer: Trainer, stage: str, batch: Any) -> None:
        """Show what of a batch is still wanted."""
        before = self.taken[stage]
        if before >= self.max_samples or stage not in self.stages or trainer.fast_dev_run:
            return
        inputs = picked(batch, self.inputs, "inputs", _WHERE)
        if inputs is None or not hasattr(inputs, "__len__"):
            raise DataError(
                f"inputs of {_WHERE}: a batch of type {type(batch).__name__} holds no tensor of "
                "several samples. Pass inputs=..., a key or a function of the batch."
            )
        targets = None if self.targets is None else picked(batch, self.targets, "targets", _WHERE)
        count = min(len(inputs), self.max_samples - before)
        self.taken[stage] = before + count
        if not trainer.is_global_zero:
            return
        captions = [f"{stage} {before + number}" for number in range(count)]
        if targets is not None:
            captions = [
                f"{caption}, target {_short(targets[number])}"
                for number, caption in enumerate(captions)
            ]
        samples = [inputs[number] for number in range(count)]
        self._show(trainer, stage, before, samples, captions)

    def _show(
        self, trainer: Trainer, stage: str, first: int, samples: list[Any], captions: list[str]
    ) -> None:
        """Give samples to the loggers, and leave them in the log folder."""
        root = trainer.log_dir or trainer.default_root_dir
        folder = None if is_remote(root) else Path(root) / "samples"
        place = {"epoch": trainer.current_epoch, "step": trainer.global_step}
        entries: list[dict[str, Any]] = []
        pictures: list[Tensor] = []
        for number, (sample, caption) in enumerate(zip(samples, captions, strict=True)):
            entry: dict[str, Any] = {"caption": caption, **place}
            if self._kind_of(sample) == "image":
                pixels, remark = picture(sample, self.mean, self.std)
                entry["caption"] = captions[number] = f"{caption} ({remark})" if remark else caption
                entry["file"] = f"{stage}-{first + number}.png"
                pictures.append(pixels)
                if folder is not None:
                    folder.mkdir(parents=True, exist_ok=True)
                    write_png(pixels, folder / entry["file"])
            else:
                entry["text"] = str(self.decode(sample)) if self.decode else described(sample)
            entries.append({"stage": stage, "number": first + number, **entry})
        if folder is not None:
            _add_to_index(folder, entries)
        self._log(trainer, f"samples/{stage}", pictures, captions, entries)

    def _log(
        self,
        trainer: Trainer,
        key: str,
        pictures: list[Tensor],
        captions: list[str],
        entries: list[dict[str, Any]],
    ) -> None:
        step = trainer.progress.batches_stepped
        for logger in trainer.loggers:
            if pictures:
                logger.log_image(key, pictures, step, captions=captions)
            elif self.decode is not None:
                told = "\n\n".join(f"{entry['caption']}:\n{entry['text']}" for entry in entries)
                logger.log_text(key, told, step)
            else:
                rows = [[entry["caption"], entry["text"]] for entry in entries]
                logger.log_table(key, ["sample", "values"], rows, step=step)

    def _kind_of(self, sample: Any) -> str:
        if self.kind is not None:
            return self.kind
        if self.decode is not None:
            return "text"
        return "image" if isinstance(sample, Tensor) and is_picture(sample) else "values"


def _add_to_index(folder: Path, entries: list[dict[str, Any]]) -> None:
    """Add entries to the index of a folder; those that they repeat are replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "samples.json"
    known: list[dict[str, Any]] = []
    if path.is_file():
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:  # no index of ours; the pictures in the folder are shown all the same
            found = []
        known = (
            [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []
        )

    def place(entry: dict[str, Any]) -> tuple[Any, Any]:
        return entry.get("stage"), entry.get("number")

    new = {place(entry) for entry in entries}
    kept = [entry for entry in known if "stage" not in entry or place(entry) not in new]
    replace_file(path, lambda file: json.dump([*kept, *entries], file, indent=1))


def _short(target: Any) -> str:
    """Return a target in a few characters; one of several numbers by its shape."""
    if isinstance(target, Tensor):
        return f"{target.item():g}" if target.numel() == 1 else f"of shape {tuple(target.shape)}"
    return str(target)[:100]


def _check_channels(name: str, values: Any) -> tuple[float, ...] | None:
    """Return numbers for one or several channels.

    Raises:
        OptionError: they are no finite numbers.
    """
    if values is None:
        return None
    found = (values,) if isinstance(values, int | float) else values
    is_list = isinstance(found, list | tuple) and bool(found)
    if is_list and all(
        isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) for v in found
    ):
        return tuple(map(float, found))
    raise OptionError(
        f"{name} {values!r} of {_WHERE}: it must be a finite number, or one for each channel. Pass "
        "them as they were used to normalize."
    )
