"""Composer's callbacks in their own Trainer and in ours: `python cases.py results.json`."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

warnings.simplefilter("ignore")

import composer  # noqa: E402
import torch  # noqa: E402
from composer import callbacks  # noqa: E402
from composer.callbacks import mlperf  # noqa: E402
from foreign_programs import prepare_process, write_results  # noqa: E402
from running import EVENTS, Program, outcome  # noqa: E402


class Recording(composer.Callback):
    """Write down every event, with what the state says then."""

    def __init__(self):
        self.calls = []

    def run_event(self, event, state, logger):
        now, before = state.timestamp, state.previous_timestamp
        self.calls.append([
            event.value, now.iteration.value, now.epoch.value, now.batch.value, now.sample.value,
            now.epoch_in_iteration.value, now.batch_in_epoch.value, now.sample_in_epoch.value,
            None if before is None else [before.epoch.value, before.batch.value],
            state.eval_timestamp.batch.value, state.eval_timestamp.sample.value,
            str(state.max_duration), self._of_fit(event, state), state.run_name,
            state.device.name, state.precision.value,
        ])  # fmt: skip

    def _of_fit(self, event, state):
        if event.value in ("init", "before_load", "after_load"):
            return None  # a fit begins later here, with loaders and optimizers
        return [state.dataloader_label, str(state.dataloader_len), len(state.optimizers)]

    def close(self, state, logger):
        self.calls.append(["close"])

    def post_close(self):
        self.calls.append(["post_close"])


class Named(composer.Callback):
    """Write down the events by its methods, with tensors of the step."""

    def __init__(self):
        self.calls = []


def _method(event):
    def call(self, state, logger):
        found = [event, state.timestamp.batch.value]
        if event in ("after_forward", "before_loss", "eval_after_forward"):
            found.append(round(float(state.outputs.sum()), 5))
        if event in ("after_loss", "before_backward", "after_backward"):
            found.append(round(float(state.loss), 5))
        if event in ("batch_start", "before_forward", "eval_batch_start"):
            found.append(round(float(state.batch[0].sum()), 5))
        self.calls.append(found)

    return call


for _event in EVENTS:
    setattr(Named, _event, _method(_event))


class Stopping(composer.Callback):
    """Stop in the middle of an epoch."""

    def __init__(self):
        self.calls = []

    def batch_end(self, state, logger):
        self.calls.append(state.timestamp.batch.value)
        if state.timestamp.batch == 6:
            state.stop_training()

    def fit_end(self, state, logger):
        self.calls.append(str(state.get_elapsed_duration()))


class Shortening(Stopping):
    """Make the training shorter."""

    def batch_end(self, state, logger):
        self.calls.append(state.timestamp.batch.value)
        if state.timestamp.batch == 2:
            state.max_duration = composer.Time(5, "ba")


class ShorteningEpoch(Stopping):
    """Make the training shorter than it is already, as an epoch begins."""

    def epoch_start(self, state, logger):
        if state.timestamp.epoch == 1:
            state.max_duration = "1ep"

    def batch_end(self, state, logger):
        self.calls.append(state.timestamp.batch.value)


class StoppingEpoch(composer.Callback):
    """Stop the training as an epoch begins, with no event for its batches."""

    def epoch_start(self, state, logger):
        if state.timestamp.epoch == 1:
            state.stop_training()

    def fit_end(self, state, logger):
        self.calls = [state.timestamp.batch.value, str(state.max_duration)]


class Lengthening(composer.Callback):
    """Make the training longer, in another unit."""

    def __init__(self):
        self.calls = []

    def epoch_end(self, state, logger):
        self.calls.append([state.timestamp.epoch.value, str(state.max_duration)])
        if state.timestamp.epoch == 1:
            state.max_duration = "12ba"


class Patient(callbacks.EarlyStopper):
    """A subclass of theirs that overrides an inner method."""

    def _get_monitored_metric(self, state):
        self.asked = getattr(self, "asked", 0) + 1
        return super()._get_monitored_metric(state) * 0


class Keeping(callbacks.CheckpointSaver):
    """Another, that names what it saved."""

    def _save_checkpoint(self, state, logger):
        super()._save_checkpoint(state, logger)
        logger.log_metrics({"saved": float(len(self.saved_checkpoints))})


def saver(kind=callbacks.CheckpointSaver, **options):
    return lambda: kind("saved", remote_file_name=None, overwrite=True, **options)


def weights_of_another():
    """Make a callback that loads weights of Composer's own trainer."""
    if not Path("stopped.start.pt").exists():
        program = Program(callbacks.LRMonitor, evaluates=False)
        trainer, _, _ = program.train_there("1ba")
        trainer.save_checkpoint("stopped.start.pt", weights_only=True)
        trainer.close()
        torch.manual_seed(1)
    return callbacks.LoadCheckpoint("stopped.start.pt", load_weights_only=True)


