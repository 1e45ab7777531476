"""What else is often written: several verbs in a row, views of the run, less common callbacks."""

from __future__ import annotations

import datetime as dt
import importlib

import torch

from programs import differs


def save_weights_only(x):
    """`ModelCheckpoint(save_weights_only=True)`."""
    saver = x.callbacks.ModelCheckpoint(dirpath=x.folder / "saved", save_weights_only=True)
    x.trainer(saver, enable_checkpointing=True).fit(x.Net(), x.loader(2))
    found = torch.load(saver.best_model_path, weights_only=False)
    return {"full": [name for name in ("optimizer_states", "callbacks") if name in found]}


def checkpoints_by_time(x):
    """`train_time_interval` of no length saves after each batch; one file is kept."""
    saver = x.callbacks.ModelCheckpoint(
        dirpath=x.folder / "saved", train_time_interval=dt.timedelta(microseconds=1), save_top_k=-1,
        filename="{step}",
    )  # fmt: skip
    x.trainer(saver, enable_checkpointing=True).fit(x.Net(), x.loader(3))
    return {"files": x.files("saved/*")}


def two_checkpoint_callbacks(x):
    """Two of them in one run, each with its files and state."""
    first = x.callbacks.ModelCheckpoint(dirpath=x.folder / "a", monitor="val")
    second = x.callbacks.ModelCheckpoint(dirpath=x.folder / "b", every_n_train_steps=2)
    trainer = x.trainer(first, second, enable_checkpointing=True, max_epochs=2)
    trainer.fit(x.Net(), x.loader(3), x.loader(1))
    return {"files": x.files("**/*.ckpt"), "first": trainer.checkpoint_callback is first}


def checkpoint_resumes(x):
    """A resumed ModelCheckpoint knows its best."""

    def saver():
        return x.callbacks.ModelCheckpoint(
            dirpath=x.folder / "saved", monitor="val", mode="max", save_last=True
        )

    first = saver()
    x.trainer(first, enable_checkpointing=True, max_epochs=2).fit(x.Net(), x.loader(3), x.loader(1))
    second = saver()
    x.trainer(second, enable_checkpointing=True, max_epochs=4).fit(
        x.Net(), x.loader(3), x.loader(1), ckpt_path=first.last_model_path
    )
    return {
        "same": second.best_model_path == first.best_model_path,
        "score": float(second.best_model_score), "files": x.files("saved/*"),
    }  # fmt: skip


def state_key_of_model_checkpoint(x):
    """The key of its state in a file, which Lightning's files have, too."""
    saver = x.callbacks.ModelCheckpoint(dirpath=x.folder / "saved", monitor="val")
    trainer = x.trainer(saver, x.callbacks.EarlyStopping("val"), enable_checkpointing=True)
    trainer.fit(x.Net(), x.loader(2), x.loader(1))
    trainer.save_checkpoint(x.folder / "a.ckpt")
    found = torch.load(x.folder / "a.ckpt", weights_only=False)["callbacks"]
    state = next(value for key, value in found.items() if key.startswith("ModelCheckpoint"))
    known = (
        "monitor", "best_model_score", "best_model_path", "current_score", "dirpath",
        "best_k_models", "kth_best_model_path", "kth_value", "last_model_path",
    )  # fmt: skip
    return {
        "keys": sorted(found), "state": [name for name in known if name in state],
        "score": float(state["best_model_score"]), "monitor": state["monitor"],
    }  # fmt: skip


def verbs_in_a_row(x):
    """fit, validate, test, predict and fit again leave the counters as they are."""
    trainer, module = x.trainer(max_epochs=1), x.Net()
    seen = []
    trainer.fit(module, x.loader(3), x.loader(1))
    seen.append(x.counters(trainer))
    trainer.validate(module, x.loader(1), verbose=False)
    trainer.test(module, x.loader(2), verbose=False)
    trainer.predict(module, x.loader(2))
    seen.append(x.counters(trainer))
    trainer.fit_loop.max_epochs = 2
    trainer.fit(module, x.loader(3), x.loader(1))
    seen.append(x.counters(trainer))
    return {"seen": seen, "weights": x.weights(module), "training": module.training}


def metrics_after_another_verb(x):
    """What of a fit's metrics is left after a test."""
    trainer, module = x.trainer(), x.Net()
    trainer.fit(module, x.loader(2), x.loader(1))
    fitted = sorted(trainer.callback_metrics)
    trainer.test(module, x.loader(1), verbose=False)
    return {"fitted": fitted, "tested": sorted(trainer.callback_metrics)}


@differs("`trainer.state.status` in `teardown`", torn=("running", "finished"))
def on_train_end_sees(x):
    """Counters and stage in the last hooks."""
    seen = []

    class See(x.Callback):
        def _look(self, trainer, where):
            seen.append(
                [where, trainer.current_epoch, trainer.global_step, trainer.training,
                 trainer.state.fn, trainer.state.status]
            )  # fmt: skip

        def on_train_epoch_end(self, trainer, module):
            self._look(trainer, "epoch end")

        def on_train_end(self, trainer, module):
            self._look(trainer, "train end")

        def on_fit_end(self, trainer, module):
            self._look(trainer, "fit end")

        def teardown(self, trainer, module, stage):
            self._look(trainer, "teardown")

    x.trainer(See(), max_epochs=2).fit(x.Net(), x.loader(2))
    return {"torn": seen[-1].pop(), "seen": seen}


