"""SpikeDetection: find batches whose loss spikes, and exclude them from the training."""

from __future__ import annotations

import json
import math
import os
import uuid
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks._files import replace_file
from trainer_hooks._log import log
from trainer_hooks._names import ours
from trainer_hooks._options import (
    FLAG,
    Rule,
    finite_number,
    is_int,
    is_text,
    one_of,
    option_rules,
    whole_number,
)
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.base import decide_on_rank_zero
from trainer_hooks.checkpoint.paths import is_remote
from trainer_hooks.connector.state_types import checks_state
from trainer_hooks.errors import OptionError, TrainerHooksError, UsageError
from trainer_hooks.hooks.band import Band
from trainer_hooks.hooks.spec import keeps_optimizers
from trainer_hooks.module.optimization import needs_closure

if TYPE_CHECKING:
    from torch import Tensor

    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

_WHERE = "SpikeDetection"
_FILE = "skip_batches.json"


class TrainingSpikeException(TrainerHooksError, RuntimeError):  # noqa: N818 - Lightning's name
    """Raised for a batch whose loss spikes.

    Attributes:
        batch_idx: the batch's index, counted from 0 over all epochs.
    """

    def __init__(self, batch_idx: int, loss: float, expected: float | None) -> None:
        usual = "" if expected is None else f", and {expected:.6g} is usual"
        super().__init__(
            f"training spike detected in batch {batch_idx}: its loss is {loss:.6g}{usual}. Resume "
            "from the last checkpoint: the batches on the list are skipped then."
        )
        self.batch_idx = batch_idx
        self._loss = loss
        self._expected = expected

    # pickling would otherwise pass the message alone to __init__
    def __reduce__(self) -> tuple[type[TrainingSpikeException], tuple[int, float, float | None]]:
        return type(self), (self.batch_idx, self._loss, self._expected)


