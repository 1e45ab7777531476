"""LoadCheckpoint: what it loads, when, and what it refuses."""

from __future__ import annotations

import shutil

import pytest
import torch
from quiet_trainers import QUIET_OPTIONS
from torch.utils.data import DataLoader

from trainer_hooks import Callback, Event, Module, Trainer
from trainer_hooks.callbacks import LoadCheckpoint
from trainer_hooks.errors import CheckpointError, TrainerHooksWarning, UsageError


class NoisyTwoLayers(Module):
    """Two lines; four batches an epoch."""

    def __init__(self, width: int = 2) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.body = torch.nn.Linear(2, width)
        self.head = torch.nn.Linear(width, 1)

    def training_step(self, batch, batch_idx):
        noise = torch.rand(())
        return (self.head(self.body(batch)) + noise).square().mean()

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=0.1)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]


class Seen(Callback):
    """Keeps the weights at each epoch's start."""

    def __init__(self) -> None:
        self.heads: list[torch.Tensor] = []

    def on_train_epoch_start(self, trainer, module) -> None:
        self.heads.append(module.head.weight.detach().clone())


def train(tmp_path, *callbacks, net=None, ckpt_path=None, **options):
    torch.manual_seed(1)
    trainer = Trainer(
        callbacks=callbacks, default_root_dir=tmp_path, **QUIET_OPTIONS,
        **{"max_epochs": 2, **options},
    )  # fmt: skip
    net = net or NoisyTwoLayers()
    trainer.fit(net, DataLoader(torch.ones(8, 2), batch_size=2), ckpt_path=ckpt_path)
    return trainer, net


@pytest.fixture
def saved(tmp_path):
    """Return a checkpoint after one of two epochs, and its weights."""
    trainer, net = train(tmp_path, max_epochs=1)
    trainer.save_checkpoint(tmp_path / "one.ckpt")
    return str(tmp_path / "one.ckpt"), {k: v.clone() for k, v in net.state_dict().items()}


def same(one, other) -> bool:
    return all(torch.equal(value, other[name]) for name, value in one.items())


def test_a_file_that_is_not_there_ends_the_run_before_anything_is_trained(tmp_path):
    """A wrong path is an error, in both ways of loading."""
    for only in (True, False):
        net = NoisyTwoLayers()
        with pytest.raises(CheckpointError, match=r"gone\.ckpt"):
            train(tmp_path, LoadCheckpoint(str(tmp_path / "gone.ckpt"), only), net=net)
        assert same(net.state_dict(), NoisyTwoLayers().state_dict())


def test_all_of_it_is_what_a_resume_does(tmp_path, saved):
    """The whole checkpoint is gone on from exactly, as `fit(ckpt_path=)` does."""
    path, _ = saved
    _, uncut = train(tmp_path)
    load = LoadCheckpoint(path)
    trainer, resumed = train(tmp_path, load)
    assert same(uncut.state_dict(), resumed.state_dict())
    assert trainer.clock.epochs == 2
    assert trainer.ckpt_path == path
    assert load.is_loaded


@pytest.mark.filterwarnings("ignore:the checkpoint and this run's callbacks differ")
def test_the_same_file_twice_is_no_news(tmp_path, saved, caplog):
    """Where `ckpt_path` is another file, that is told; where it is the same, nothing is."""
    path, _ = saved
    caplog.set_level("INFO", "trainer_hooks")
    train(tmp_path, LoadCheckpoint(path), ckpt_path=path, max_epochs=3)
    assert "the run goes on from" not in caplog.text
    other = tmp_path / "other.ckpt"
    shutil.copy(path, other)
    train(tmp_path, LoadCheckpoint(path), ckpt_path=other, max_epochs=3)
    assert f"the run goes on from {str(other)!r}, not" in caplog.text


def test_the_weights_alone_start_a_new_training(tmp_path, saved):
    """With `load_weights_only` counters and optimizers begin anew."""
    path, weights = saved
    seen = Seen()
    trainer, _ = train(tmp_path, LoadCheckpoint(path, True), seen)
    assert torch.equal(seen.heads[0], weights["head.weight"])
    assert len(seen.heads) == 2
    assert trainer.ckpt_path is None


@pytest.mark.parametrize("event", ["epoch_end", Event.ON_TRAIN_EPOCH_END])
def test_weights_are_loaded_once_at_an_event(tmp_path, saved, event):
    """At an event of the training the weights come in where it fires first, and not again."""
    path, weights = saved
    seen = Seen()
    train(tmp_path, LoadCheckpoint(path, True, event=event), seen, max_epochs=3)
    assert torch.equal(seen.heads[1], weights["head.weight"])
    assert not torch.equal(seen.heads[2], weights["head.weight"])


def test_a_resumed_run_does_not_load_again(tmp_path, saved):
    """A run that was cut after the load goes on exactly; one given a checkpoint keeps that."""
    path, _ = saved
    for load in (
        lambda: LoadCheckpoint(path, True),
        lambda: LoadCheckpoint(path, True, event="fit_start"),
        lambda: LoadCheckpoint(path, True, event="epoch_end"),
    ):
        _, uncut = train(tmp_path, load(), max_epochs=3)
        cut, _ = train(tmp_path, load(), max_epochs=2)
        cut.save_checkpoint(tmp_path / "cut.ckpt")
        again = load()
        _, resumed = train(tmp_path, again, ckpt_path=tmp_path / "cut.ckpt", max_epochs=3)
        assert same(uncut.state_dict(), resumed.state_dict())
        assert again.is_loaded


