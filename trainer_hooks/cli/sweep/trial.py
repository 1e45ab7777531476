"""The process of one trial: `python -m trainer_hooks.cli.sweep.trial FOLDER NUMBER`.

It trains as `trainer-hooks fit` does, reports the metric to the study after each validation, and
ends the trial there. Started again, it resumes from its newest checkpoint.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import optuna
from optuna.trial import TrialState

from trainer_hooks.cli.run.command import run_command
from trainer_hooks.cli.run.optuna_pruning import OptunaPruning
from trainer_hooks.cli.run.trainer_cli import TrainerCLI
from trainer_hooks.cli.sweep.study import SweepStudy
from trainer_hooks.cli.sweep.trial_folders import place_in_trial_folder
from trainer_hooks.errors import MetricError, did_you_mean
from trainer_hooks.trainer.identity.run_origin import run_config

if TYPE_CHECKING:
    from trainer_hooks.trainer.trainer import Trainer

NOT_LOGGED = 3
"""The exit code of a trial that did not log its metric, or no single number under that name."""


def main(folder: Path, number: int) -> int:
    """Train a trial, write its result into the study, and return the exit code."""
    # steps that a resumed trial reports again are ignored, of which Optuna would warn
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sweep = SweepStudy.load(folder)
    monitor = sweep.definition.monitor
    words = fit_words(sweep, number)
    pruning = OptunaPruning(sweep.trial(number), monitor)
    trial_folder = sweep.folder_of(number)

    class TrialCLI(TrainerCLI):
        """A training whose checkpoints and logs all lie in the folder of the trial."""

        def before_instantiate_classes(self) -> None:
            place_in_trial_folder(self.config.fit.trainer, trial_folder)

        def instantiate_trainer(self, **kwargs: Any) -> Trainer:
            trainer = super().instantiate_trainer(**kwargs)
            # this process was started with none: the line that goes on with a fit names it
            if config := run_config(trainer.callbacks):
                config.command = ["trainer-hooks", *words]
            return trainer

    try:
        code, cli = run_command(words, {"callbacks": pruning}, TrialCLI)
    except MetricError as error:
        _fail(str(error))
        return NOT_LOGGED
    if cli is None or not cli.trainer.is_global_zero:
        return code
    reported = sweep.record(number).intermediate_values
    # as reported: a training that had ended before its process was killed has no metrics
    last = reported[max(reported)] if reported else cli.trainer.callback_metrics.get(monitor)
    if pruning.is_pruned:
        sweep.study.tell(number, state=TrialState.PRUNED)
    elif last is None:
        logged = sorted(cli.trainer.callback_metrics)
        _fail(
            f"metric {monitor!r} was not logged; logged were {', '.join(logged) or 'none'}."
            f"{did_you_mean(monitor, logged)} Log it, or give the sweep another --monitor."
        )
        return NOT_LOGGED
    elif math.isnan(last):
        return _fail(f"{monitor} is nan")
    else:
        sweep.study.tell(number, float(last))
    return 0


def fit_words(sweep: SweepStudy, number: int) -> list[str]:
    """Return the arguments of `trainer-hooks` that train a trial."""
    values = sweep.values_of(number)
    return [
        "fit",
        f"--config={sweep.definition.config}",
        *(f"--{key}={value}" for key, value in values.items()),
        # last: the values go over the config, and these over both
        f"--trainer.default_root_dir={sweep.folder_of(number)}",
        "--ckpt_path=auto",
    ]


def _fail(reason: str) -> int:
    print(f"trainer-hooks sweep: error: {reason}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
