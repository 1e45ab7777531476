"""Valid uses of Lightning's names that are valid here: options, data, loggers, hooks."""

from __future__ import annotations

import json

import pytest
import torch
from small_modules import ScheduledLinear
from torch.utils.data import DataLoader

from trainer_hooks import Callback, DataModule, TrainerHooksWarning
from trainer_hooks.callbacks import SpikeDetection, TQDMProgressBar
from trainer_hooks.context.plan import NEVER
from trainer_hooks.loggers import CSVLogger, DummyLogger, InMemoryLogger


class Data(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index):
        return torch.full((2,), float(index))


def test_options_that_are_off(Tiny, quiet_trainer, batches) -> None:
    """`log_every_n_steps=0` hands nothing over at steps, also where the run is stopped."""

    class StopsAtOnce(Tiny):
        def training_step(self, batch, batch_idx):
            self.log("each", 1.0, on_step=True, on_epoch=True)
            self.trainer.stop()
            return super().training_step(batch, batch_idx)

    logger = InMemoryLogger()
    trainer = quiet_trainer(
        log_every_n_steps=0, logger=logger, detect_anomaly=None, gradient_clip_val=0, plugins=None
    )
    assert trainer.log_every_n_steps == NEVER
    trainer.fit(StopsAtOnce(), batches(3))
    assert logger.history("each_step") == []
    assert len(logger.history("each_epoch")) == 1


def test_a_reduction_in_capitals(Tiny, quiet_trainer, batches) -> None:
    """`reduce_fx="SUM"` is `"sum"`."""

    class LogsTotal(Tiny):
        def training_step(self, batch, batch_idx):
            self.log("total", 1.0, on_step=False, on_epoch=True, reduce_fx="SUM")
            return super().training_step(batch, batch_idx)

    trainer = quiet_trainer()
    trainer.fit(LogsTotal(), batches(3))
    assert trainer.callback_metrics["total"] == 3.0


def test_a_batch_that_is_none(Tiny, quiet_trainer) -> None:
    """What a collate_fn drops is counted and told of once, and is in no step and no hook."""

    class Seen(Callback):
        def __init__(self) -> None:
            self.batches: list = []

        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            self.batches.append(batch_idx)

    def collate(samples):
        return None if samples[0][0] in (1.0, 3.0) else torch.stack(samples)

    seen = Seen()
    trainer = quiet_trainer(callbacks=[seen], max_epochs=2, accumulate_grad_batches=2)
    with pytest.warns(TrainerHooksWarning, match="gave None for batch 1 of epoch 0") as told:
        trainer.fit(Tiny(), DataLoader(Data(), collate_fn=collate))
    assert len(told) == 1
    assert seen.batches == [0, 2, 0, 2]
    assert (trainer.global_step, trainer.progress.batches_completed) == (4, 8)


def test_no_validation_asks_for_no_loader(Tiny, quiet_trainer, batches) -> None:
    """`limit_val_batches=0` does not call `val_dataloader`."""

    class HasUnneededLoader(Tiny):
        def validation_step(self, batch, batch_idx):
            pass

        def val_dataloader(self):
            pytest.fail("it may not be there")

    quiet_trainer(limit_val_batches=0).fit(HasUnneededLoader(), batches(2))


def test_a_data_module_is_told_the_batch_size() -> None:
    """`from_datasets` hands `batch_size` and `num_workers` to an `__init__` that takes them."""

    class Sized(DataModule):
        def __init__(self, batch_size=1) -> None:
            super().__init__()
            self.batch_size = batch_size

    class Any(DataModule):
        def __init__(self, **kwargs) -> None:
            super().__init__()
            self.given = kwargs

    assert Sized.from_datasets(Data(), batch_size=4).batch_size == 4
    assert Any.from_datasets(Data(), batch_size=4).given == {"batch_size": 4, "num_workers": 0}
    assert DataModule.from_datasets(Data(), batch_size=4).train_dataloader().batch_size == 4


def test_loaders_are_read_as_they_were_given(Tiny, quiet_trainer, batches) -> None:
    """`trainer.val_dataloaders` is one loader, or the list or dict of them; so are the others."""

    class NotesLoaders(Tiny):
        def on_train_start(self):
            seen.append((self.trainer.train_dataloader, self.trainer.val_dataloaders))

        def training_step(self, batch, batch_idx):
            return super().training_step(torch.ones(1, 2), batch_idx)

        def validation_step(self, batch, batch_idx, dataloader_idx=0):
            pass

        def test_step(self, batch, batch_idx, dataloader_idx=0):
            seen.append(self.trainer.test_dataloaders)

        def predict_step(self, batch, batch_idx, dataloader_idx=0):
            seen.append(self.trainer.predict_dataloaders)

    seen: list = []
    one, two = DataLoader(Data(), batch_size=4), DataLoader(Data(), batch_size=4)
    quiet_trainer().fit(NotesLoaders(), one, two)
    quiet_trainer().fit(NotesLoaders(), {"a": one, "b": [two]}, [[one], two])
    trainer = quiet_trainer()
    trainer.test(NotesLoaders(), {"x": one, "y": two}, verbose=False)
    trainer.predict(NotesLoaders(), one)
    assert seen[0] == (one, two)
    assert seen[1] == ({"a": one, "b": [two]}, [[one], two])
    assert seen[2:] == [{"x": one, "y": two}] * 2 + [one]
    assert (trainer.val_dataloaders, trainer.test_dataloaders) == (None, None)