def test_another_training_of_the_same_callback_loads_again(tmp_path, saved):
    """A fresh training begins with the weights too, and a second fit of one module does not."""
    path, weights = saved
    load, seen = LoadCheckpoint(path, True), Seen()
    trainer, net = train(tmp_path, load, seen, max_epochs=1)
    trainer.max_epochs = 2
    trainer.fit(net, DataLoader(torch.ones(8, 2), batch_size=2))
    assert not torch.equal(seen.heads[1], weights["head.weight"])
    trainer.fit(NoisyTwoLayers(), DataLoader(torch.ones(8, 2), batch_size=2))
    assert torch.equal(seen.heads[2], weights["head.weight"])


def test_what_does_not_fit_is_named_and_can_be_ignored(tmp_path, saved):
    """A head of another width is refused by name; ignored, the module's own stays."""
    path, _ = saved
    with pytest.raises(CheckpointError, match=r"head\.weight"):
        train(tmp_path, LoadCheckpoint(path, True), net=NoisyTwoLayers(width=3))
    net, seen = NoisyTwoLayers(), Seen()
    net.head.weight.data.fill_(9.0)
    ignoring = LoadCheckpoint(path, True, ignore_keys=["state_dict/head.*"])
    train(tmp_path, ignoring, seen, net=net)
    assert seen.heads[0].eq(9.0).all()


def test_weights_that_are_on_one_side_alone_need_a_word(tmp_path, saved):
    """Missing and unexpected names are refused, unless `strict_model_weights` is False."""
    path, weights = saved
    net = NoisyTwoLayers()
    net.tail = torch.nn.Linear(1, 1)
    del net.head
    net.training_step = lambda batch, batch_idx: net.tail(net.body(batch)[:, :1]).mean()
    with pytest.raises(
        CheckpointError, match=r"Missing key.*: tail\.weight.*Unexpected key.*: head\.weight"
    ):
        train(tmp_path, LoadCheckpoint(path, True), net=net)
    load = LoadCheckpoint(path, True, strict_model_weights=False, event="fit_start")
    body: list[torch.Tensor] = []
    keep = _At("on_train_start", lambda: body.append(net.body.weight.detach().clone()))
    train(tmp_path, load, keep, net=net)
    assert torch.equal(body[0], weights["body.weight"])


class _At(Callback):
    """Calls a function at a hook."""

    def __init__(self, hook, function) -> None:
        setattr(self, hook, lambda *_: function())


def test_optimizers_may_begin_anew_in_a_run_that_goes_on(tmp_path, saved):
    """`optimizer_states` can be left out: counters go on, and the optimizer is a new one."""
    path, _ = saved
    steps: list[int] = []
    ignored = ["optimizer_states", "lr_schedulers"]
    load = LoadCheckpoint(path, ignore_keys=ignored)
    holder: list[Trainer] = []

    class Count(Callback):
        def on_train_start(self, trainer, module) -> None:
            holder.append(trainer)
            steps.append(len(trainer.optimizers[0].state))
            steps.append(trainer.lr_scheduler_configs[0].scheduler.last_epoch)

    train(tmp_path, load, Count())
    assert steps == [0, 0]
    assert holder[0].clock.epochs == 2


def test_a_function_may_change_the_checkpoint(tmp_path, saved):
    """`ignore_keys` as a function is given the whole checkpoint."""
    path, _ = saved
    seen = Seen()

    def fill(checkpoint) -> None:
        checkpoint["state_dict"]["head.weight"].fill_(5.0)

    train(tmp_path, LoadCheckpoint(path, ignore_keys=fill), seen)
    assert seen.heads[0].eq(5.0).all()


def test_a_pattern_that_matches_nothing_is_told(tmp_path, saved):
    """A misspelt pattern is warned of, with a name that would match."""
    path, _ = saved
    load = LoadCheckpoint(path, True, ignore_keys=["state_dict/hed.*"])
    with pytest.warns(TrainerHooksWarning, match=r"'state_dict/hed\.\*'.*state_dict/body"):
        train(tmp_path, load)


def test_the_path_is_taken_until_it_is_read(tmp_path, saved):
    """A callback may set `trainer.ckpt_path` until `on_before_load`; later it is an error."""
    path, _ = saved

    class Late(Callback):
        def on_fit_start(self, trainer, module) -> None:
            trainer.ckpt_path = path

    class Early(Callback):
        def setup(self, trainer, module, stage) -> None:
            trainer.ckpt_path = path

    trainer, _ = train(tmp_path, Early())
    assert trainer.clock.epochs == 2
    assert trainer.load_report is not None
    with pytest.raises(UsageError, match="on_before_load"):
        train(tmp_path, Late())
    with pytest.raises(UsageError, match="on_before_load"):
        trainer.ckpt_path = path


def test_it_loads_for_an_evaluation_too(tmp_path, saved):
    """Outside of fit the weights are loaded before the loaders are run."""
    path, weights = saved
    net = NoisyTwoLayers()
    net.validation_step = lambda batch, batch_idx: None
    trainer = Trainer(
        callbacks=[LoadCheckpoint(path)],
        logger=False,
        plugins=False,
        accelerator="cpu",
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.validate(net, DataLoader(torch.ones(2, 2)), verbose=False)
    assert same(weights, net.state_dict())