MEASURED = {
    "SpeedMonitor": ["history_wct", "total_eval_wct"],
    "RuntimeEstimator": [
        "start_time", "total_eval_wct", "eval_wct_per_label", "last_elapsed_fraction",
    ],
    "MLPerfCallback": ["system_desc", "mllogger", "_file_handler"],
    "ActivationMonitor": ["module_names"],  # which hold the model
    "CheckpointSaver": ["tmp_dir_for_symlink", "pid", "save_interval"],
}  # fmt: skip

CASES = {
    "Recording": Recording,
    "Named": Named,
    "Stopping": Stopping,
    "Shortening": Shortening,
    "ShorteningEpoch": ShorteningEpoch,
    "StoppingEpoch": StoppingEpoch,
    "Lengthening": Lengthening,
    "ActivationMonitor": lambda: callbacks.ActivationMonitor("2ba", only_log_wandb=False),
    "CheckpointSaver": saver(),
    "CheckpointSaver-batches": saver(save_interval="3ba", num_checkpoints_to_keep=1),
    "CheckpointSaver-subclass": saver(Keeping),
    "CheckpointSaver-weights": saver(weights_only=True),
    "EarlyStopper": lambda: callbacks.EarlyStopper("MulticlassAccuracy", "eval", patience="1ep"),
    "EarlyStopper-subclass": lambda: Patient("MulticlassAccuracy", "eval", patience="0ep"),
    "ExportForInferenceCallback": lambda: callbacks.ExportForInferenceCallback(
        "torchscript", "model.pt"
    ),
    "FreeOutputs": callbacks.FreeOutputs,
    "ImageVisualizer": lambda: callbacks.ImageVisualizer("2ba", num_images=2),
    "LRMonitor": callbacks.LRMonitor,
    "LoadCheckpoint": weights_of_another,
    "MLPerfCallback": lambda: callbacks.MLPerfCallback(
        "mlperf",
        1,
        metric_name="MulticlassAccuracy",
        target=0.0,
        exit_at_target=True,
        system_name="this",
        host_processors_per_node=1,
    ),
    "MemoryMonitor": callbacks.MemoryMonitor,
    "MemorySnapshot": callbacks.MemorySnapshot,
    "NaNMonitor": callbacks.NaNMonitor,
    "OOMObserver": callbacks.OOMObserver,
    "OptimizerMonitor": lambda: callbacks.OptimizerMonitor(batch_log_interval=2),
    "RuntimeEstimator": lambda: callbacks.RuntimeEstimator(time_unit="seconds"),
    "SpeedMonitor": lambda: callbacks.SpeedMonitor(window_size=2),
    "SystemMetricsMonitor": callbacks.SystemMetricsMonitor,
    "ThresholdStopper": lambda: callbacks.ThresholdStopper("MulticlassAccuracy", "eval", 0.01),
}

RUN_ONCE = {"MLPerfCallback", "CheckpointSaver-weights"}
"""Results of one run, and weights alone, from which nothing goes on."""

# a name that Composer asks mlperf-logging for, and that this has not
mlperf.constants.DEVICE_TRAIN_MICROBATCH_SIZE = "device_train_microbatch_size"


def main(target: str) -> None:
    prepare_process()
    results = {}
    for name, make in CASES.items():
        unlike = MEASURED.get(name.partition("-")[0], ())
        stops = name.startswith(("Stopping", "Shortening", "Lengthening"))
        for suffix, options in {
            "": {"evaluates": not stops},
            " resumed": {"stop": "1ep"},
            " resumed inside": {"stop": "6ba", "evaluates": False},
        }.items():
            if suffix and (stops or name in RUN_ONCE):
                continue
            program = Program(make, unlike=unlike, **options)
            results[name + suffix] = {
                "there": outcome(program.there),
                "here": outcome(program.here),
            }
    write_results(target, results)


if __name__ == "__main__":
    main(*sys.argv[1:])