@pytest.mark.parametrize("given", [None, True, CSVLogger("unused")])
def test_a_dry_run_has_a_logger(Tiny, quiet_trainer, batches, tmp_path, given) -> None:
    """Under fast_dev_run `logger.experiment` takes any call and writes nothing."""

    class UsesLoggerOfDryRun(Tiny):
        def on_train_start(self):
            self.logger.experiment.add_text("a", "b")
            with self.logger.experiment.run.start(1) as run:
                run["x"] = run["y"]
            self.logger.log_hyperparams({"a": 1})

    trainer = quiet_trainer(fast_dev_run=True, logger=given)
    trainer.fit(UsesLoggerOfDryRun(), batches(2))
    assert isinstance(trainer.logger, DummyLogger)
    assert trainer.log_dir == str(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_for_the_list_of_spikes(Tiny, quiet_trainer, batches, tmp_path) -> None:
    """`exclude_batches_path` may be a folder that is there."""
    (tmp_path / "skip_batches.json").write_text("[1]", encoding="utf-8")
    detection = SpikeDetection(exclude_batches_path=tmp_path, atol=1e6, rtol=None)
    trainer = quiet_trainer(callbacks=[detection])
    trainer.fit(Tiny(), batches(3))
    assert trainer.global_step == 2


@pytest.mark.parametrize("interval", [1.0, 0.5])
def test_epoch_schedulers_step_before_the_last_batch_ends(
    quiet_trainer, batches, tmp_path, interval
) -> None:
    """They step once an epoch, before `on_train_batch_end`; a resume from there does not again."""

    class NotesRates(ScheduledLinear):
        def validation_step(self, batch, batch_idx):
            pass

        def on_train_batch_end(self, outputs, batch, batch_idx):
            rates.append(round(self.lr_schedulers().get_last_lr()[0], 6))

    class Saver(Callback):
        def on_batch_checkpoint(self, trainer, module):
            if trainer.progress.batches_completed == 4:
                trainer.save_checkpoint(tmp_path / "x.ckpt")

    rates: list[float] = []
    options = {"max_epochs": 2, "val_check_interval": interval, "callbacks": [Saver()]}
    module = NotesRates()
    quiet_trainer(**options).fit(module, batches(4), batches(1))
    assert rates == [0.1] * 3 + [0.01] * 4 + [0.001]
    rates.clear()
    again = NotesRates()
    quiet_trainer(**options).fit(again, batches(4), batches(1), ckpt_path=tmp_path / "x.ckpt")
    assert rates == [0.01] * 3 + [0.001]
    assert torch.equal(module.layer.weight, again.layer.weight)


def test_hyperparameters_as_yaml(tmp_path) -> None:
    """Beside `hparams.json` stands `hparams.yaml`, in which numbers are numbers."""
    yaml = pytest.importorskip("yaml")
    given = {"lr": 1e-05, "b": [1, {"c": 2.5e20}], "name": "x: y", "none": None, "on": True}
    logger = CSVLogger(tmp_path, name=None)
    logger.log_hyperparams(given)
    (folder,) = tmp_path.iterdir()
    found = yaml.safe_load((folder / "hparams.yaml").read_text(encoding="utf-8"))
    assert found == given == json.loads((folder / "hparams.json").read_text(encoding="utf-8"))


def test_the_module_by_lightnings_keyword(Tiny, quiet_trainer, batches) -> None:
    """`super().on_fit_start(trainer=..., pl_module=...)` does; a wrong argument is an error."""

    class Mine(Callback):
        def on_fit_start(self, trainer, pl_module):
            super().on_fit_start(trainer=trainer, pl_module=pl_module)
            super().on_fit_start(trainer, module=pl_module)
            with pytest.raises(TypeError, match="wrong"):
                super().on_fit_start(trainer, wrong=pl_module)

    quiet_trainer(callbacks=[Mine()]).fit(Tiny(), batches(1))


def test_bars_can_be_read_after_a_run(Tiny, quiet_trainer, batches) -> None:
    """Totals, and a bar, are there when the run is over."""
    bar = TQDMProgressBar()
    quiet_trainer(callbacks=[bar], enable_progress_bar=None).fit(Tiny(), batches(3))
    assert bar.total_train_batches == 3
    assert bar.train_progress_bar is not None
    assert bar.val_progress_bar is not None
