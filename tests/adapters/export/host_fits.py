"""One training in our Trainer and in those of other frameworks: same model, data, seed, optimizer.

A host is a class with `fit`; its framework is imported when that is called.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCHES = 4
"""Batches of an epoch."""


class Rows(Dataset):
    """Eight samples, of which some can be spoiled or fail to load.

    Args:
        spoiled: values to put in place of samples, by index.
        fails_at: raise at the n-th sample that is loaded, counted from 1.
        on_load: is called with the index of each sample.
        named: whether samples are dicts.
    """

    def __init__(self, spoiled=None, fails_at=0, on_load=None, named=False):
        self.spoiled, self.fails_at, self.on_load = spoiled or {}, fails_at, on_load
        self.named, self.loaded = named, 0

    def __len__(self):
        return 2 * BATCHES

    def __getitem__(self, index):
        self.loaded += 1
        if self.loaded == self.fails_at:
            raise RuntimeError("no such sample")
        if self.on_load is not None:
            self.on_load(index)
        row = torch.arange(4.0) / 4 + index / 8
        target = row.sum().reshape(1) / 4
        if index in self.spoiled:
            row = torch.full((4,), self.spoiled[index])
        return {"x": row, "labels": target} if self.named else (row, target)


class Layers:
    """The layers of all models, which stand before the framework's class among the bases."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.backbone = nn.Linear(4, 3)
        self.head = nn.Linear(3, 1)

    def predict(self, x):
        return self.head(torch.tanh(self.backbone(x)))


class PlainNet(Layers, nn.Module):
    """The model without a framework."""

    def forward(self, x):
        return self.predict(x)


