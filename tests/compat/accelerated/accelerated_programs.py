"""Programs in the style of pytorch-accelerated's documentation, which run there and here.

Each is given a namespace with the names that its imports would bring, and a folder, and returns
what is compared: the calls of callbacks and methods, the history, the weights, and what it saw.
"""

from __future__ import annotations

import contextlib
import shutil
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

if TYPE_CHECKING:
    from pathlib import Path
    from types import SimpleNamespace

__all__ = ["PROGRAMS", "outcome"]

FIXED = {"shuffle": False, "num_workers": 0}
BOTH = {"train_dataloader_kwargs": FIXED, "eval_dataloader_kwargs": {"num_workers": 0}}


def data(samples: int = 10, seed: int = 0) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(samples, 4, generator=generator)
    return TensorDataset(inputs, torch.randint(0, 3, (samples,), generator=generator))


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def parts(lr: float = 0.1) -> tuple[nn.Module, Any, torch.optim.Optimizer]:
    model = network()
    return model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


def outcome(trainer: Any, **seen: Any) -> dict[str, Any]:
    """Return what a program came to."""
    history = trainer.run_history
    names = sorted(history.get_metric_names())
    return {
        "history": {name: [_plain(v) for v in history.get_metric_values(name)] for name in names},
        "epoch": history.current_epoch,
        "weights": [_plain(p) for p in trainer.get_model().parameters()],
        **seen,
    }


def _plain(value: Any) -> Any:
    return value.detach().cpu().tolist() if isinstance(value, torch.Tensor) else value


def recorder(pa: SimpleNamespace, calls: list[Any]) -> Any:
    """Return a callback that notes each call, with its keywords."""
    names = (
        "on_init_end", "on_training_run_start", "on_train_epoch_start", "on_train_step_start",
        "on_train_epoch_end", "on_eval_epoch_start", "on_eval_step_start", "on_eval_epoch_end",
        "on_training_run_epoch_end", "on_training_run_end", "on_evaluation_run_start",
        "on_evaluation_run_end", "on_stop_training_error",
    )  # fmt: skip

    def noting(name: str) -> Any:
        def method(self: Any, trainer: Any, **kwargs: Any) -> None:
            calls.append([name, trainer.run_history.current_epoch, sorted(kwargs)])

        return method

    def step_end(name: str) -> Any:
        def method(self: Any, trainer: Any, batch: Any, batch_output: Any, **kwargs: Any) -> None:
            about = [round(float(batch_output["loss"].detach()), 5), batch_output["batch_size"]]
            about += [list(batch_output["model_outputs"].shape), len(batch[0])]
            calls.append([name, *about, kwargs])

        return method

    body = {name: noting(name) for name in names}
    body |= {name: step_end(name) for name in ("on_train_step_end", "on_eval_step_end")}
    return type("Recorder", (pa.TrainerCallback,), body)()


def plain(pa: SimpleNamespace, folder: Path) -> dict[str, Any]:
    trainer = pa.Trainer(*parts(), callbacks=())
    trainer.train(
        train_dataset=data(), num_epochs=3, eval_dataset=data(6, 1), per_device_batch_size=4, **BOTH
    )
    return outcome(trainer)


def every_call(pa: SimpleNamespace, folder: Path) -> dict[str, Any]:
    calls: list[Any] = []
    trainer = pa.Trainer(*parts(), callbacks=[recorder(pa, calls)])
    trainer.train(data(), 2, data(6, 1), per_device_batch_size=4, **BOTH)
    return outcome(trainer, calls=calls)


def accumulated(pa: SimpleNamespace, folder: Path) -> dict[str, Any]:
    calls: list[Any] = []
    trainer = pa.Trainer(*parts(), callbacks=[recorder(pa, calls)])
    trainer.train(
        data(14), 2, per_device_batch_size=4, gradient_accumulation_steps=3, **BOTH
    )  # fmt: skip
    return outcome(trainer, calls=[c for c in calls if c[0] == "on_train_step_end"])


def clipped(pa: SimpleNamespace, folder: Path) -> dict[str, Any]:
    trainer = pa.Trainer(*parts(), callbacks=())
    trainer.train(
        data(14),
        2,
        per_device_batch_size=4,
        gradient_clip_value=0.01,
        gradient_accumulation_steps=2,
        **BOTH,
    )
    return outcome(trainer)