class SpikeDetection(Callback):
    """Find batches whose loss spikes, keep a list of them, and skip the batches on the list.

    A loss spikes if it is worse than the last one, and differs from the mean of the last `window`
    by at least `atol`, and by at least `rtol` times that mean; or if it is not finite. Batches are
    numbered from 0 over all epochs.

    With `on_spike="raise"` a spike ends the run with a `TrainingSpikeException`, before its
    gradients are computed. The batch and the one before it, whose step may be the cause, are added
    to the list, which is written to a file. Start the program again with `ckpt_path="last"`: the
    training goes on from the last checkpoint, without the batches on the list. With
    `on_spike="skip"` the run goes on: the batch takes no part in the step.

    The file names the run that wrote it, and only a resume of that run reads its list, with
    `on_spike="raise"`. With `"skip"` a resume goes by the checkpoint alone: it finds the spikes
    after it once more, so that it is the run that was not interrupted, with the forward passes of
    those batches too. A plain JSON list of numbers in a file that you pass is yours: every run
    leaves out its batches, before their forward pass.

    In manual optimization, a spike is found when the batch is done; it cannot be skipped there.
    To judge a batch, its loss must be known, so the host waits for the device at each batch.

    Args:
        mode: `"min"` for a loss that falls, `"max"` for a score that rises.
        window: the number of losses in the mean.
        warmup: the number of first batches that are not judged, unless their loss is not finite.
        atol: the least difference of a spike; None: any.
        rtol: the least difference of a spike, as a multiple of the mean; None: any.
        exclude_batches_path: the file of the list, or a folder for it; unless given,
            `skip_batches.json` in the folder of the first saver, or without one in that of the
            run's logs, or else in the trainer's root.
        finite_only: whether a loss that is not finite is a spike.
        on_spike: `"raise"` or `"skip"`.

    Attributes:
        bad_batches: the list, in order.
        last_val: the last loss that was not a spike, or None.

    State: the list, the losses of the window, the last loss, and the run's name in the file.

    Raises:
        OptionError: an argument is outside its rule, or the file holds no such list.
        UsageError: `on_spike="skip"` with manual optimization or an optimizer that evaluates the
            loss itself.
        TrainingSpikeException: in training, a loss spikes.

    Example::

        detection = SpikeDetection(window=20, warmup=20, on_spike="skip")
        Trainer(max_epochs=2, callbacks=[detection]).fit(module, train_loader)
        print(detection.bad_batches)
    """

    band: ClassVar[Band] = Band.CONTROL
    volatile_state: ClassVar[frozenset[str]] = frozenset({"run"})

    @option_rules(
        mode=one_of("min", "max"),
        window=whole_number(1),
        warmup=whole_number(),
        atol=finite_number(0).or_none(),
        rtol=finite_number(0).or_none(),
        finite_only=FLAG,
        on_spike=one_of("raise", "skip"),
        exclude_batches_path=Rule(
            "the path of a file",
            lambda path: isinstance(path, str | os.PathLike) and is_text(os.fspath(path)),
            "Pass such a path, or None for skip_batches.json in the folder of the checkpoints.",
        ).unless(None),
    )
    def __init__(
        self,
        mode: str = "min",
        window: int = 10,
        warmup: int = 1,
        atol: float | None = None,
        rtol: float | None = 2.0,
        exclude_batches_path: str | os.PathLike[str] | None = None,
        finite_only: bool = True,
        *,
        on_spike: str = "raise",
    ) -> None:
        self.mode = mode
        self.window = window
        self.warmup = warmup
        self.atol = atol
        self.rtol = rtol
        self.finite_only = finite_only
        self.on_spike = on_spike
        path = exclude_batches_path
        self.exclude_batches_path = None if path is None else os.fspath(path)
        self.bad_batches: list[int] = []
        self.last_val: float | None = None
        self._values: deque[float] = deque(maxlen=window)
        self._losses_seen = 0
        self._judged_batch = -1
        self._scale: Any = None
        self._run = ""
        self._given: list[int] = []

    @property
    def state_key(self) -> str:
        """The class name with the mode and the file, which two callbacks cannot share."""
        return self._generate_state_key(mode=self.mode, path=self.exclude_batches_path)

    def state_dict(self) -> dict[str, Any]:
        """Return the list and the losses to compare with."""
        return {
            "bad_batches": list(self.bad_batches),
            "values": list(self._values),
            "last_val": self.last_val,
            "taken_in": self._losses_seen,
            "run": self._run,
        }

    @checks_state(
        {
            "bad_batches": list[int],
            "values": list[float],
            "last_val": float | None,
            "taken_in": int,
            "run": str,
        },
    )
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the list and the losses to compare with."""
        self.bad_batches = list(state_dict["bad_batches"])
        self._values = deque(state_dict["values"], maxlen=self.window)
        self.last_val = state_dict["last_val"]
        self._losses_seen = state_dict["taken_in"]
        self._run = state_dict["run"]

    @keeps_optimizers
    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Reset the state in a new training, and read the list from before a resume."""
        if trainer.progress.is_new_training:
            self.bad_batches, self.last_val, self._losses_seen = [], None, 0
            self._values.clear()
            self._run = ""
        if not self._run:
            # no random number of the run, which has to be the same with and without this callback
            self._run = decide_on_rank_zero(trainer, lambda: uuid.uuid4().hex[:12])
        self._judged_batch = -1
        closed = any(map(needs_closure, trainer.optimizers))
        if self.on_spike == "skip" and (closed or not module.automatic_optimization):
            how = "an optimizer that evaluates the loss itself" if closed else "manual optimization"
            raise UsageError(
                f"{_WHERE}(on_spike='skip') with {how}: its gradients cannot be left out. Use "
                "on_spike='raise'."
            )
        # the loss scaler of 16-mixed, or None
        self._scale = getattr(trainer.precision_plugin, "scaler", None)
        listed = self._read(trainer)
        if listed:
            self.bad_batches = sorted({*self.bad_batches, *listed})
            ahead = [b for b in self.bad_batches if b >= trainer.progress.batches_completed]
            log.info("%s: of %s, batches %s are skipped", _WHERE, self._path(trainer), ahead)

    def on_train_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int
    ) -> None:
        """Skip the batch if it is on the list."""
        # before a batch the count of completed ones is its own number
        if self.bad_batches and trainer.progress.batches_completed in self.bad_batches:
            trainer.skip_batch()

    def on_before_backward(self, trainer: Trainer, module: Module, loss: Tensor) -> None:
        """Judge the loss in automatic optimization."""
        batch_number = trainer.progress.batches_completed
        # a closure, as LBFGS has one, calls this hook several times a batch; the first loss is
        # judged
        if module.automatic_optimization and batch_number != self._judged_batch:
            scale = 1.0 if self._scale is None else self._scale.get_scale()
            # the hook receives the loss divided by the window's length and multiplied by the loss
            # scale
            self._judge(trainer, float(loss.detach()) * trainer.accumulate_grad_batches / scale)

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Judge the loss that a module in manual optimization returned."""
        if not module.automatic_optimization and "loss" in outputs:
            self._judge(trainer, float(outputs["loss"]), is_done=True)

    def is_spike(self, loss: float) -> bool:
        """Return whether a loss spikes, compared with the losses before it."""
        # not compared with the mean: any comparison with NaN is false
        if not math.isfinite(loss):
            return self.finite_only
        if self.last_val is None or self._losses_seen < self.warmup:
            return False
        change = loss - self.last_val
        if change <= 0 if self.mode == "min" else change >= 0:
            return False
        mean = sum(self._values) / len(self._values)
        off = abs(loss - mean)
        is_far = self.atol is None or off >= self.atol
        return is_far and (self.rtol is None or off >= abs(self.rtol * mean))

    def _judge(self, trainer: Trainer, loss: float, *, is_done: bool = False) -> None:
        """Add a loss to the window, or put its batch on the list.

        Args:
            trainer: the trainer.
            loss: the batch's loss.
            is_done: whether the batch is counted as completed already.
        """
        # `is_done` counts as 1: after a batch the counter includes it
        batch_number = trainer.progress.batches_completed - is_done
        self._judged_batch = batch_number
        if not ours(self).is_spike(loss):
            # one NaN in the window would make all later means NaN
            if math.isfinite(loss):
                self.last_val = loss
                self._values.append(loss)
                self._losses_seen += 1
            return
        skips = self.on_spike == "skip"
        # its loss was computed with the weights after the step before, which may be the cause
        bad = {batch_number} if skips else {max(0, batch_number - 1), batch_number}
        self.bad_batches = sorted({*self.bad_batches, *bad})
        if trainer.is_global_zero:
            path = self._path(trainer)
            path.parent.mkdir(parents=True, exist_ok=True)
            batches = [number for number in self.bad_batches if number not in self._given]
            listed = {"run": self._run, "batches": batches, "given": self._given}
            replace_file(path, lambda file: json.dump(listed, file, indent=4))
        if skips:
            trainer.skip_batch()
            return
        mean = sum(self._values) / len(self._values) if self._values else None
        raise TrainingSpikeException(batch_number, loss, mean)

    def _path(self, trainer: Trainer) -> Path:
        """Return the file of the list.

        Raises:
            UsageError: no path was given, and all folders of the run are remote.
        """
        if self.exclude_batches_path is not None:
            path = Path(self.exclude_batches_path)
            return path / _FILE if path.is_dir() else path
        saved = [
            folder for saver in trainer.checkpoint_callbacks for folder in ours(saver).folders()
        ]
        logged = [] if trainer.log_dir is None else [trainer.log_dir]
        folders = [*saved[:1], *logged, trainer.default_root_dir]
        local = [folder for folder in folders if not is_remote(folder)]
        if not local:
            raise UsageError(
                f"{_WHERE} with Trainer(default_root_dir={folders[-1]!r}): its list is a local "
                "file. Pass exclude_batches_path=..., a path on this machine."
            )
        return Path(local[0]) / _FILE

    def _read(self, trainer: Trainer) -> list[int]:
        """Return the batches to leave out: those of the user, and those that this run found.

        Raises:
            OptionError: the file does not hold a list of batch numbers.
        """
        path, self._given = self._path(trainer), []
        if not path.exists():
            return []
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            content = None
        # a plain list names no run: it is the user's, in a file that the user names
        listed: Any = {"given": content} if isinstance(content, list) else content
        parts: list[Any] = (
            [listed.get(key, []) for key in ("batches", "given")] if _is_list(listed) else [None]
        )
        if not all(isinstance(part, list) and all(is_int(n, 0) for n in part) for part in parts):
            raise OptionError(
                f"file {str(path)!r} of {_WHERE}: it must hold a JSON list of the numbers of "
                "batches. Mend or remove it, or pass another exclude_batches_path."
            )
        batches, given = parts
        if self.exclude_batches_path is not None:
            self._given = given
        # with "skip" the checkpoint says it all: the spikes after it are found once more, and their
        # batches have their forward pass, as in a run that was not interrupted
        is_own = listed.get("run") == self._run and self.on_spike == "raise"
        return [*self._given, *(batches if is_own else ())]


def _is_list(content: Any) -> bool:
    """Return whether the content of a file has the form of a list with its run."""
    return isinstance(content, dict) and ("run" in content or "given" in content)