def counters_in_validation(x):
    """`global_step` and `current_epoch` in a validation inside and at the end of an epoch."""
    seen = []

    class Net(x.Net):
        def on_validation_start(self):
            seen.append([self.current_epoch, self.global_step, self.trainer.is_last_batch])

    x.trainer(val_check_interval=2, max_epochs=2).fit(Net(), x.loader(4), x.loader(1))
    return {"seen": seen}


def stop_in_a_validation(x):
    """`should_stop` set in a validation inside of the epoch."""
    hooks = x.hooks("on_train_batch_end", "on_train_epoch_end", "on_validation_end")

    class Net(x.Net):
        def on_validation_epoch_end(self):
            self.trainer.should_stop = True

    trainer = x.trainer(hooks, val_check_interval=2, max_epochs=3)
    trainer.fit(Net(), x.loader(6), x.loader(1))
    return {"calls": hooks.calls, "counters": x.counters(trainer)}


def stop_before_training(x):
    """`should_stop` set in `on_train_start`."""
    hooks = x.hooks("on_train_epoch_start", "on_train_batch_start", "on_train_end")

    class Net(x.Net):
        def on_train_start(self):
            self.trainer.should_stop = True

    trainer = x.trainer(hooks, max_epochs=3)
    trainer.fit(Net(), x.loader(3))
    return {"calls": hooks.calls, "counters": x.counters(trainer)}


def throughput_monitor(x):
    """The names that `ThroughputMonitor` logs."""
    monitor = x.callbacks.ThroughputMonitor(batch_size_fn=len, window_size=2)
    journal = x.journal()
    trainer, module = x.trainer(monitor, logger=journal, log_every_n_steps=1), x.Net()
    trainer.fit(module, x.loader(4))
    trainer.predict(module, x.loader(2))
    rows = [row for row in journal.rows if "epoch" not in row[1] or len(row[1]) > 1]
    return {
        "steps": [step for step, _ in rows],
        "samples": [row.get("train|samples") for _, row in rows],
        "batches": [row.get("train|batches") for _, row in rows],
        "names": [sorted(row) for _, row in rows],
    }


def grad_norm(x):
    """`grad_norm` of a module's gradients."""
    where = "pytorch_lightning.utilities" if x.is_lightning else "trainer_hooks.utilities"
    norms = importlib.import_module(where).grad_norm
    seen = []

    class Net(x.Net):
        def on_before_optimizer_step(self, optimizer):
            seen.append(norms(self.layer, norm_type=2))

    x.trainer().fit(Net(), x.loader(2))
    return {"seen": seen}


def batch_norm(x):
    """Running statistics after training and validation."""

    class Net(x.Net):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(2)

        def forward(self, batch):
            return self.layer(self.norm(batch))

    module = Net()
    x.trainer(max_epochs=2, num_sanity_val_steps=1).fit(module, x.loader(3), x.loader(2))
    return {"weights": x.weights(module)}


def several_losses(x):
    """A loss of several parts, logged apart, with a weight that is a buffer."""

    class Net(x.Net):
        def __init__(self):
            super().__init__()
            self.register_buffer("share", torch.tensor(0.3))

        def training_step(self, batch, batch_idx):
            first, second = self.cost(batch), self.layer.weight.abs().sum()
            self.log_dict({"first": first, "second": second}, prog_bar=True)
            return {"loss": first + self.share * second, "first": first.detach()}

    module, journal = Net(), x.journal()
    trainer = x.trainer(logger=journal, log_every_n_steps=2, max_epochs=2)
    trainer.fit(module, x.loader(3))
    return {"weights": x.weights(module), "rows": journal.rows, **x.metrics(trainer)}


def gan(x):
    """A generator and a discriminator in manual optimization with schedulers."""

    class Gan(x.Module):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False
            self.made, self.judged = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)
            with torch.no_grad():
                for number, parameter in enumerate(self.parameters()):
                    parameter.fill_(0.1 * (number + 1))

        def training_step(self, batch, batch_idx):
            first, second = self.optimizers()
            self.toggle_optimizer(first)
            loss = -self.judged(self.made(batch)).mean()
            self.log("g", loss, prog_bar=True)
            self.manual_backward(loss)
            first.step()
            first.zero_grad()
            self.untoggle_optimizer(first)
            self.toggle_optimizer(second)
            loss = self.judged(self.made(batch).detach()).mean() - self.judged(batch).mean()
            self.log("d", loss, prog_bar=True)
            self.manual_backward(loss)
            second.step()
            second.zero_grad()
            self.untoggle_optimizer(second)

        def on_train_epoch_end(self):
            for scheduler in self.lr_schedulers():
                scheduler.step()

        def configure_optimizers(self):
            first = torch.optim.Adam(self.made.parameters(), 0.01, betas=(0.5, 0.9))
            second = torch.optim.Adam(self.judged.parameters(), 0.02)
            return [first, second], [
                torch.optim.lr_scheduler.ExponentialLR(one, 0.5) for one in (first, second)
            ]

    module, journal = Gan(), x.journal()
    trainer = x.trainer(logger=journal, log_every_n_steps=1, max_epochs=2)
    trainer.fit(module, x.loader(3))
    return {"weights": x.weights(module), "rows": journal.rows, "counters": x.counters(trainer)}