def one_cycle(pa: SimpleNamespace, folder: Path) -> dict[str, Any]:
    rates = []

    class Rates(pa.TrainerCallback):
        def on_train_step_start(self, trainer: Any, **kwargs: Any) -> None:
            rates.append(round(trainer.optimizer.param_groups[0]["lr"], 8))

    placeholders = pa.TrainerPlaceholderValues
    trainer = pa.Trainer(*parts(), callbacks=[Rates])
    trainer.train(
        data(),
        2,
        per_device_batch_size=4,
        create_scheduler_fn=partial(
            torch.optim.lr_scheduler.OneCycleLR,
            max_lr=0.5,
            epochs=placeholders.NUM_EPOCHS,
            steps_per_epoch=placeholders.NUM_UPDATE_STEPS_PER_EPOCH,
        ),
        **BOTH,
    )
    return outcome(trainer, rates=rates)


def computed_placeholder(pa: SimpleNamespace, folder: Path) -> dict[str, Any]:
    placeholders = pa.TrainerPlaceholderValues
    trainer = pa.Trainer(*parts(), callbacks=())
    trainer.train(
        data(),
        3,
        eval_dataset=data(6, 1),
        per_device_batch_size=4,
        create_scheduler_fn=partial(
            torch.optim.lr_scheduler.CosineAnnealingLR,
            T_max=placeholders.TRAIN_DATALOADER_LEN * 3,
        ),
        **BOTH,
    )
    return outcome(trainer, last=trainer.scheduler.get_last_lr(), t_max=trainer.scheduler.T_max)


def limited_steps(pa: SimpleNamespace, folder: Path) -> dict[str, Any]:
    calls: list[Any] = []
    trainer = pa.Trainer(*parts(), callbacks=[recorder(pa, calls)])
    trainer.train(
        data(),
        5,
        eval_dataset=data(6, 1),
        per_device_batch_size=4,
        max_num_train_steps=4,
        **BOTH,
    )
    config = trainer.run_config
    return outcome(
        trainer,
        calls=[c[0] for c in calls],
        config=[config.num_epochs, config.max_num_train_steps, config.num_update_steps_per_epoch],
    )


def metrics_in_a_callback(pa: SimpleNamespace, folder: Path) -> dict[str, Any]:
    class ClassificationMetrics(pa.TrainerCallback):
        def __init__(self, num_classes: int) -> None:
            self.num_classes = num_classes
            self.matrix = torch.zeros(num_classes, num_classes)

        def on_training_run_start(self, trainer: Any, **kwargs: Any) -> None:
            self.matrix = self.matrix.to(trainer._eval_dataloader.device)

        def on_eval_step_end(
            self, trainer: Any, batch: Any, batch_output: Any, **kwargs: Any
        ) -> None:
            predicted = batch_output["model_outputs"].argmax(dim=-1)
            for true, found in zip(batch[1], predicted, strict=True):
                self.matrix[true, found] += 1

        def on_eval_epoch_end(self, trainer: Any, **kwargs: Any) -> None:
            history = trainer.run_history
            history.update_metric("confusion_matrix", self.matrix.cpu())
            history.update_metric("accuracy", (self.matrix.trace() / self.matrix.sum()).item())
            self.matrix = torch.zeros_like(self.matrix)

    trainer = pa.Trainer(*parts(), callbacks=[ClassificationMetrics(3)])
    trainer.train(data(), 2, data(9, 1), per_device_batch_size=4, **BOTH)
    return outcome(trainer)


def metrics_in_a_trainer(pa: SimpleNamespace, folder: Path) -> dict[str, Any]:
    class TrainerWithMetrics(pa.Trainer):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.hits = self.seen = 0

        def calculate_eval_batch_loss(self, batch: Any) -> dict[str, Any]:
            output = super().calculate_eval_batch_loss(batch)
            self.hits += int((output["model_outputs"].argmax(-1) == batch[1]).sum())
            self.seen += output["batch_size"]
            return output

        def eval_epoch_end(self) -> None:
            super().eval_epoch_end()
            self.run_history.update_metric("accuracy", self.hits / self.seen)
            self.hits = self.seen = 0

    trainer = TrainerWithMetrics(*parts(), callbacks=())
    trainer.train(data(), 2, data(9, 1), per_device_batch_size=4, **BOTH)
    return outcome(trainer)


