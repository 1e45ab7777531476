"""`python foreign_callbacks.py results.json`: examine some callbacks in all frameworks."""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path

from trainer_hooks import Callback
from trainer_hooks.testing import examine_callback
from trainer_hooks.testing.contract import CHECKS
from trainer_hooks.testing.foreign_trainers import FOREIGN_CHECKS


class Good(Callback):
    """Counts batches; its state survives everywhere."""

    def __init__(self):
        self.batches = 0

    def on_fit_start(self, trainer, module):
        if trainer.progress.is_new_training:
            self.batches = 0

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.batches += 1
        self.log("batches", self.batches)

    def state_dict(self):
        return {"batches": self.batches}

    def load_state_dict(self, state_dict):
        self.batches = state_dict["batches"]


class OursOnly(Callback):
    """Has hooks of which each framework lacks one."""

    def on_before_zero_grad(self, trainer, module, optimizer):
        """Do nothing."""

    def on_before_loss(self, trainer, module):
        """Do nothing."""


class Resets(Good):
    """Resets its state in `setup`, before it is loaded."""

    def setup(self, trainer, module, stage):
        self.batches = 0


class Loses(Good):
    """Resets its state after it is loaded."""

    def on_fit_start(self, trainer, module):
        self.batches = 0


class Asks(Callback):
    """Uses what our Trainer alone has."""

    def on_train_start(self, trainer, module):
        assert trainer.callback_metrics is not None
        assert trainer.default_root_dir
        assert trainer.clock is not None
        if trainer.global_step < 0:  # used in the code, which is what counts
            trainer.trial_run(3)


class Fails(Callback):
    """Fails in a run of another framework."""

    def on_train_start(self, trainer, module):
        if "Host" in type(trainer).__name__:
            raise ValueError("not here")


class FailsQuietly(Fails):
    """The same, where an error takes it out of the run."""

    on_error = "disable"


def main(target: str, *frameworks: str) -> None:
    """Run the checks in these frameworks; those in our Trainer once, for what must pass there."""
    found = {}
    # transformers looks for an account in it, and its import takes longer than torch's
    sys.modules["comet_ml"] = None  # type: ignore[assignment]
    for kind in (Good, OursOnly, Resets, Loses, Asks, Fails, FailsQuietly):
        is_to_pass_here = kind in (Good, Resets) and "in_composer" not in frameworks
        here = ["costs", "orders", "refits"] if is_to_pass_here else [c.name for c in CHECKS]
        elsewhere = {check.name for check in FOREIGN_CHECKS} - {*frameworks}
        report = examine_callback(kind, everywhere=True, skip=[*here, *elsewhere])
        results = [result for result in report.results if result.name.startswith("in_")]
        found[kind.__name__] = {result.name: result.details for result in results}
        gc.freeze()  # the frameworks, which accelerate would search for garbage after each fit
        found[kind.__name__]["elsewhere"] = "\n".join(
            result.details for result in report.failed if not result.name.startswith("in_")
        )
    Path(target).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