def manual_and_checkpoints(x):
    """Manual optimization with two optimizers and saves by steps."""

    class Net(x.Net):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch, batch_idx):
            for optimizer in self.optimizers():
                optimizer.zero_grad()
                self.manual_backward(self.cost(batch))
                optimizer.step()

        def configure_optimizers(self):
            return [torch.optim.SGD(self.parameters(), 0.1) for _ in range(2)]

    saver = x.callbacks.ModelCheckpoint(
        dirpath=x.folder / "saved", every_n_train_steps=4, save_top_k=-1, filename="{step}"
    )
    trainer = x.trainer(saver, enable_checkpointing=True)
    trainer.fit(Net(), x.loader(6))
    return {"files": x.files("saved/*"), "step": trainer.global_step}


def logging_axis_in_manual_optimization(x):
    """The x axis of loggers where two optimizers step in a batch."""

    class Net(x.Net):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch, batch_idx):
            self.log("i", float(batch_idx))
            for optimizer in self.optimizers():
                self.manual_backward(self.cost(batch))
                optimizer.step()
                optimizer.zero_grad()

        def configure_optimizers(self):
            return [torch.optim.SGD(self.parameters(), 0.1) for _ in range(2)]

    journal = x.journal()
    x.trainer(logger=journal, log_every_n_steps=2).fit(Net(), x.loader(4))
    return {"rows": journal.rows}


def a_callback_that_evaluates(x):
    """A callback reads `outputs` and writes to the logger itself."""

    class Writes(x.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            trainer.logger.log_metrics({"own": float(outputs["loss"])}, step=trainer.global_step)

    journal = x.journal()
    x.trainer(Writes(), logger=journal).fit(x.Net(), x.loader(2))
    return {"rows": journal.rows}


def rank_zero_only(x):
    """A function of the first process is called, and returns."""
    where = "pytorch_lightning.utilities" if x.is_lightning else "trainer_hooks.utilities"
    only = importlib.import_module(where).rank_zero_only
    return {"returned": only(lambda value: value + 1)(2)}


def tensorboard_logger(x):
    """Names and folders of the TensorBoardLogger."""
    logger = x.loggers.TensorBoardLogger(x.folder, name="runs", version="one")

    class Net(x.Net):
        def __init__(self, width=3):
            super().__init__()
            self.save_hyperparameters()

    x.trainer(logger=logger, log_every_n_steps=1).fit(Net(), x.loader(2), x.loader(1))
    return {
        "name": logger.name, "version": logger.version,
        "folder": str(logger.log_dir).replace(str(x.folder), ""),
        "files": [name.partition(".")[0] for name in x.files("runs/**/events*")],
        "hparams": x.files("runs/**/hparams.yaml"),
    }  # fmt: skip


def versions_of_a_csv_logger(x):
    """A second run has the next version."""
    seen = []
    for _ in range(2):
        logger = x.loggers.CSVLogger(x.folder, name="runs")
        x.trainer(logger=logger).fit(x.Net(), x.loader(1), x.loader(1))
        seen.append([logger.version, str(logger.log_dir).replace(str(x.folder), "")])
    return {"seen": seen}


def checkpoints_in_the_loggers_folder(x):
    """Without `dirpath` the files go to the logger's folder."""
    logger = x.loggers.CSVLogger(x.folder, name="runs", version="one")
    trainer = x.trainer(logger=logger, enable_checkpointing=True)
    trainer.fit(x.Net(), x.loader(2))
    return {"files": x.files("**/*.ckpt")}


def inference_outputs_and_grad(x):
    """Predictions need no gradient, and training after a prediction has gradients."""
    trainer, module = x.trainer(), x.Net()
    predicted = trainer.predict(module, x.loader(1))
    trainer.fit(module, x.loader(2))
    return {"needs": predicted[0].requires_grad, "weights": x.weights(module)}


def compiled_forward_is_left(x):
    """A module with a hand-made `forward` of two inputs, batches that are pairs."""

    class Pairs(torch.utils.data.Dataset):
        def __len__(self):
            return 6

        def __getitem__(self, index):
            return torch.ones(2) * index / 10, torch.tensor([index / 5])

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            inputs, targets = batch
            loss = torch.nn.functional.mse_loss(self(inputs), targets)
            self.log("mse", loss, on_step=False, on_epoch=True)
            return loss

    module, trainer = Net(), x.trainer(max_epochs=2)
    trainer.fit(module, torch.utils.data.DataLoader(Pairs(), batch_size=4))
    return {"weights": x.weights(module), **x.metrics(trainer)}