def own_loss_and_outputs(pa: SimpleNamespace, folder: Path) -> dict[str, Any]:
    seen = []

    class Extra(pa.TrainerCallback):
        def on_train_step_end(
            self, trainer: Any, batch: Any, batch_output: Any, **kwargs: Any
        ) -> None:
            seen.append([sorted(batch_output), round(float(batch_output["penalty"]), 6)])

    class Penalized(pa.Trainer):
        def calculate_train_batch_loss(self, batch: Any) -> dict[str, Any]:
            inputs, targets = batch
            outputs = self.model(inputs)
            penalty = sum(p.square().sum() for p in self.model.parameters())
            loss = self.loss_func(outputs, targets) + 0.01 * penalty
            return {
                "loss": loss,
                "model_outputs": outputs,
                "batch_size": len(targets),
                "penalty": penalty.detach(),
            }

    trainer = Penalized(*parts(), callbacks=[Extra])
    trainer.train(data(), 2, per_device_batch_size=4, **BOTH)
    return outcome(trainer, seen=seen)


def custom_event(pa: SimpleNamespace, folder: Path) -> dict[str, Any]:
    shapes = []

    class VerifyBatchCallback(pa.TrainerCallback):
        def verify_train_batch(self, trainer: Any, xb: Any, yb: Any) -> None:
            assert xb.shape[0] <= trainer.run_config.train_per_device_batch_size
            shapes.append([list(xb.shape), list(yb.shape)])

    class Other(pa.TrainerCallback):
        """Has no such method."""

    class TrainerWithCustomCallbackEvent(pa.Trainer):
        def calculate_train_batch_loss(self, batch: Any) -> dict[str, Any]:
            xb, yb = batch
            self.callback_handler.call_event("verify_train_batch", self, xb=xb, yb=yb)
            return super().calculate_train_batch_loss(batch)

    callbacks = [VerifyBatchCallback, Other]
    trainer = TrainerWithCustomCallbackEvent(*parts(), callbacks=callbacks)
    trainer.train(data(), 1, per_device_batch_size=4, **BOTH)
    return outcome(trainer, shapes=shapes)


def overridden_steps(pa: SimpleNamespace, folder: Path) -> dict[str, Any]:
    calls = []

    class Own(pa.Trainer):
        def training_run_start(self) -> None:
            calls.append("training_run_start")

        def train_epoch_start(self) -> None:
            super().train_epoch_start()
            calls.append(["train_epoch_start", self.model.training])

        def backward_step(self, loss: Any) -> None:
            calls.append("backward_step")
            super().backward_step(loss * 0.5)

        def optimizer_step(self) -> None:
            calls.append("optimizer_step")
            super().optimizer_step()

        def scheduler_step(self) -> None:
            calls.append("scheduler_step")
            super().scheduler_step()

        def train_epoch_end(self) -> None:
            calls.append("train_epoch_end")

        def eval_epoch_start(self) -> None:
            super().eval_epoch_start()
            calls.append(["eval_epoch_start", self.model.training])

        def training_run_epoch_end(self) -> None:
            calls.append("training_run_epoch_end")

        def training_run_end(self) -> None:
            super().training_run_end()
            calls.append("training_run_end")

        def create_scheduler(self) -> Any:
            return torch.optim.lr_scheduler.StepLR(self.optimizer, 2, 0.5)

    trainer = Own(*parts(), callbacks=())
    trainer.train(
        data(), 2, data(6, 1), per_device_batch_size=4, create_scheduler_fn=object, **BOTH
    )
    return outcome(trainer, calls=calls)


def early_stopping(pa: SimpleNamespace, folder: Path) -> dict[str, Any]:
    class Score(pa.TrainerCallback):
        def on_eval_epoch_end(self, trainer: Any, **kwargs: Any) -> None:
            trainer.run_history.update_metric("score", [0.2, 0.5, 0.4, 0.3, 0.2, 0.1][self.epoch])
            self.epoch += 1

        def on_training_run_start(self, trainer: Any, **kwargs: Any) -> None:
            self.epoch = 0

    calls: list[Any] = []
    stopper = pa.EarlyStoppingCallback(
        early_stopping_patience=2, watch_metric="score", greater_is_better=True
    )
    saver = pa.SaveBestModelCallback(
        save_path=str(folder / "best.pt"), watch_metric="score", greater_is_better=True
    )
    trainer = pa.Trainer(*parts(), callbacks=[Score, saver, stopper, recorder(pa, calls)])
    trainer.train(data(), 6, data(6, 1), per_device_batch_size=4, **BOTH)
    saved = torch.load(folder / "best.pt", weights_only=True)
    came_to = outcome(
        trainer,
        saved=[value.tolist() for value in saved["model_state_dict"].values()],
        epochs=len([c for c in calls if c[0] == "on_train_epoch_start"]),
        ended=calls[-1][0],
    )
    del came_to["epoch"]  # an epoch at whose end it is stopped is counted here, and not there
    return came_to