class LoggingSteps(Layers):
    """The methods of a LightningModule, Lightning's or ours."""

    def forward(self, x):
        return self.predict(x)

    def training_step(self, batch, batch_idx):
        loss = nn.functional.mse_loss(self(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", nn.functional.mse_loss(self(batch[0]), batch[1]))

    def configure_optimizers(self):
        return sgd(self)


class TransformersNet(Layers, nn.Module):
    """The model for Hugging Face's Trainer, with a loss of its own."""

    _keys_to_ignore_on_save = None  # asked for when a checkpoint has other weights

    def forward(self, x, labels=None):
        out = self.predict(x)
        if labels is None:
            return {"logits": out}
        return {"loss": nn.functional.mse_loss(out, labels), "logits": out}


class ComposerSteps(Layers):
    """The methods of a ComposerModel."""

    def __init__(self):
        import torchmetrics

        super().__init__()
        self.metric = torchmetrics.MeanSquaredError()

    def forward(self, batch):
        return self.predict(batch[0] if isinstance(batch, list | tuple) else batch)

    def loss(self, outputs, batch):
        return nn.functional.mse_loss(outputs, batch[1])

    def eval_forward(self, batch, outputs=None):
        return self(batch) if outputs is None else outputs

    def get_metrics(self, is_train=False):
        return {} if is_train else {"MeanSquaredError": self.metric}

    def update_metric(self, batch, outputs, metric):
        metric.update(outputs, batch[1])


def sgd(module):
    """Make the optimizer of the parameters that are trained."""
    return torch.optim.SGD([p for p in module.parameters() if p.requires_grad], 0.1, momentum=0.5)


@dataclass
class Fit:
    """A training that is over.

    Attributes:
        module: the trained model.
        steps: its optimizer steps.
        logged: the values that the framework logged by name.
        trainer: the framework's trainer.
        checkpoints: the checkpoints that it saved, by step.
        error: the error that ended it.
    """

    module: Any
    trainer: Any
    steps: int = 0
    logged: dict[str, list[float]] = field(default_factory=dict)
    checkpoints: dict[int, Any] = field(default_factory=dict)
    error: BaseException | None = None

    @property
    def weights(self):
        return [p.detach().clone() for p in self.module.parameters()]


class Here:
    """Our own Trainer."""

    name = "here"
    monitor = "val_loss"
    processes = 1

    def convert(self, callback):
        return callback

    def fit(self, *callbacks, epochs=3, data=None, resume=None, saves=False, accumulate=1, every=1):
        import trainer_hooks
        from trainer_hooks import callbacks as built_in
        from trainer_hooks.loggers import InMemoryLogger

        class Net(LoggingSteps, trainer_hooks.Module):
            """The model."""

        logger = InMemoryLogger()
        trainer = trainer_hooks.Trainer(
            max_epochs=epochs, accelerator="cpu", logger=logger, log_every_n_steps=every,
            callbacks=list(callbacks),
            enable_checkpointing=any(isinstance(c, built_in.Checkpoint) for c in callbacks),
            enable_progress_bar=any(isinstance(c, built_in.ProgressBar) for c in callbacks),
            enable_model_summary=any(isinstance(c, built_in.ModelSummary) for c in callbacks),
            num_sanity_val_steps=0,
            accumulate_grad_batches=accumulate, plugins=False,
            enable_run_manifest=any(isinstance(c, built_in.RunManifest) for c in callbacks),
        )  # fmt: skip
        module = Net()
        done = Fit(module, trainer)
        try:
            trainer.fit(
                module, DataLoader(data or Rows(), batch_size=2),
                DataLoader(Rows(), batch_size=2), ckpt_path=resume,
            )  # fmt: skip
        except Exception as error:
            done.error = error
        done.steps = trainer.global_step
        done.logged = {
            name: trainer.history.get_metric_values(name)
            for name in trainer.history.get_metric_names()
        }
        # some callbacks write to the loggers alone
        for _, values in logger.metrics:
            for name, value in values.items():
                done.logged.setdefault(name, [value])[-1] = value
        return done


class InLightning(Here):
    """Lightning's Trainer."""

    name = "lightning"

    def convert(self, callback):
        from trainer_hooks.adapters import to_lightning

        return to_lightning(callback)

    def fit(self, *callbacks, epochs=3, data=None, resume=None, saves=False, accumulate=1, every=1):
        import pytorch_lightning as pl
        from pytorch_lightning.loggers.logger import Logger

        class Net(LoggingSteps, pl.LightningModule):
            """The model."""

        logged: dict[str, list[float]] = {}

        class Heard(Logger):
            name, version = "heard", 0

            def log_hyperparams(self, *args, **kwargs):
                pass

            def log_metrics(self, metrics, step=None):
                for name, value in metrics.items():
                    logged.setdefault(name, []).append(float(value))

        checkpoints = {}
        converted = [self.convert(callback) for callback in callbacks]
        savers = []
        if saves:
            savers = [
                pl.callbacks.ModelCheckpoint(
                    "saved", "{step}", save_top_k=-1, auto_insert_metric_name=False
                )
            ]
        kinds = [kind for item in converted for kind in type(item).__mro__]
        trainer = pl.Trainer(
            max_epochs=epochs, accelerator="cpu", logger=Heard(), log_every_n_steps=every,
            callbacks=[*converted, *savers],
            enable_checkpointing=bool(savers) or pl.callbacks.Checkpoint in kinds,
            enable_progress_bar=pl.callbacks.ProgressBar in kinds, enable_model_summary=False,
            num_sanity_val_steps=0, accumulate_grad_batches=accumulate, devices=self.processes,
            strategy="ddp" if self.processes > 1 else "auto",
        )  # fmt: skip
        module = Net()
        done = Fit(module, trainer, logged=logged, checkpoints=checkpoints)
        try:
            trainer.fit(
                module, DataLoader(data or Rows(), batch_size=2),
                DataLoader(Rows(), batch_size=2), ckpt_path=resume, weights_only=False,
            )  # fmt: skip
        except Exception as error:
            done.error = error
        done.steps = trainer.global_step
        if saves:
            done.checkpoints.update(
                {int(p.stem): str(p) for p in Path("saved").glob("*.ckpt") if p.stem.isdigit()}
            )
        return done


class InTransformers(Here):
    """Hugging Face's Trainer."""

    name = "transformers"
    monitor = "eval_loss"
    named = True

    def convert(self, callback):
        from trainer_hooks.adapters import to_transformers

        return to_transformers(callback)

    def fit(self, *callbacks, epochs=3, data=None, resume=None, saves=False, accumulate=1, every=1):
        import transformers

        module = TransformersNet()
        arguments = transformers.TrainingArguments(
            output_dir="there", num_train_epochs=epochs, per_device_train_batch_size=2,
            per_device_eval_batch_size=2, eval_strategy="epoch",
            save_strategy="epoch" if saves else "no", report_to=[], logging_steps=every,
            use_cpu=True, disable_tqdm=True, train_sampling_strategy="sequential",
            max_grad_norm=0, gradient_accumulation_steps=accumulate, learning_rate=0.1,
            lr_scheduler_type="constant", dataloader_num_workers=0, dataloader_pin_memory=False,
            weight_decay=0.0, logging_nan_inf_filter=False,
        )  # fmt: skip
        trainer = transformers.Trainer(
            module, arguments, train_dataset=data or Rows(named=True),
            eval_dataset=Rows(named=True),
            callbacks=[self.convert(callback) for callback in callbacks],
            optimizers=(sgd(module), None),
        )  # fmt: skip
        trainer.remove_callback(transformers.trainer_callback.PrinterCallback)
        done = Fit(module, trainer)
        try:
            trainer.train(resume_from_checkpoint=resume)
        except Exception as error:
            done.error = error
        done.steps = trainer.state.global_step
        for row in trainer.state.log_history:
            for name, value in row.items():
                done.logged.setdefault(name, []).append(value)
        done.checkpoints.update(
            {int(p.name.partition("-")[2]): str(p) for p in Path("there").glob("checkpoint-*")}
        )
        return done


class InComposer(Here):
    """Composer's Trainer."""

    name = "composer"
    monitor = "MeanSquaredError"

    def convert(self, callback):
        from trainer_hooks.adapters import to_composer

        return to_composer(callback)

    def fit(self, *callbacks, epochs=3, data=None, resume=None, saves=False, accumulate=1, every=1):
        import composer
        from composer.loggers import LoggerDestination

        class Net(ComposerSteps, composer.ComposerModel):
            """The model."""

        logged: dict[str, list[float]] = {}

        class Heard(LoggerDestination):
            def log_metrics(self, metrics, step=None):
                for name, value in metrics.items():
                    logged.setdefault(name, []).append(float(value))

        module = Net()
        trainer = composer.Trainer(
            model=module, train_dataloader=DataLoader(data or Rows(), batch_size=2),
            eval_dataloader=DataLoader(Rows(), batch_size=2), optimizers=sgd(module),
            max_duration=f"{epochs}ep", device="cpu", progress_bar=False,
            callbacks=[self.convert(callback) for callback in callbacks], loggers=[Heard()],
            load_path=resume, save_folder="saved" if saves else None, save_interval="1ep",
            save_filename="ba{batch}.pt", save_latest_filename=None, save_overwrite=True,
            run_name="run", auto_log_hparams=False, log_to_console=False,
            device_train_microbatch_size=2 // accumulate,
        )  # fmt: skip
        # the option of our Trainer, which Composer has not
        _set_logging(trainer.state.callbacks, every)
        done = Fit(module, trainer, logged=logged)
        try:
            trainer.fit()
        except Exception as error:
            done.error = error
        done.steps = int(trainer.state.timestamp.batch)
        done.checkpoints.update({int(p.stem[2:]): str(p) for p in Path("saved").glob("ba*.pt")})
        trainer.close()
        return done


def _set_logging(callbacks, every):
    for item in callbacks:
        if hasattr(item, "trainer_hooks_driver"):
            item.trainer_hooks_driver.trainer.log_every_n_steps = every


class InAccelerated(Here):
    """pytorch-accelerated's Trainer."""

    name = "accelerated"
    monitor = "eval_loss_epoch"

    def convert(self, callback):
        from trainer_hooks.adapters import to_accelerated

        return to_accelerated(callback, log_every_n_steps=1)

    def fit(self, *callbacks, epochs=3, data=None, resume=None, saves=False, accumulate=1, every=1):
        import pytorch_accelerated
        from pytorch_accelerated.callbacks import TrainerCallback

        class Saves(TrainerCallback):
            def on_training_run_epoch_end(self, trainer, **kwargs):
                trainer.save_training_state(f"saved/{trainer.run_history.current_epoch}")

        module = PlainNet()
        given = [self.convert(callback) for callback in callbacks] + ([Saves()] if saves else [])
        trainer = pytorch_accelerated.Trainer(module, nn.MSELoss(), sgd(module), given)
        done = Fit(module, trainer)
        options = {"num_workers": 0, "pin_memory": False}
        try:
            trainer.train(
                data or Rows(), epochs - (resume is not None), Rows(), per_device_batch_size=2,
                gradient_accumulation_steps=accumulate, resume_from=resume,
                train_dataloader_kwargs={"shuffle": False, **options},
                eval_dataloader_kwargs=options,
            )  # fmt: skip
        except Exception as error:
            done.error = error
        history = trainer.run_history
        done.logged = {n: history.get_metric_values(n) for n in history.get_metric_names()}
        before = 0 if resume is None else int(Path(resume).name)
        done.steps = (len(done.logged.get("train_loss_epoch", [])) + before) * BATCHES
        done.checkpoints.update({int(p.name): str(p) for p in Path("saved").glob("*")})
        return done


class InIgnite(Here):
    """Ignite's engines."""

    name = "ignite"

    def convert(self, callback):
        from trainer_hooks.adapters import to_ignite

        return to_ignite(callback, log_every_n_steps=1)

    def fit(self, *callbacks, epochs=3, data=None, resume=None, saves=False, accumulate=1, every=1):
        from ignite.engine import Engine, Events
        from ignite.handlers import Checkpoint, DiskSaver
        from ignite.metrics import Average

        module, loss_fn = PlainNet(), nn.MSELoss()
        optimizer = sgd(module)
        logged: dict[str, list[float]] = {}

        def step(engine, batch):
            module.train()
            loss = loss_fn(module(batch[0]), batch[1]) / accumulate
            loss.backward()
            if engine.state.iteration % accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
            return {"loss": loss.detach()}

        def evaluate(engine, batch):
            module.eval()
            with torch.no_grad():
                return nn.functional.mse_loss(module(batch[0]), batch[1])

        trainer, evaluator = Engine(step), Engine(evaluate)
        Average().attach(evaluator, "val_loss")
        done = Fit(module, trainer, logged=logged)

        @trainer.on(Events.EPOCH_COMPLETED)
        def run_evaluation(engine):
            evaluator.run(DataLoader(Rows(), batch_size=2))

        converted = [self.convert(callback) for callback in callbacks]
        objects = {f"callback{index}": item for index, item in enumerate(converted)}
        objects |= {"model": module, "optimizer": optimizer, "trainer": trainer}
        for item in converted:
            item.attach(
                trainer, module, optimizer, evaluator=evaluator, loss_fn=loss_fn, to_save=objects,
                accumulate_grad_batches=accumulate,
            )  # fmt: skip

        @trainer.on(Events.ITERATION_COMPLETED | Events.EPOCH_COMPLETED | Events.COMPLETED)
        def note(engine):
            for name, value in engine.state.metrics.items():
                logged.setdefault(name, []).append(value)

        if saves:
            saver = Checkpoint(objects, DiskSaver("saved", require_empty=False), n_saved=None)
            trainer.add_event_handler(Events.EPOCH_COMPLETED, saver)
        try:
            if resume is not None:
                states = torch.load(resume, weights_only=True)
                for name, item in objects.items():
                    item.load_state_dict(states[name])
            trainer.run(DataLoader(data or Rows(), batch_size=2), max_epochs=epochs)
        except Exception as error:
            done.error = error
        done.steps = trainer.state.iteration
        done.checkpoints.update(
            {int(p.stem.rpartition("_")[2]): str(p) for p in Path("saved").glob("*.pt")}
        )
        return done
