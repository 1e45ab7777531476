"""Callbacks of each framework that write down a run: losses, metrics, hooks, weights.

Each function makes a recorder on the `Callback` of a framework, be it its own or ours of that name.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import torch
from plain_values import plain
from torch.optim.optimizer import register_optimizer_step_pre_hook

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "of_accelerated", "of_composer", "of_ignite", "of_lightning", "of_transformers", "weights",
]  # fmt: skip

LIGHTNING_HOOKS = (
    "setup", "on_fit_start", "on_sanity_check_start", "on_sanity_check_end", "on_train_start",
    "on_train_epoch_start", "on_train_batch_start", "on_before_zero_grad", "on_before_backward",
    "on_after_backward", "on_before_optimizer_step", "on_train_batch_end", "on_validation_start",
    "on_validation_epoch_start", "on_validation_batch_start", "on_validation_batch_end",
    "on_validation_epoch_end", "on_validation_end", "on_train_epoch_end", "on_train_end",
    "on_fit_end", "on_test_start", "on_test_batch_end", "on_test_end", "on_predict_start",
    "on_predict_batch_end", "on_predict_end", "teardown",
)  # fmt: skip
COMPOSER_EVENTS = (
    "init", "fit_start", "epoch_start", "batch_start", "before_forward", "after_forward",
    "before_loss", "after_loss", "before_backward", "after_backward", "batch_end",
    "batch_checkpoint", "epoch_end", "epoch_checkpoint", "eval_before_all", "eval_start",
    "eval_batch_start", "eval_batch_end", "eval_end", "eval_after_all", "fit_end",
    "eval_standalone_start", "eval_standalone_end", "predict_start", "predict_end",
)  # fmt: skip
METRICS_AT = ("on_train_batch_end", "on_validation_end", "on_train_epoch_end", "on_test_end")
ACCELERATED_EVENTS = (
    "on_training_run_start", "on_train_epoch_start", "on_train_step_start", "on_train_step_end",
    "on_train_epoch_end", "on_eval_epoch_start", "on_eval_step_start", "on_eval_step_end",
    "on_eval_epoch_end", "on_training_run_epoch_end", "on_training_run_end",
    "on_evaluation_run_start", "on_evaluation_run_end",
)  # fmt: skip


TRANSFORMERS_EVENTS = (
    "on_train_begin", "on_epoch_begin", "on_step_begin", "on_pre_optimizer_step",
    "on_optimizer_step", "on_substep_end", "on_step_end", "on_epoch_end", "on_evaluate", "on_save",
    "on_log", "on_train_end",
)  # fmt: skip
TIMES = ("_runtime", "_per_second", "total_flos")
"""The ends of names of logged values that differ from run to run."""
IGNITE_EVENTS = (
    "STARTED", "EPOCH_STARTED", "ITERATION_STARTED", "ITERATION_COMPLETED", "EPOCH_COMPLETED",
    "COMPLETED",
)  # fmt: skip


class Run:
    """The record of the runs of one trainer."""

    def __init__(self) -> None:
        self.losses: list[Any] = []
        self.rates: list[Any] = []
        self.metrics: dict[str, Any] = {}
        self.hooks: list[str] = []
        self.weights: dict[str, str] = {}

    def note(self, hook: str) -> None:
        """Add a hook, or count it once more if it is the last one."""
        last, _, times = self.hooks[-1].partition(" x") if self.hooks else ("", "", "")
        if last == hook:
            self.hooks[-1] = f"{hook} x{int(times or 1) + 1}"
        else:
            self.hooks.append(hook)

    def note_metrics(self, hook: str, metrics: Any) -> None:
        """Keep the metrics that there are at a hook, if they are others than before."""
        values = plain(dict(metrics))
        if values and values != next(reversed(self.metrics.values()), None):
            self.metrics[f"{len(self.hooks)} {hook}"] = values

    def values(self, evaluation: str) -> dict[str, Any]:
        """Return the record as plain data; `evaluation` is the hook that counts validations."""
        counts = [int(hook.partition(" x")[2] or 1) for hook in self.hooks
                  if hook.partition(" x")[0] == evaluation]  # fmt: skip
        return {
            "losses": self.losses,
            "rates": self.rates,
            "metrics": list(self.metrics.values()),
            "hooks": self.hooks,
            "validations": sum(counts),
            "weights": self.weights,
        }


def weights(module: torch.nn.Module) -> dict[str, str]:
    """Return a digest of each weight, in which a single other bit shows, and its first number."""
    return dict(_digests(module))


def _digests(module: torch.nn.Module) -> Iterator[tuple[str, str]]:
    for name, value in module.state_dict().items():
        if isinstance(value, torch.Tensor):
            data = value.detach().cpu().contiguous()
            digest = hashlib.sha256(data.reshape(-1).view(torch.uint8).numpy().tobytes())
            first = data.flatten()[0].item() if data.numel() else ""
            yield name, f"{first} {digest.hexdigest()[:8]}"


def of_lightning(Callback: type) -> Any:
    """Make a recorder for Lightning's Trainer."""
    run = Run()

    def hook(name: str) -> Any:
        def call(self: Any, trainer: Any, module: Any, *args: Any, **kwargs: Any) -> None:
            run.note(name)
            if name == "on_train_batch_end":
                outputs = args[0]
                run.losses.append(plain(outputs["loss"] if outputs else outputs))
                run.rates.append(
                    [group["lr"] for one in trainer.optimizers for group in one.param_groups]
                )
            if name in METRICS_AT:
                run.note_metrics(name, trainer.callback_metrics)
            if name in ("on_fit_end", "on_test_end"):
                run.weights = weights(module)

        return call

    made = type("Recorder", (Callback,), {name: hook(name) for name in LIGHTNING_HOOKS})()
    made.values = lambda: run.values("on_validation_end")
    return made