def evaluated(pa: SimpleNamespace, folder: Path) -> dict[str, Any]:
    calls: list[Any] = []
    trainer = pa.Trainer(*parts(), callbacks=[recorder(pa, calls)])
    trainer.evaluate(data(7, 1), per_device_batch_size=3, dataloader_kwargs={"num_workers": 0})
    return outcome(trainer, calls=calls)


def trained_twice(pa: SimpleNamespace, folder: Path) -> dict[str, Any]:
    trainer = pa.Trainer(*parts(), callbacks=())
    trainer.train(data(), 2, data(6, 1), per_device_batch_size=4, **BOTH)
    first = trainer.run_history.get_metric_values("train_loss_epoch")
    first = list(first)
    trainer.train(data(), 1, data(6, 1), per_device_batch_size=4, **BOTH)
    return outcome(trainer, first=first)


def own_loader(pa: SimpleNamespace, folder: Path) -> dict[str, Any]:
    def collate(samples: list[Any]) -> Any:
        inputs, targets = zip(*samples, strict=True)
        return torch.stack(inputs) * 2, torch.stack(targets)

    class Own(pa.Trainer):
        def get_default_train_dl_kwargs(self, batch_size: int) -> dict[str, Any]:
            return {"batch_size": batch_size + 1, "num_workers": 0, "shuffle": True}

        def create_eval_dataloader(self, batch_size: int, eval_dl_kwargs: Any = None) -> Any:
            kwargs = {**(eval_dl_kwargs or {}), "num_workers": 0}
            return super().create_eval_dataloader(batch_size * 2, kwargs)

    trainer = Own(*parts(), callbacks=())
    sampler = torch.utils.data.SequentialSampler(range(10))
    trainer.train(
        data(),
        1,
        data(6, 1),
        per_device_batch_size=2,
        train_dataloader_kwargs={"sampler": sampler, "drop_last": True},
        collate_fn=collate,
    )
    config = trainer.run_config.to_dict()
    config["train_dl_kwargs"] = sorted(config["train_dl_kwargs"])
    config["eval_dl_kwargs"] = sorted(set(config["eval_dl_kwargs"]) - {"worker_init_fn"})
    return outcome(trainer, config=config)


def stopped_by_raising(pa: SimpleNamespace, folder: Path) -> dict[str, Any]:
    class Enough(pa.TrainerCallback):
        def on_eval_epoch_end(self, trainer: Any, **kwargs: Any) -> None:
            if trainer.run_history.current_epoch == 2:
                raise pa.StopTrainingError("enough")

    calls: list[Any] = []
    trainer = pa.Trainer(*parts(), callbacks=[recorder(pa, calls), Enough])
    trainer.train(data(), 4, data(6, 1), per_device_batch_size=4, **BOTH)
    names = [c[0] for c in calls]
    return {
        "weights": outcome(trainer)["weights"],
        "stopped": names.count("on_stop_training_error"),
        "ended": names[-1],
        "epochs": names.count("on_train_epoch_start"),
    }


def nan_ends_it(pa: SimpleNamespace, folder: Path) -> dict[str, Any]:
    class Bad(pa.Trainer):
        def calculate_train_batch_loss(self, batch: Any) -> dict[str, Any]:
            output = super().calculate_train_batch_loss(batch)
            if self.run_history.current_epoch == 2:
                output["loss"] = output["loss"] * float("nan")
            return output

    trainer = Bad(*parts(), callbacks=[pa.TerminateOnNaNCallback])
    with contextlib.suppress(SystemExit):  # so it ends there
        trainer.train(data(), 4, per_device_batch_size=4, **BOTH)
    return {"weights": outcome(trainer)["weights"]}


def limited_batches(pa: SimpleNamespace, folder: Path) -> dict[str, Any]:
    trainer = pa.Trainer(*parts(), callbacks=[pa.LimitBatchesCallback(2)])
    trainer.train(data(20), 2, data(20, 1), per_device_batch_size=4, **BOTH)
    return outcome(trainer)


