"""A fit that would train nothing warns before it begins."""

from __future__ import annotations

import warnings

import pytest
import torch
from new_processes import forget_trainings
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from trainer_hooks import Callback, Trainer, TrainerHooksWarning
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.errors import DataError, UsageError


@pytest.mark.parametrize("ckpt_path", ["auto", "last"])
def test_a_run_that_is_finished(ckpt_path, Tiny, quiet_trainer, batches, tmp_path, caplog) -> None:
    """A resume from the end of a finished run says that nothing is trained, and what to set."""

    def trainer():
        saver = ModelCheckpoint(tmp_path, save_last=True)
        return quiet_trainer(max_epochs=2, enable_checkpointing=True, callbacks=saver)

    trainer().fit(Tiny(), batches(2))
    forget_trainings()
    caplog.clear()
    again = trainer()
    with pytest.warns(TrainerHooksWarning) as caught, caplog.at_level("INFO", "trainer_hooks"):
        again.fit(Tiny(), batches(2), ckpt_path=ckpt_path)
    (told,) = caught
    assert [text.split()[0] for text in caplog.messages] == ["resuming"]
    assert "fit has nothing to do: max_epochs=2 epochs are done" in str(told.message)
    assert "Set trainer.max_epochs" in str(told.message)
    assert "leave ckpt_path out" in str(told.message)
    assert (again.global_step, again.current_epoch) == (4, 2)


def test_nothing_to_do_does_nothing(Tiny, batches, capsys, caplog, tmp_path) -> None:
    """No table, no sanity check and no closing lines: one warning; unless a hook raises a limit."""
    seen = []

    class Net(Tiny):
        def validation_step(self, batch, batch_idx):
            seen.append(batch_idx)

    trainer = Trainer(max_epochs=0, default_root_dir=tmp_path, accelerator="cpu", plugins=False)
    with pytest.warns(TrainerHooksWarning, match="nothing to do"):
        trainer.fit(Net(), batches(2), batches(1))
    captured = capsys.readouterr()
    assert (captured.out, captured.err, seen, caplog.messages) == ("", "", [], [])

    class Raises(Callback):
        def on_fit_start(self, trainer, module):
            trainer.max_epochs = 1

    trainer.callbacks.append(Raises())
    with pytest.warns(TrainerHooksWarning, match="nothing to do"):
        trainer.fit(Net(), batches(2), batches(1))
    assert trainer.current_epoch == 1
    assert any(text.startswith("fit ended at epoch 1") for text in caplog.messages)


@pytest.mark.parametrize("several", [False, True])
def test_a_data_set_as_a_loader(several, Tiny, quiet_trainer) -> None:
    """A bare data set is refused, since its samples would be taken for batches."""
    data = TensorDataset(torch.ones(4, 2))
    with pytest.raises(DataError, match=r"is a data set.*DataLoader\(dataset, batch_size="):
        quiet_trainer().fit(Tiny(), [data, data] if several else data)
    with pytest.raises(DataError, match="the validate loader"):
        quiet_trainer().fit(Validated(Tiny), [torch.ones(1, 2)], data)


def Validated(Tiny):
    class Validated(Tiny):
        def validation_step(self, batch, batch_idx):
            return None

    return Validated()


def test_what_gives_batches(Tiny, quiet_trainer, batches) -> None:
    """Lists of tensors, streams, and data sets in a loader without a batch size give batches."""

    class Stream(IterableDataset):
        def __iter__(self):
            return iter(batches(3))

    class Whole(torch.utils.data.Dataset):
        def __len__(self):
            return 3

        def __getitem__(self, index):
            return batches(3)[index]

    for loader in (batches(3), Stream(), DataLoader(Whole(), batch_size=None)):
        trainer = quiet_trainer()
        trainer.fit(Tiny(), loader)
        assert trainer.global_step == 3


def test_foreign_parameters(Tiny, quiet_trainer, batches) -> None:
    """Parameters that belong to no part of the module are told, with their number."""

    class OptimizesForeignLayer(Tiny):
        def configure_optimizers(self):
            other = torch.nn.Linear(2, 1)
            return torch.optim.SGD([*self.parameters(), *other.parameters()], lr=0.1)

    with pytest.warns(TrainerHooksWarning, match=r"2 of 4 parameters of SGD belong to no part of"):
        quiet_trainer().fit(OptimizesForeignLayer(), batches(1))


def test_parameters_in_no_optimizer(Tiny, quiet_trainer, batches) -> None:
    """A part that is not trained is nobody's mistake."""

    class OptimizesWeightOnly(Tiny):
        def configure_optimizers(self):
            return torch.optim.SGD([self.layer.weight], lr=0.1)

    with warnings.catch_warnings(action="error"):
        quiet_trainer().fit(OptimizesWeightOnly(), batches(1))


def test_a_step_in_automatic_optimization(Tiny, quiet_trainer, batches) -> None:
    """An optimizer that the trainer steps can be read, and its step called by nobody else."""

    class StepsInAutomaticMode(Tiny):
        def training_step(self, batch, batch_idx):
            optimizer = self.optimizers()
            assert optimizer.param_groups[0]["lr"] == 0.1
            assert self.optimizers(use_pl_optimizer=False) is self.trainer.optimizers[0]
            optimizer.zero_grad()
            loss = super().training_step(batch, batch_idx)
            loss.backward()
            optimizer.step()

    with pytest.raises(UsageError, match=r"self\.automatic_optimization = False in __init__"):
        quiet_trainer().fit(StepsInAutomaticMode(), batches(1))