def of_composer(Callback: type) -> Any:
    """Make a recorder for Composer's Trainer."""
    run = Run()

    def event(name: str) -> Any:
        def call(self: Any, state: Any, logger: Any) -> None:
            run.note(name)
            if name == "batch_end":
                run.losses.append(plain(state.loss))
                run.rates.append(
                    [group["lr"] for one in state.optimizers for group in one.param_groups]
                )
            if name == "eval_end":
                run.note_metrics(name, state.eval_metric_values)
            if name == "fit_end":
                run.weights = weights(state.model)

        return call

    made = type("Recorder", (Callback,), {name: event(name) for name in COMPOSER_EVENTS})()
    made.values = lambda: run.values("eval_end")
    return made


def of_accelerated(Callback: type) -> Any:
    """Make a recorder for pytorch-accelerated's Trainer."""
    run = Run()
    trainers: list[Any] = []

    def event(name: str) -> Any:
        def call(self: Any, trainer: Any, **kwargs: Any) -> None:
            run.note(name)
            if name == "on_train_step_end":
                run.losses.append(plain(kwargs["batch_output"]["loss"]))
                run.rates.append([group["lr"] for group in trainer.optimizer.param_groups])
            if name in ("on_training_run_epoch_end", "on_evaluation_run_end"):
                history = trainer.run_history
                names = sorted(history.get_metric_names())
                run.note_metrics(name, {one: history.get_metric_values(one) for one in names})
            if name == "on_training_run_start":
                trainers.append(trainer)

        return call

    made = type("Recorder", (Callback,), {name: event(name) for name in ACCELERATED_EVENTS})()
    # a saver may load the best weights at the end, after this callback or before it
    made.values = lambda: {
        **run.values("on_eval_epoch_end"),
        "weights": weights(trainers[-1].get_model()) if trainers else {},
    }
    return made


def of_transformers(Callback: type) -> Any:
    """Make a recorder for the Trainer of transformers."""
    run = Run()

    def event(name: str) -> Any:
        def call(self: Any, args: Any, state: Any, control: Any, **given: Any) -> None:
            run.note(name)
            if name == "on_step_end":
                run.rates.append([group["lr"] for group in given["optimizer"].param_groups])
            if name == "on_log" and "loss" in given["logs"]:
                run.losses.append(plain(given["logs"]["loss"]))
            if name in ("on_log", "on_evaluate"):
                logs = given["logs" if name == "on_log" else "metrics"]
                values = plain({k: v for k, v in logs.items() if not k.endswith(TIMES)})
                if values != next(reversed(run.metrics.values()), None):
                    run.metrics[f"{len(run.metrics)} {name}"] = values
            if name == "on_train_end":
                models.append(given["model"])

        return call

    def values() -> dict[str, Any]:
        # a later callback may load the best weights at the end; ours hold the model as a part
        found = weights(models[-1]) if models else {}
        plain_names = {name.removeprefix("hosted."): value for name, value in found.items()}
        return {**run.values("on_evaluate"), "weights": plain_names}

    models: list[Any] = []
    made = type("Recorder", (Callback,), {name: event(name) for name in TRANSFORMERS_EVENTS})()
    made.values = values
    return made


def of_ignite(_: type) -> Any:
    """Make a recorder for the engines that our Trainer makes for a fit."""
    from trainer_hooks.adapters.ignite import attach

    recorder = OfIgnite()
    made = attach(recorder.attach)
    made.values = recorder.values
    return made


class OfIgnite:
    """A recorder for Ignite, which is attached to the engines of a training and its evaluations.

    Rates and weights are those of the optimizers that step in the run, in the order in which they
    do so first: an engine does not know them.
    """

    def __init__(self) -> None:
        self._run = Run()
        self._evaluators: list[Any] = []
        self._optimizers: list[Any] = []
        self._handle = register_optimizer_step_pre_hook(self._note_step)

    def attach(self, train: Any, evaluator: Any = None) -> None:
        """Record a training, and of the evaluations of an engine the metrics."""
        from ignite.engine import Events

        for name in IGNITE_EVENTS:
            train.add_event_handler(Events[name], self._note, name)
        if evaluator is not None:
            self.attach_evaluator(evaluator)

    def attach_evaluator(self, evaluator: Any) -> None:
        """Record the metrics at the end of an engine's evaluations."""
        from ignite.engine import Events

        if evaluator not in self._evaluators:
            self._evaluators.append(evaluator)
            for name in IGNITE_EVENTS:
                evaluator.add_event_handler(Events[name], self._note_evaluation, name)

    def _note_step(self, optimizer: Any, *_: Any) -> None:
        if all(optimizer is not other for other in self._optimizers):
            self._optimizers.append(optimizer)
        self._run.rates.append([group["lr"] for group in optimizer.param_groups])

    def _note(self, engine: Any, name: str) -> None:
        self._run.note(name)
        if name == "ITERATION_COMPLETED":
            self._run.losses.append(plain(engine.state.output))

    def _note_evaluation(self, engine: Any, name: str) -> None:
        self._run.note(f"evaluation {name}")
        if name == "COMPLETED":
            self._run.note_metrics(name, engine.state.metrics)

    def values(self) -> dict[str, Any]:
        """Stop to record, and return the record as plain data."""
        self._handle.remove()
        parameters = [
            parameter
            for optimizer in self._optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        ]
        holder = torch.nn.Module()
        for number, parameter in enumerate(parameters):
            holder.register_parameter(str(number), parameter)
        return {**self._run.values("evaluation COMPLETED"), "weights": weights(holder)}