def weights_and_files(pa: SimpleNamespace, folder: Path) -> dict[str, Any]:
    trainer = pa.Trainer(*parts(), callbacks=())
    trainer.train(data(), 1, per_device_batch_size=4, **BOTH)
    trainer.save_checkpoint(folder / "a.pt", checkpoint_kwargs={"note": 3})
    saved = torch.load(folder / "a.pt", weights_only=True)
    other = pa.Trainer(*parts(), callbacks=())
    found = other.load_checkpoint(folder / "a.pt")
    other.train(data(), 1, per_device_batch_size=4, **BOTH)
    return outcome(
        other,
        note=[saved["note"], found["note"]],
        names=sorted(saved["model_state_dict"]),
        optimizer=len(saved["optimizer_state_dict"]["state"]),
    )


def assigned_losses(pa: SimpleNamespace, folder: Path) -> dict[str, Any]:
    """Two callbacks assign a loss, one after the other, with and without a window of two."""

    class Weigh(pa.TrainerCallback):
        def on_train_step_end(
            self, trainer: Any, batch: Any, batch_output: Any, **kwargs: Any
        ) -> None:
            batch_output["loss"] = 3 * batch_output["loss"]

    class Add(pa.TrainerCallback):
        def on_train_step_end(
            self, trainer: Any, batch: Any, batch_output: Any, **kwargs: Any
        ) -> None:
            penalty = batch_output["model_outputs"].square().mean()
            batch_output["loss"] = batch_output["loss"] + penalty
            seen.append(round(float(batch_output["loss"].detach()), 5))

    found, seen = {}, []
    for window in (1, 2):
        trainer = pa.Trainer(*parts(), callbacks=[Weigh(), Add()])
        trainer.train(
            data(), 2, data(6, 1), per_device_batch_size=4, gradient_accumulation_steps=window,
            **BOTH,
        )  # fmt: skip
        found[str(window)] = outcome(trainer)
    return {**found, "seen": seen}


def replaced_hooks(pa: SimpleNamespace, folder: Path) -> dict[str, Any]:
    """A method of a built-in that a subclass overrides, with and without super()."""
    calls: list[str] = []

    def replacing(kind: Any, event: str, *, asks: bool) -> Any:
        def method(self: Any, trainer: Any, *args: Any, **kwargs: Any) -> None:
            calls.append(event)
            if asks:
                getattr(super(made, self), event)(trainer, *args, **kwargs)

        made = type(f"My{kind.__name__}", (kind,), {event: method})
        return made

    class Rows(pa.LogMetricsCallback):
        def log_metrics(self, trainer: Any, metrics: Any) -> None:
            calls.append(",".join(sorted(metrics)))

    class Wrong(pa.Trainer):
        def calculate_train_batch_loss(self, batch: Any) -> dict[str, Any]:
            output = super().calculate_train_batch_loss(batch)
            if self.run_history.current_epoch == 2:
                output["loss"] = output["loss"] * float("inf")
            return output

    rising = {"watch_metric": "rising"}
    epoch_end = "on_training_run_epoch_end"
    cases = {
        "early": (pa.EarlyStoppingCallback, epoch_end, rising),
        "save": (pa.SaveBestModelCallback, epoch_end, {"save_path": "s.pt", **rising}),
        "load": (pa.SaveBestModelCallback, "on_training_run_end", {"save_path": "l.pt", **rising}),
        "nan": (pa.TerminateOnNaNCallback, "on_train_step_end", {}),
        "train rows": (Rows, "on_train_epoch_end", {}),
        "eval rows": (Rows, "on_eval_epoch_end", {}),
        "states": (pa.SaveTrainingStateCallback, "on_train_epoch_end",
                   {"save_dir": "states", "save_every_n_epochs": 1, "save_at_end": False}),
    }  # fmt: skip

    class Rises(pa.TrainerCallback):
        def on_train_epoch_end(self, trainer: Any, **kwargs: Any) -> None:
            trainer.run_history.update_metric("rising", float(trainer.run_history.current_epoch))

    found = {}
    for name, (kind, event, options) in cases.items():
        for asks in (False, True):
            callback = replacing(kind, event, asks=asks)(**options)
            trainer = (Wrong if name == "nan" else pa.Trainer)(
                *parts(), callbacks=[Rises(), callback]
            )
            calls.clear()
            with (
                contextlib.chdir(_emptied(folder)),
                contextlib.suppress(SystemExit, FileNotFoundError),
            ):
                trainer.train(data(), 3, data(6, 1), per_device_batch_size=4, **BOTH)
            saved = any(file.is_file() for file in folder.rglob("*"))
            # rows of the training come before those of the evaluation there, and after them here
            about = {"calls": sorted(calls), "saved": saved}
            if name != "nan":
                about |= {"weights": outcome(trainer)["weights"]}
            found[f"{name} {asks}"] = about
    return found


