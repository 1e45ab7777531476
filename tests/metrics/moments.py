"""What is visible at each moment of a run: the same module under this framework or Lightning.

`python moments.py > moments.json`, run where Lightning 2.x and torchmetrics are installed, writes
down Lightning's side, with which a test compares this framework's.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import warnings
from typing import Any

import torch
from torch.utils.data import DataLoader

SCENARIOS = (
    "both", "defaults", "step", "loaders", "accumulate", "metrics", "test", "unread", "sanity",
)  # fmt: skip
HOOKS = [
    "on_train_start", "on_train_epoch_start", "on_train_batch_start", "on_before_backward",
    "on_after_backward", "on_before_optimizer_step", "on_train_batch_end", "on_train_epoch_end",
    "on_train_end", "on_validation_start", "on_validation_epoch_start",
    "on_validation_batch_start", "on_validation_batch_end", "on_validation_epoch_end",
    "on_validation_end", "on_test_start", "on_test_batch_end", "on_test_epoch_end", "on_test_end",
]  # fmt: skip
REFUSED = ("on_train_end", "on_validation_end", "on_test_end")
# in the scenario "unread" nobody reads in the other hooks: a value that was read is visible
READ = {
    "on_train_batch_start", "on_train_batch_end", "on_validation_batch_end", "on_validation_end",
    "on_train_epoch_end", "on_train_end", "after fit",
}  # fmt: skip
LOGS_IN_EACH_HOOK = ("defaults", "unread")
SEVERAL_LOADERS = ("loaders", "sanity")


def module_of(base: type, scenario: str, snap: Any) -> Any:  # noqa: C901 - a table of cases
    """Return a module that logs as `scenario` says and notes what is visible at each moment."""

    class LogsAtEachMoment(base):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)
            if scenario == "metrics":
                from torchmetrics import MaxMetric, MeanMetric, MetricCollection, SumMetric

                self.forwarded, self.updated = MeanMetric(), MeanMetric()
                self.several = MetricCollection({"max": MaxMetric(), "sum": SumMetric()})

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            snap("training_step")
            value = batch.mean()
            if scenario in LOGS_IN_EACH_HOOK:
                self.log("in_training_step", value)
            elif scenario == "step":
                self.log("step", 100.0 + batch_idx)
                self.log("x", value, on_epoch=True)
            elif scenario == "metrics":
                self.forwarded(value)
                self.log("forwarded", self.forwarded, on_step=True, on_epoch=True)
                self.updated.update(value)
                self.log("updated", self.updated, on_step=False, on_epoch=True, prog_bar=True)
            else:
                self.log("two", value, prog_bar=True, on_step=True, on_epoch=True)
                self.log("hidden", value, logger=False, on_step=True, on_epoch=True)
                self.log("epoch_only", value, on_step=False, on_epoch=True, prog_bar=True)
                for kind in ("sum", "min", "max"):
                    self.log(kind, value, on_step=False, on_epoch=True, reduce_fx=kind)
                self.log("weighted", value, on_step=False, on_epoch=True, batch_size=batch_idx + 1)
                self.log_dict({"d1": value, "d2": value * 2})
            snap("training_step, after")
            return self.layer(batch).mean()

        def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
            self._evaluate("val", batch, dataloader_idx)

        def test_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
            self._evaluate("test", batch, dataloader_idx)

        def _evaluate(self, stage: str, batch: Any, dataloader_idx: int) -> None:
            if scenario == "metrics":
                self.several.update(batch.mean())
                self.log_dict(self.several)
            self.log(f"{stage}_two", batch.mean(), prog_bar=True, on_step=True, on_epoch=True)
            self.log(f"{stage}_default", batch.mean())
            self.log(f"{stage}_hidden", batch.mean(), logger=False)
            if scenario in SEVERAL_LOADERS:
                self.log(f"of_{dataloader_idx}", float(batch.sum()), add_dataloader_idx=False)
            snap(f"{stage}_step, after")

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.01)

    def hook(name: str) -> Any:
        def method(self: Any, *args: Any, **kwargs: Any) -> None:
            snap(name)
            is_late = scenario in ("both", "sanity") and name.endswith("epoch_end")
            if name not in REFUSED and (scenario in LOGS_IN_EACH_HOOK or is_late):
                self.log(f"in_{name}", 7.0, prog_bar=True)
                snap(f"{name}, after")

        return method

    for name in HOOKS:
        setattr(LogsAtEachMoment, name, hook(name))
    return LogsAtEachMoment()


def moments(scenario: str, base: type, trainer_class: Any, logger: Any) -> list[Any]:
    """Return what changed at each moment: `[moment, {"callback": ..., "logged": ..., "bar": ...}]`.

    What the logger was given stands between the moments, as `[step, metrics]`.
    """
    found: list[Any] = []
    before: dict[str, dict[str, float]] = {"callback": {}, "logged": {}, "bar": {}}
    handed = 0

    def snap(moment: str) -> None:
        nonlocal handed
        if scenario == "unread" and moment not in READ:
            return
        for step, metrics in logger.seen[handed:]:
            found.append([step, dict(sorted((k, rounded(v)) for k, v in metrics.items()))])
        handed = len(logger.seen)
        tables = {
            "callback": trainer.callback_metrics,
            "logged": trainer.logged_metrics,
            "bar": trainer.progress_bar_metrics,
        }
        changes = {}
        for kind, table in tables.items():
            now = {name: rounded(value) for name, value in table.items()}
            gone = dict.fromkeys(before[kind].keys() - now.keys())
            new = {k: v for k, v in now.items() if before[kind].get(k) != v}
            if gone or new:
                changes[kind] = dict(sorted({**gone, **new}.items()))
            before[kind] = now
        found.append([moment, changes])

    trainer = trainer_class(
        max_epochs=2,
        logger=logger,
        log_every_n_steps=2,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        num_sanity_val_steps=0 if scenario == "loaders" else 1,
        accumulate_grad_batches=2 if scenario == "accumulate" else 1,
    )
    # five batches of four, the last of two
    data = torch.arange(18.0).repeat_interleave(2).reshape(18, 2)
    train, val = DataLoader(data, batch_size=4), DataLoader(data[:6], batch_size=4)
    vals = {"a": val, "b": train} if scenario in SEVERAL_LOADERS else val
    module = module_of(base, scenario, snap)
    trainer.fit(module, train, vals)
    snap("after fit")
    if scenario == "test":
        for run in (trainer.validate, trainer.test):
            results = run(module, val, verbose=False)
            sorted_results = [sorted((k, rounded(v)) for k, v in r.items()) for r in results]
            found.append(["results", [dict(items) for items in sorted_results]])
            snap("after evaluation")
    return found


def rounded(value: Any) -> float:
    """Return a value as a float that is the same however it was summed up."""
    return round(float(value), 4)


def main() -> None:
    """Write down Lightning's side."""
    import pytorch_lightning as pl
    from pytorch_lightning.loggers.logger import Logger

    class Memory(Logger):
        name, version = "memory", 0

        def __init__(self) -> None:
            super().__init__()
            self.seen: list[Any] = []

        def log_metrics(self, metrics: Any, step: int | None = None) -> None:
            self.seen.append((step, dict(metrics)))

        def log_hyperparams(self, *args: Any, **kwargs: Any) -> None: ...

    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    with contextlib.redirect_stdout(io.StringIO()):
        facts = {
            name: moments(name, pl.LightningModule, pl.Trainer, Memory()) for name in SCENARIOS
        }
    lines = [
        f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(fact) for fact in found) + "\n]"
        for name, found in facts.items()
    ]
    print("{\n" + ",\n".join(lines) + "\n}")


if __name__ == "__main__":
    main()
