"""A training for torchrun that a kill may hit anywhere: elastic_run.py FOLDER STRATEGY [KILL...].

STRATEGY is `ddp`, or `fsdp`, whose checkpoints are folders with a part of each rank.

Each KILL is `rank:event`: in that rank the process kills itself at that call of any function; the
first one in the first attempt, the second one in the attempt after it, and so on. `rank:save` is
the fourth time that a file is to be synced to the disk, and `rank:term` is SIGTERM after a batch.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import torch
from cases import DATA, FEW, RANK, Draws, Remembers, loader, trainer
from sharded_cases import whole

from trainer_hooks import Callback, FSDPStrategy
from trainer_hooks.callbacks import ModelCheckpoint


class Calls:
    """Counts calls of Python and C functions, and kills the process at one of them."""

    def __init__(self, fatal: int, fatal_sync: int) -> None:
        self.count, self.fatal = 0, fatal
        self.syncs, self.fatal_sync = 0, fatal_sync

    def __call__(self, frame: object, event: str, argument: object) -> None:
        self.count += 1
        self.syncs += argument is os.fsync and event == "c_call"
        if self.count == self.fatal or self.syncs == self.fatal_sync:
            os.kill(os.getpid(), signal.SIGKILL)


class Begun(Callback):
    """Notes how many calls there were before the training."""

    def __init__(self, calls: Calls) -> None:
        self.calls, self.before = calls, 0

    def on_train_start(self, trainer, module):
        self.before = self.calls.count


class Terminated(Callback):
    """Sends SIGTERM to this process after a batch."""

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.progress.batches_completed == 9:
            os.kill(os.getpid(), signal.SIGTERM)


STRATEGIES = {
    "ddp": "ddp",
    "fsdp": FSDPStrategy(auto_wrap_policy=torch.nn.Linear, state_dict_type="sharded"),
}


def main(folder: Path, strategy: str, kills: list[str]) -> None:
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    rank, _, event = (kills[attempt] if attempt < len(kills) else "-1:0").partition(":")
    is_hit = int(rank) == RANK
    is_counted = is_hit and event.isdecimal()
    calls = Calls(int(event) if is_counted else -1, 4 if is_hit and event == "save" else -1)
    sys.setprofile(calls)
    torch.manual_seed(5)
    module, remembers = Draws(), Remembers()
    begun = Begun(calls)
    others = [Terminated()] if is_hit and event == "term" else []
    fit = trainer(
        folder, begun, remembers, ModelCheckpoint(every_n_train_steps=1, save_last=True),
        *others, max_epochs=2, logger=True, log_every_n_steps=2, strategy=STRATEGIES[strategy],
    )  # fmt: skip
    data = loader(torch.utils.data.Subset(DATA, range(48)), shuffle=True)
    fit.fit(module, data, loader(FEW, 2), ckpt_path="auto")
    sys.setprofile(None)
    found = {
        "weights": whole(module), "drawn": remembers.drawn, "steps": fit.global_step,
        "metrics": {name: value.item() for name, value in fit.callback_metrics.items()},
        "log_dir": Path(fit.log_dir).name,
    }  # fmt: skip
    Path(folder, f"found{RANK}.json").write_text(json.dumps([found, begun.before, calls.count]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