def _emptied(folder: Path) -> Path:
    for file in folder.iterdir():
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    return folder


def stopped_in_an_evaluation(pa: SimpleNamespace, folder: Path) -> dict[str, Any]:
    """A stop before a step of an evaluation: that step does not end."""
    calls: list[str] = []

    class Reads(pa.TrainerCallback):
        def on_eval_step_end(
            self, trainer: Any, batch: Any, batch_output: Any, **kwargs: Any
        ) -> None:
            calls.append(f"end {list(batch_output['model_outputs'].shape)}")

    class Stop(pa.TrainerCallback):
        def on_eval_step_start(self, trainer: Any, **kwargs: Any) -> None:
            calls.append("start")
            if calls.count("start") == 2:
                raise pa.StopTrainingError("enough")

    trainer = pa.Trainer(*parts(), callbacks=[Reads(), Stop()])
    trainer.train(data(), 2, data(10, 1), per_device_batch_size=4, **BOTH)
    return {"calls": calls}


def event_named_as_a_hook(pa: SimpleNamespace, folder: Path) -> dict[str, Any]:
    """Events of one's own that begin with on_, also of a callback that is added later."""
    calls: list[Any] = []

    class Listens(pa.TrainerCallback):
        def on_loss_computed(self, trainer: Any, loss: Any) -> None:
            calls.append(round(float(loss.detach()), 5))

    class Fires(pa.Trainer):
        def calculate_train_batch_loss(self, batch: Any) -> dict[str, Any]:
            output = super().calculate_train_batch_loss(batch)
            self.callback_handler.call_event("on_loss_computed", trainer=self, loss=output["loss"])
            return output

    trainer = Fires(*parts(), callbacks=[Listens()])
    trainer.callback_handler.add_callback(type("Later", (Listens,), {}))
    trainer.train(data(), 1, per_device_batch_size=4, **BOTH)
    return outcome(trainer, calls=calls)


def attributes_of_built_ins(pa: SimpleNamespace, folder: Path) -> dict[str, Any]:
    """The best value, its epoch and the counter, at each epoch; and the entries of the file."""
    stopper = pa.EarlyStoppingCallback(3, 0.2, "rising", greater_is_better=True)
    saver = pa.SaveBestModelCallback(
        str(folder / "b.pt"), "rising", greater_is_better=True, save_optimizer=False,
        load_saved_checkpoint=False,
    )  # fmt: skip
    seen: list[Any] = []
    values = iter([1.0, 3.0, 3.1, 2.0])

    class Rises(pa.TrainerCallback):
        def on_train_epoch_end(self, trainer: Any, **kwargs: Any) -> None:
            note()
            trainer.run_history.update_metric("rising", next(values))

    def note() -> None:
        seen.append([
            stopper.best_metric, stopper.early_stopping_patience_counter, saver.best_metric,
            saver.best_metric_epoch,
        ])  # fmt: skip

    trainer = pa.Trainer(*parts(), callbacks=[Rises(), stopper, saver])
    trainer.train(data(), 4, per_device_batch_size=4, **BOTH)
    note()
    names = (
        "watch_metric", "greater_is_better", "early_stopping_patience", "early_stopping_threshold",
        "reset_on_train",
    )  # fmt: skip
    saver_names = ("watch_metric", "greater_is_better", "save_optimizer", "reset_on_train")
    saved = torch.load(folder / "b.pt", weights_only=True)
    return {
        "seen": seen,
        "stopper": [getattr(stopper, name) for name in names],
        "saver": [getattr(saver, name) for name in saver_names],
        "operators": [stopper.operator(2, 1), saver.operator(1, 2)],
        "triggered": pa.TerminateOnNaNCallback().triggered,
        "has_optimizer": "optimizer_state_dict" in saved,
        "weights": outcome(trainer)["weights"],
    }


