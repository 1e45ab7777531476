"""MLPerfCallback: write down a run as a submission to MLPerf Training has it."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.monitoring import (
    as_score,
    check_choice,
    check_count,
    check_monitor,
    check_number,
    check_text,
    is_training,
    missing_monitor,
)
from trainer_hooks.callbacks.reporting.mlperf_options import (
    check_command,
    check_name,
    check_root,
    clear_cache,
    require_mlperf,
)
from trainer_hooks.callbacks.reporting.mlperf_result import ResultFile
from trainer_hooks.callbacks.reporting.mlperf_samples import numbers_of_samples
from trainer_hooks.callbacks.reporting.mlperf_system import (
    AVAILABILITY,
    default_system_name,
    describe_system,
)
from trainer_hooks.callbacks.reporting.run_facts import seeds
from trainer_hooks.errors import CheckpointError, MetricError, OptionError
from trainer_hooks.hooks import Band

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from pathlib import Path

    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["MLPerfCallback"]

_WHERE = "MLPerfCallback"


class MLPerfCallback(Callback):
    """Write a run down as a submission to MLPerf Training, open division, has it.

    The folder then has `results/<system>/<benchmark>/result_<index>.txt`, the events of the run in
    MLPerf's own form, and `systems/<system>.json`, which says of the system what is known: look it
    through and complete it. A description that is there already is left alone.

    The run of MLPerf is over when a validation finds the metric at the target: what follows is not
    written. If the fit ends before, its status is `aborted`. Epochs count from 1. No result is ever
    written over; a resumed run goes on with its own, from where that stood in the checkpoint.

    Args:
        root_folder: the folder of the submission.
        index: which repetition of the run this is.
        benchmark: MLPerf's name of what is trained.
        target: the value at which the metric is good enough.
        division: `"open"`; the closed one prescribes the model and how it is trained.
        metric_name: the metric that validation logs, a share from 0 to 1.
        metric_label: the label of the evaluator, where the metric is logged as `name/label`; it is
            also found as `metrics/label/name`, as Composer has it, and under its plain name.
        submitter: the organization that submits.
        system_name: the name of the system; by default how many accelerators of which kind.
        status: `"onprem"`, `"cloud"`, `"preview"` or `"research"`.
        cache_clear_cmd: a command that empties the system's caches before the run: a list of its
            words, or a text for a shell.
        host_processors_per_node: how many processors the machine has, if that is not what it says.
        exit_at_target: whether the trainer is asked to stop when the target is reached.

    Raises:
        OptionError: an argument is outside its rule, mlperf_logging is not installed, the result is
            there already, or the command fails.
        DataError: in a run, there is no validation, or the samples cannot be counted.
        MetricError: in a run, validation does not log the metric.
        CheckpointError: a run is resumed without its result.

    State: which run the result is of, how far it goes, and whether the target was reached; a
    resumed run then asks again to stop.

    Example::

        report = MLPerfCallback(
            "submission", 0, target=0.8, metric_name="val_acc", submitter="us", exit_at_target=True
        )
        trainer = Trainer(max_epochs=2, callbacks=[report])
        trainer.fit(module, train_loader, val_loader)
    """

    band = Band.CONTROL

    def __init__(
        self,
        root_folder: str | os.PathLike[str],
        index: int,
        benchmark: str = "resnet",
        target: float = 0.759,
        division: str = "open",
        metric_name: str = "MulticlassAccuracy",
        metric_label: str = "eval",
        submitter: str = "trainer_hooks",
        system_name: str | None = None,
        status: str = "onprem",
        cache_clear_cmd: str | Sequence[str] | None = None,
        host_processors_per_node: int | None = None,
        exit_at_target: bool = False,
    ) -> None:
        require_mlperf(_WHERE)
        self.root_folder = check_root(root_folder, _WHERE)
        self.index = check_count("index", index, _WHERE)
        self.benchmark = check_name("benchmark", benchmark, _WHERE)
        self.target = check_number("target", target, _WHERE)
        self.division = check_choice("division", division, _WHERE, ("open",))
        self.metric_name = check_monitor(metric_name, _WHERE)
        self.metric_label = check_text("metric_label", metric_label, _WHERE)
        self.submitter = check_text("submitter", submitter, _WHERE) or "trainer_hooks"
        is_told = system_name is not None
        self.system_name = check_name("system_name", system_name, _WHERE) if is_told else None
        self.status = check_choice("status", status, _WHERE, tuple(AVAILABILITY))
        self.cache_clear_cmd = check_command(cache_clear_cmd, _WHERE)
        if host_processors_per_node is not None:
            check_count("host_processors_per_node", host_processors_per_node, _WHERE, least=1)
        self.host_processors_per_node = host_processors_per_node
        self.exit_at_target = check_choice("exit_at_target", exit_at_target, _WHERE, (True, False))
        self._began_ms = 0
        self._file: ResultFile | None = None
        self._forget()

    def _forget(self) -> None:
        self._run_id, self._size, self._epoch = "", 0, 0
        self._is_in_epoch = self._is_reached = False

    @property
    def state_key(self) -> str:
        """The class with the benchmark and the index."""
        return self._generate_state_key(benchmark=self.benchmark, index=self.index)

    def state_dict(self) -> dict[str, Any]:
        """Return which run it is, how far the result goes, and whether that is all."""
        return {
            "run_id": self._run_id,
            "size": self._size,
            "epoch": self._epoch,
            "is_in_epoch": self._is_in_epoch,
            "is_reached": self._is_reached,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take it back."""
        self._run_id, self._size = state_dict["run_id"], state_dict["size"]
        self._epoch, self._is_in_epoch = state_dict["epoch"], state_dict["is_in_epoch"]
        self._is_reached = state_dict["is_reached"]

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Look at the clock: the run is being made ready from now on."""
        self._began_ms = int(time.time() * 1000)

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Begin the result, or go on with it."""
        if trainer.progress.is_fresh:
            self._forget()
        if not is_training(trainer) or not trainer.is_global_zero:
            return
        name = self.system_name or default_system_name(trainer)
        path = self.root_folder / "results" / name / self.benchmark / f"result_{self.index}.txt"
        if trainer.progress.is_fresh:
            self._begin(trainer, path, name)
        elif not self._run_id:
            raise CheckpointError(
                f"checkpoint {trainer.ckpt_path!r} has no run of {_WHERE}: a result must begin "
                "with its training. Train from the start, or leave the callback out."
            )
        elif not self._is_reached:
            self._file = ResultFile.reopened(path, self._run_id, self._size)

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Ask again to stop if a resumed training was asked to."""
        if self._is_reached and self.exit_at_target and is_training(trainer):
            trainer.stop(self._reason)

    def on_train_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Write that an epoch begins."""
        if self._file is not None:
            self._epoch, self._is_in_epoch = trainer.current_epoch + 1, True
            self._file.start("epoch_start", epoch_num=self._epoch)
            self._note()

    def on_train_batches_end(self, trainer: Trainer, module: Module) -> None:
        """Write that its training is over."""
        self._end_epoch()

    def on_validation_start(self, trainer: Trainer, module: Module) -> None:
        """Write that an evaluation begins."""
        if self._file is not None and not trainer.sanity_checking:
            self._file.start("eval_start", **self._place(trainer))
            self._note()

    def on_validation_end(self, trainer: Trainer, module: Module) -> None:
        """Write what the evaluation found; at the target the run is over.

        Raises:
            MetricError: it did not log the metric.
        """
        if self._file is None or trainer.sanity_checking:
            return
        value = self._metric(trainer)
        self._file.event("eval_accuracy", value, **self._place(trainer))
        self._file.end("eval_stop", **self._place(trainer))
        self._note()
        if value < self.target:
            return
        self._end_epoch()
        self._is_reached = True
        self._stop("success")
        if self.exit_at_target:
            trainer.stop(self._reason)

    def on_fit_end(self, trainer: Trainer, module: Module) -> None:
        """Write that the run was over before the target, unless something broke it off."""
        if self._file is not None and not trainer.interrupted:
            self._stop("aborted")

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Close the result."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    @property
    def _reason(self) -> str:
        return f"{_WHERE}: {self.metric_name} reached the target of {self.target:.5g}"

    def _begin(self, trainer: Trainer, path: Path, name: str) -> None:
        """Write how the system is, what the run is, and that it starts."""
        samples = numbers_of_samples(trainer, _WHERE)
        if path.exists():
            raise OptionError(
                f"index {self.index} of {_WHERE}: the result {str(path)!r} is there already. "
                "Choose another index, or move the file away."
            )
        if self.cache_clear_cmd is not None:
            clear_cache(self.cache_clear_cmd, _WHERE)
        told = {"submitter": self.submitter, "division": self.division, "system_name": name}
        if self.host_processors_per_node is not None:
            told["host_processors_per_node"] = str(self.host_processors_per_node)
        system = self.root_folder / "systems" / f"{name}.json"
        describe_system(system, trainer, status=AVAILABILITY[self.status], **told)
        self._run_id = uuid.uuid4().hex
        facts = {
            "cache_clear": self.cache_clear_cmd is not None,
            "submission_benchmark": self.benchmark,
            "submission_division": self.division,
            "submission_org": self.submitter,
            "submission_platform": name,
            "submission_status": self.status,
            "seed": seeds()["torch"],
            **samples,
        }
        self._file = ResultFile.begun(path, self._run_id, self._began_ms, facts)
        self._note()

    def _end_epoch(self) -> None:
        if self._file is not None and self._is_in_epoch:
            self._file.end("epoch_stop", epoch_num=self._epoch)
            self._is_in_epoch = False
            self._note()

    def _stop(self, status: str) -> None:
        """Write that the run is over; one that is aborted may be gone on with, before that."""
        assert self._file is not None
        self._file.end("run_stop", status=status)
        if self._is_reached:
            self._note()
        self._file.close()
        self._file = None

    def _note(self) -> None:
        """Note how far the result goes."""
        assert self._file is not None
        self._size = self._file.size

    def _place(self, trainer: Trainer) -> dict[str, int]:
        """Return where in the training an evaluation is, in both of the forms that MLPerf has."""
        return {"epoch_num": self._epoch, "samples_count": trainer.progress.samples_completed}

    def _metric(self, trainer: Trainer) -> float:
        name, label, logged = self.metric_name, self.metric_label, trainer.callback_metrics
        names = (f"{name}/{label}", f"metrics/{label}/{name}", f"{label}/{name}", name)
        found = next((each for each in names if each in logged), None)
        if found is None:
            raise MetricError(missing_monitor(name, _WHERE, logged))
        return as_score(logged[found], found, _WHERE).item()