def epochs_of_several_runs(pa: SimpleNamespace, folder: Path) -> dict[str, Any]:
    """The history's epoch, inside and after trainings and evaluations; the loaders' device."""
    seen: list[Any] = []

    class Sees(pa.TrainerCallback):
        def on_train_epoch_start(self, trainer: Any, **kwargs: Any) -> None:
            seen.append(["epoch", trainer.run_history.current_epoch])

        def on_eval_epoch_start(self, trainer: Any, **kwargs: Any) -> None:
            device = str(trainer._eval_dataloader.device)
            seen.append(["evaluation", trainer.run_history.current_epoch, device])

    trainer = pa.Trainer(*parts(), callbacks=[Sees()])
    for run in ("train", "evaluate", "train", "go on", "evaluate"):
        before = len(seen)
        if run == "evaluate":
            trainer.evaluate(data(6, 1), 4, {"num_workers": 0})
        else:
            trainer.train(
                data(), 2, data(6, 1), per_device_batch_size=4, reset_run_history=run == "train",
                **BOTH,
            )  # fmt: skip
        if run == "go on":  # there it ends with its first step, as earlier steps count
            del seen[before + 1 :]
        else:
            seen.append([run, trainer.run_history.current_epoch])
    return {"seen": seen}


def changed_in_callbacks(pa: SimpleNamespace, folder: Path) -> dict[str, Any]:
    """Callbacks that change the model, the loss, a rate and the weights of a run under way."""

    class Changes(pa.TrainerCallback):
        def on_training_run_start(self, trainer: Any, **kwargs: Any) -> None:
            trainer.model = nn.Sequential(trainer.model, nn.Tanh())

        def on_train_epoch_start(self, trainer: Any, **kwargs: Any) -> None:
            trainer.optimizer.param_groups[0]["lr"] /= 2
            trainer.loss_func = nn.CrossEntropyLoss(label_smoothing=0.1)

        def on_train_epoch_end(self, trainer: Any, **kwargs: Any) -> None:
            with torch.no_grad():
                next(trainer.model.parameters()).mul_(0.5)

    trainer = pa.Trainer(*parts(), callbacks=[Changes()])
    trainer.train(data(), 2, data(6, 1), per_device_batch_size=4, **BOTH)
    return outcome(trainer)


def frozen_parts(pa: SimpleNamespace, folder: Path) -> dict[str, Any]:
    """Parts of a model, frozen and unfrozen by their place."""
    model = nn.Sequential(
        nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU()), nn.Tanh(),
        nn.Linear(4, 3),
    )  # fmt: skip
    seen: list[Any] = []

    def note(freezer: Any) -> None:
        seen.append([
            [parameter.requires_grad for parameter in model.parameters()],
            [module.training for module in model.modules()],
            [[*group.layer_group_idx, group.is_frozen] for group in freezer.get_layer_groups()],
            [[*layer.layer_group_idx, layer.is_frozen, type(layer.module).__name__]
             for layer in freezer.get_layers()],
            len(freezer.get_trainable_parameters()), freezer.num_groups,
        ])  # fmt: skip

    for batch_norms in (False, True):
        freezer = pa.ModelFreezer(model, freeze_batch_norms=batch_norms)
        note(freezer)
        for action in (
            freezer.freeze, partial(freezer.unfreeze, from_index=-2), freezer.unfreeze,
            partial(freezer.freeze, 1, 1), partial(freezer.freeze, -1, 0),
        ):  # fmt: skip
            changed = action() or {}
            seen.append({str(k): len(v["params"]) for k, v in changed.items()})
            note(freezer)
    return {"seen": seen}


PROGRAMS = {
    program.__name__: program
    for program in (
        plain, every_call, accumulated, clipped, one_cycle, computed_placeholder, limited_steps,
        metrics_in_a_callback, metrics_in_a_trainer, own_loss_and_outputs, custom_event,
        overridden_steps, early_stopping, evaluated, trained_twice, own_loader,
        stopped_by_raising, nan_ends_it, limited_batches, weights_and_files,
        assigned_losses, replaced_hooks, stopped_in_an_evaluation, event_named_as_a_hook,
        attributes_of_built_ins, epochs_of_several_runs, changed_in_callbacks, frozen_parts,
    )
}  # fmt: skip
