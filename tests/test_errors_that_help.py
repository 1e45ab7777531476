"""Common mistakes: each is met by an error that says what, where, the rule, and what to do."""

from __future__ import annotations

import contextlib
import math
import traceback
from typing import Any

import pytest
import torch
from small_modules import EvaluatedLinear, UnoptimizedLinear, ValidatedLinear
from torch.utils.data import DataLoader, IterableDataset

from trainer_hooks import (
    Callback,
    CombinedLoader,
    DataModule,
    Module,
    Trainer,
    TrainerHooksWarning,
)
from trainer_hooks.callbacks import EarlyStopping, ModelCheckpoint
from trainer_hooks.errors import (
    CallbackError,
    CheckpointError,
    CheckpointNotFoundError,
    DataError,
    MetricError,
    ModuleError,
    OptionError,
    StateKeyError,
    TrainerHooksAdvice,
    UsageError,
)


@contextlib.contextmanager
def refused(kind: type[Exception], *words: str):
    """Expect an error whose message has all the words."""
    with pytest.raises(kind) as caught:
        yield
    assert type(caught.value) is kind
    missing = [word for word in words if word not in str(caught.value)]
    assert not missing, f"{missing} not in {caught.value}"


class Rows:
    """A stream: batches without a length, anew in each epoch."""

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def __iter__(self) -> Any:
        return iter(self.rows)


# --- steps ---


def test_no_training_step(quiet_trainer, batches) -> None:
    """A module without training_step is told both ways of having one."""

    class Net(Module):
        def configure_optimizers(self):
            return None

    with refused(
        ModuleError,
        "Net has no training_step",
        "define training_step(batch, batch_idx) and return the loss",
        "or define forward(batch) and loss(outputs, batch)",
    ):
        quiet_trainer().fit(Net(), batches(1))


@pytest.mark.parametrize("stage", ["validation", "test"])
def test_no_evaluation_step(Tiny, quiet_trainer, batches, stage) -> None:
    """Evaluating a module that cannot be evaluated names the step to define."""
    with refused(
        ModuleError, f"Tiny has no {stage}_step", f"define {stage}_step(batch, batch_idx)"
    ):
        getattr(quiet_trainer(), {"validation": "validate"}.get(stage, stage))(Tiny(), batches(1))


def test_no_predict_step(Tiny, quiet_trainer, batches) -> None:
    """Predicting needs predict_step or forward."""
    with refused(ModuleError, "Tiny has no predict_step and no forward", "define one of them"):
        quiet_trainer().predict(Tiny(), batches(1))


@pytest.mark.parametrize(
    ("returned", "found"),
    [
        (3.0, "returned 3.0"),
        (3, "returned 3"),
        ("loss", "returned 'loss'"),
        (True, "returned True"),
        ([torch.zeros(1)], "returned [tensor"),
        ({}, "a dict with the keys []"),
        ({"los": 1, "acc": 2}, "a dict with the keys ['acc', 'los']"),
        ({"loss": 3.0}, "a dict with 3.0 under 'loss'"),
    ],
)
def test_a_step_that_returns_no_tensor(Tiny, quiet_trainer, batches, returned, found) -> None:
    """Something else than a loss is shown, with what a step must return."""

    class Net(Tiny):
        def training_step(self, batch, batch_idx):
            return returned

    with refused(
        ModuleError,
        f"Net.training_step {found if found.startswith('returned') else 'returned ' + found}",
        "it must return the loss as a tensor, a dict with the loss under 'loss', or None",
    ):
        quiet_trainer().fit(Net(), batches(1))


@pytest.mark.parametrize("is_dict", [False, True])
@pytest.mark.parametrize("shape", [(2,), (2, 1), (0,)])
def test_a_loss_of_several_elements(Tiny, quiet_trainer, batches, shape, is_dict) -> None:
    """A loss that was not reduced is shown with its shape and how to reduce it."""

    class Net(Tiny):
        def training_step(self, batch, batch_idx):
            loss = self.layer(torch.ones(2, 2)).sum() * torch.ones(shape)
            return {"loss": loss} if is_dict else loss

    with refused(ModuleError, "Net.training_step", f"shape {shape}", "one element", "loss.mean()"):
        quiet_trainer().fit(Net(), batches(1))


@pytest.mark.parametrize(
    "break_off",
    [torch.Tensor.detach, lambda loss: torch.tensor(loss.item()), lambda loss: torch.zeros(1)],
)
def test_a_loss_without_a_gradient(Tiny, quiet_trainer, batches, break_off) -> None:
    """A loss that does not require grad is told apart, with the usual causes."""

    class Net(Tiny):
        def training_step(self, batch, batch_idx):
            return break_off(super().training_step(batch, batch_idx))

    with refused(
        ModuleError, "Net.training_step", "does not require grad", "no_grad", ".detach()", ".item()"
    ):
        quiet_trainer().fit(Net(), batches(1))


def test_a_frozen_module(Tiny, quiet_trainer, batches) -> None:
    """Training a frozen module is told apart the same way."""
    with refused(ModuleError, "does not require grad", "without parameters that require grad"):
        quiet_trainer().fit(Tiny().freeze(), batches(1))


def test_a_whole_batch_for_the_forward_of_a_prediction(quiet_trainer) -> None:
    """Without a predict_step forward is given the whole batch; an error of it says so."""

    class Net(Module):
        def forward(self, x):
            return x.square()

    pairs = [(torch.ones(2), torch.ones(2))]
    with pytest.raises(AttributeError) as caught:
        quiet_trainer().predict(Net(), pairs)
    note = next(note for note in caught.value.__notes__ if "predict_step" in note)
    assert note.startswith(f"{Net.__qualname__} has no predict_step")
    assert "of type tuple" in note


# --- what is passed to fit ---


@pytest.mark.parametrize("stage", ["fit", "validate", "test", "predict"])
def test_a_plain_torch_module(quiet_trainer, batches, stage) -> None:
    """An nn.Module is no Module; the message names its class and says what to do with it."""
    words = (f"{stage} was given an object of type Linear", "an instance of trainer_hooks.Module")
    with refused(ModuleError, *words, "Make it an attribute of a class", "training_step"):
        getattr(quiet_trainer(), stage)(torch.nn.Linear(2, 1), batches(1))


def test_a_class_instead_of_a_module(Tiny, quiet_trainer, batches) -> None:
    """A class that was not called is told apart."""

    class Net(Module):
        pass

    words = ("fit was given the class", "Net as its model", "Net(...) instead of")
    with refused(ModuleError, *words):
        quiet_trainer().fit(Net, batches(1))


@pytest.mark.parametrize("stage", ["fit", "validate", "test", "predict"])
def test_the_loaders_before_the_model(Tiny, quiet_trainer, batches, stage) -> None:
    """Arguments in the wrong order are told the right one."""
    words = (f"{stage} was given an object of type", f"{stage}(model, loaders)")
    with refused(ModuleError, *words):
        getattr(quiet_trainer(), stage)(batches(1), Tiny())


@pytest.mark.parametrize("stage", ["fit", "validate", "test", "predict"])
@pytest.mark.parametrize("path", [True, 3, b"last", ""])
def test_a_checkpoint_path_of_another_type(Tiny, quiet_trainer, batches, stage, path) -> None:
    """A ckpt_path that is no path is refused by its rule, and not by what would open it."""
    words = (f"ckpt_path={path!r} of {stage}", "a path", "'last'")
    with refused(OptionError, *words):
        getattr(quiet_trainer(), stage)(Tiny(), batches(1), ckpt_path=path)


def test_no_module_at_all(quiet_trainer, batches) -> None:
    """validate without a module needs one of an earlier run."""
    with refused(UsageError, "no model was given", "pass model="):
        quiet_trainer().validate(dataloaders=batches(1))


def test_a_fit_inside_a_fit(Tiny, quiet_trainer, batches) -> None:
    """A trainer does one thing at a time; the message says which, and what to do."""

    class ValidatesInsideFit(Tiny):
        def on_train_start(self):
            self.trainer.validate(self, batches(1))

    with refused(UsageError, "validate was called inside fit", "use another Trainer"):
        quiet_trainer().fit(ValidatesInsideFit(), batches(1))


# --- data ---


def test_no_training_loader(Tiny, quiet_trainer) -> None:
    """fit without data is told the three places where it may come from."""
    with refused(
        DataError,
        "fit was given no training data",
        "train_dataloaders=",
        "datamodule=",
        "Tiny.train_dataloader()",
    ):
        quiet_trainer().fit(Tiny())


def test_a_data_module_without_the_loader(Tiny, quiet_trainer) -> None:
    """A data module that lacks the loader, or returns None, counts as no data; None is named."""

    class Forgetful(DataModule):
        def train_dataloader(self):
            [1, 2]  # noqa: B018 - the return is missing

        def test_dataloader(self):
            [1, 2]  # noqa: B018 - the return is missing

    class Net(Tiny):
        test_step = Tiny.training_step

    with refused(DataError, "fit was given no training data: pass", "train_dataloader()"):
        quiet_trainer().fit(Tiny(), datamodule=DataModule())
    with refused(DataError, "no training data, since", "Forgetful.train_dataloader() returned"):
        quiet_trainer().fit(Tiny(), datamodule=Forgetful())
    with refused(DataError, "no data, since", "Forgetful.test_dataloader() returned None"):
        quiet_trainer().test(Net(), datamodule=Forgetful())


@pytest.mark.parametrize(
    ("stage", "loader"),
    [
        ("validate", "val_dataloader"),
        ("test", "test_dataloader"),
        ("predict", "predict_dataloader"),
    ],
)
def test_no_evaluation_loader(Tiny, quiet_trainer, stage, loader) -> None:
    """The other stages name the loader that they need."""

    class Net(Tiny):
        validation_step = test_step = predict_step = Tiny.training_step

    with refused(
        DataError, f"{stage} was given no data", "dataloaders=", f"Net.{loader}()", "datamodule="
    ):
        getattr(quiet_trainer(), stage)(Net())


class Nothing(IterableDataset):
    """A data set without length that gives nothing."""

    def __iter__(self):
        return iter(())


@pytest.mark.parametrize(
    "loader",
    [
        [],
        DataLoader(torch.zeros(0, 2)),
        DataLoader(torch.zeros(3, 2), batch_size=4, drop_last=True),
        DataLoader(Nothing()),
        iter([]),
        CombinedLoader([[], []]),
    ],
)
def test_a_training_loader_without_a_batch(Tiny, quiet_trainer, loader) -> None:
    """A loader that gives no batch is an error, with or without a length, and no empty epoch."""
    with refused(DataError, "training loader", "no batch", repr(loader)[:30]):
        quiet_trainer().fit(Tiny(), loader)


def test_a_generator_for_several_epochs(Tiny, quiet_trainer, batches) -> None:
    """A generator is used up after an epoch: the message says so, and what to pass instead."""
    words = (
        "the training loader, in this epoch, gave no batch",
        "only once",
        "DataLoader or a list",
    )
    with refused(DataError, *words):
        quiet_trainer(max_epochs=2).fit(Tiny(), (batch for batch in batches(3)))
    trainer = quiet_trainer(max_epochs=1)
    trainer.fit(Tiny(), (batch for batch in batches(3)))
    assert trainer.global_step == 3


def test_an_empty_part_of_a_combined_loader(quiet_trainer, batches) -> None:
    """A part that cannot be repeated to the longest's end is shown, and no fit of 0 steps ends."""

    trainer, parts = quiet_trainer(), {"full": batches(3), "empty": []}
    with refused(
        DataError, "loader ['empty'] of a CombinedLoader, [], gives no batch", "Leave it out"
    ):
        trainer.fit(ValidatedLinear(), CombinedLoader(parts, "max_size_cycle"))
    assert trainer.global_step == 0


@pytest.mark.parametrize("stage", ["validate", "test", "predict"])
@pytest.mark.parametrize("loader", [[], DataLoader(torch.zeros(0, 2))])
def test_an_evaluation_loader_without_a_batch(quiet_trainer, stage, loader) -> None:
    """Evaluating nothing is an error that names the limit too."""

    limit = {"validate": "val"}.get(stage, stage)
    with refused(DataError, f"{stage} has nothing to run", f"limit_{limit}_batches", "length"):
        getattr(quiet_trainer(), stage)(EvaluatedLinear(), loader)


@pytest.mark.parametrize("stage", ["validate", "test", "predict"])
def test_an_evaluation_loader_without_length_or_batch(quiet_trainer, stage) -> None:
    """A loader that turns out to be empty is an error too, and no result without metrics."""

    with refused(DataError, "evaluation loader 0 gave no batch", "DataLoader"):
        getattr(quiet_trainer(), stage)(EvaluatedLinear(), DataLoader(Nothing()))


def test_a_generator_for_several_validations(quiet_trainer, batches) -> None:
    """A generator cannot be validated with twice; without the error val metrics went stale."""

    with refused(DataError, "evaluation loader 0 gave no batch", "only once"):
        quiet_trainer(max_epochs=2).fit(
            ValidatedLinear(), batches(1), (batch for batch in batches(2))
        )


def test_an_empty_validation_loader_in_a_fit(quiet_trainer, batches) -> None:
    """In a fit an empty validation loader is left out with a warning that names it."""

    with pytest.warns(
        TrainerHooksWarning, match=r"validate loader 0, \[\], has no batch.*left out"
    ):
        quiet_trainer().fit(ValidatedLinear(), batches(1), [])


@pytest.mark.parametrize(
    ("option", "stage"),
    [
        ("limit_train_batches", "fit"),
        ("overfit_batches", "fit"),
        ("limit_val_batches", "validate"),
        ("limit_test_batches", "test"),
        ("limit_predict_batches", "predict"),
    ],
)
def test_a_share_of_a_loader_without_length(quiet_trainer, batches, option, stage) -> None:
    """A float limit needs a length; the message names the very option that was given."""

    with refused(
        DataError, f"Trainer({option}=0.5)", "a loader that has no length", f"{option}=100"
    ):
        getattr(quiet_trainer(**{option: 0.5}), stage)(EvaluatedLinear(), iter(batches(4)))


def test_an_interval_that_is_longer_than_the_epoch(quiet_trainer, batches) -> None:
    """A validation that would never run is refused with the number of batches and a way out."""

    with refused(
        OptionError,
        "Trainer(val_check_interval=5)",
        "an epoch has 4 batches",
        "smaller",
        "check_val_every_n_epoch=None",
    ):
        quiet_trainer(val_check_interval=5).fit(ValidatedLinear(), batches(4), batches(1))


def test_an_interval_that_is_longer_than_the_epochs_of_a_stream(quiet_trainer, batches) -> None:
    """The length of a stream is known at its end: the first epoch without a validation tells."""
    rows = list(batches(4))
    trainer = quiet_trainer(val_check_interval=5, max_epochs=3)
    words = r"epoch 0 had 4 batches.*val_check_interval=5.*smaller.*check_val_every_n_epoch=None"

    with pytest.warns(TrainerHooksAdvice, match=words) as warned:
        trainer.fit(ValidatedLinear(), Rows(rows), batches(1))
    assert len(warned) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"val_check_interval": 4},
        {"val_check_interval": 5, "check_val_every_n_epoch": None},
        {"val_check_interval": 5, "check_val_every_n_epoch": 4},
        {"val_check_interval": 5, "max_steps": 3},
    ],
    ids=str,
)
def test_an_interval_that_a_stream_may_reach(quiet_trainer, batches, options) -> None:
    """No advice where a validation ran, an epoch was none to be validated, or was cut short."""
    rows = list(batches(4))
    quiet_trainer(**{"max_epochs": 2, **options}).fit(ValidatedLinear(), Rows(rows), batches(1))


def test_a_share_of_an_epoch_without_length(quiet_trainer, batches) -> None:
    """Validating at shares of an epoch needs its length."""

    with refused(OptionError, "Trainer(val_check_interval=0.5)", "no length", "as an int"):
        quiet_trainer(val_check_interval=0.5).fit(ValidatedLinear(), iter(batches(4)), batches(1))


def test_a_data_module_among_loaders(Tiny, quiet_trainer, batches) -> None:
    """A DataModule in a place of loaders, with other data beside it, leaves open which counts."""
    words = ("given a DataModule as", "datamodule=")
    with refused(DataError, *words):
        quiet_trainer().fit(Tiny(), DataModule(), batches(1))
    with refused(DataError, *words):
        quiet_trainer().fit(Tiny(), batches(1), DataModule())
    with refused(DataError, *words):
        quiet_trainer().test(Tiny(), DataModule(), datamodule=DataModule())


def test_loaders_and_a_data_module(Tiny, quiet_trainer, batches) -> None:
    """Loaders and a data module together leave open which counts."""
    words = ("train_dataloaders= and datamodule=", "one of them")
    with refused(DataError, "fit was given both", *words):
        quiet_trainer().fit(Tiny(), batches(1), datamodule=DataModule())
    with refused(DataError, "val_dataloaders= and datamodule="):
        quiet_trainer().fit(Tiny(), val_dataloaders=batches(1), datamodule=DataModule())
    with refused(DataError, "test was given both dataloaders= and datamodule="):
        quiet_trainer().test(Tiny(), batches(1), datamodule=DataModule())


@pytest.mark.parametrize("wrong", [DataModule, [1], "data"])
def test_no_data_module(Tiny, quiet_trainer, wrong) -> None:
    """Something else as data module is refused with its type."""
    name = "the class DataModule" if wrong is DataModule else type(wrong).__name__
    with refused(DataError, f"given {name} as datamodule", "instance of trainer_"):
        quiet_trainer().fit(Tiny(), datamodule=wrong)


@pytest.mark.parametrize("fn", ["fit", "validate", "test", "predict"])
def test_a_class_in_place_of_data(Tiny, quiet_trainer, fn) -> None:
    """The class of a data module or loader is refused with the call that makes one."""

    class Data(DataModule):
        pass

    name = Data.__qualname__
    with refused(DataError, f"{fn} was given the class {name}", f"Write {name}(...) instead of"):
        getattr(quiet_trainer(), fn)(Tiny(), Data)


# --- callbacks ---


def test_a_callback_that_is_a_class() -> None:
    """A class among the callbacks is told how to be written."""
    with refused(
        CallbackError,
        "callbacks[1] is the class EarlyStopping",
        "callbacks are instances",
        "Write EarlyStopping(...) instead of EarlyStopping",
    ):
        Trainer(callbacks=[ModelCheckpoint(), EarlyStopping])


def test_something_else_as_a_callback() -> None:
    """What is no callback is shown, with both ways to make one of it."""
    with refused(
        CallbackError, "callbacks[0] is 5 of type int", "Subclass it", "callbacks.LambdaCallback"
    ):
        Trainer(callbacks=[5])


@pytest.mark.parametrize("callbacks", ["EarlyStopping", ["EarlyStopping"]])
def test_the_name_of_a_callback(callbacks) -> None:
    """A name, which a config may hold, is shown whole; the class is to be imported."""
    with refused(CallbackError, "callbacks[0] is the text 'EarlyStopping'", "Import the class"):
        Trainer(callbacks=callbacks)


class Stateful(Callback):
    """A callback with a state."""

    def state_dict(self):
        return {"n": 1}


def test_a_callback_whose_base_was_not_initialised(quiet_trainer) -> None:
    """A forgotten super().__init__() is named where the state key needs an attribute of it."""

    class Stopper(EarlyStopping):
        def __init__(self) -> None:
            self.mine = 1

    with refused(CallbackError, "callbacks[0], a ", "Stopper", "super().__init__(...)"):
        quiet_trainer(callbacks=[Stopper()])


class _Empty:
    """Has no attribute."""


class _OfAnother(Callback):
    def __init__(self) -> None:
        self.another = _Empty()

    @property
    def state_key(self) -> str:
        return self.another.missing


class _WithoutInit(Callback):
    @property
    def state_key(self) -> str:
        return self.missing


@pytest.mark.parametrize("kind", [_OfAnother, _WithoutInit])
def test_a_state_key_that_fails_by_itself(quiet_trainer, kind) -> None:
    """No `super().__init__()` is asked for if another object lacks it, or nothing replaces it."""
    with pytest.raises(AttributeError, match="has no attribute 'missing'"):
        quiet_trainer(callbacks=[kind()])


def test_a_state_dict_without_a_return(Tiny, quiet_trainer, batches, tmp_path) -> None:
    """A state_dict that returns None saves nothing, which is told before the first batch."""

    class Forgetful(Callback):
        def state_dict(self):
            {"count": 1}  # noqa: B018 - the return is missing

    savers = [ModelCheckpoint(tmp_path), Forgetful()]
    trainer = quiet_trainer(callbacks=savers, enable_checkpointing=True)
    with pytest.warns(TrainerHooksWarning, match="Forgetful.* returned None.*Return the state"):
        trainer.fit(Tiny(), batches(1))


def test_two_callbacks_on_one_state_key() -> None:
    """Two callbacks whose states would overwrite each other are named, with what to define."""
    with refused(
        StateKeyError,
        "state_key 'Stateful' belongs to two stateful callbacks",
        "Trainer(callbacks=...)",
        "each needs its own",
        "self._generate_state_key(name=...)",
    ):
        Trainer(callbacks=[Stateful(), Stateful()])


# --- monitors ---


@pytest.fixture
def Logging(Tiny):
    """A module that logs `train_loss` and `val_loss`."""

    class Logging(Tiny):
        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            self.log("train_loss", loss)
            return loss

        def validation_step(self, batch, batch_idx):
            self.log("val_loss", 1.0)

    return Logging


@pytest.mark.parametrize("kind", [EarlyStopping, ModelCheckpoint])
def test_a_monitor_that_was_never_logged(Logging, quiet_trainer, batches, tmp_path, kind) -> None:
    """The message lists what was logged, suggests the nearest, and says how to log it."""
    options = {"dirpath": tmp_path} if kind is ModelCheckpoint else {}
    callback = kind(monitor="val_los", **options)
    switches = {"enable_checkpointing": None} if kind is ModelCheckpoint else {}
    with refused(
        MetricError,
        "monitor 'val_los'",
        kind.__name__,
        "'train_loss', 'val_loss'",
        "Did you mean 'val_loss'?",
        "self.log('val_los', ...)",
    ):
        quiet_trainer(callbacks=[callback], **switches).fit(Logging(), batches(2), batches(1))


def test_a_scheduler_whose_monitor_was_never_logged(Logging, quiet_trainer, batches) -> None:
    """ReduceLROnPlateau lists what was logged too."""

    class PlateauOnLoss(Logging):
        def configure_optimizers(self):
            optimizer = super().configure_optimizers()
            plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
            return {"optimizer": optimizer, "lr_scheduler": plateau, "monitor": "loss"}

    with refused(
        MetricError, "ReduceLROnPlateau", "'loss'", "logged are train_loss, val_loss", "self.log("
    ):
        quiet_trainer().fit(PlateauOnLoss(), batches(2), batches(1))


# --- checkpoints ---


@pytest.fixture
def saved(Tiny, quiet_trainer, batches, tmp_path):
    """The path of a checkpoint of a Tiny that was trained for an epoch."""
    path = tmp_path / "saved" / "last.ckpt"
    trainer = quiet_trainer()
    trainer.fit(Tiny(), batches(1))
    trainer.save_checkpoint(path)
    return path


USES = {
    "fit": lambda trainer, net, data, path: trainer.fit(net, data, ckpt_path=path),
    "validate": lambda trainer, net, data, path: trainer.validate(net, data, ckpt_path=path),
    "predict": lambda trainer, net, data, path: trainer.predict(net, data, ckpt_path=path),
    "load": lambda trainer, net, data, path: type(net).load_from_checkpoint(path),
}


@pytest.fixture(params=list(USES))
def use(request, Tiny, quiet_trainer, batches):
    """Read a checkpoint in one of the ways there are."""

    class ValidatesAndPredicts(Tiny):
        validation_step = predict_step = Tiny.training_step

    return lambda path: USES[request.param](
        quiet_trainer(), ValidatesAndPredicts(), batches(1), path
    )


def test_a_missing_checkpoint(use, saved) -> None:
    """A path that is not there lists what lies beside it."""
    with refused(CheckpointNotFoundError, "lost.ckpt", "is not there", "there are: last.ckpt"):
        use(saved.parent / "lost.ckpt")


def test_a_folder_of_checkpoints(use, saved) -> None:
    """A folder in the place of a file is told the files in it."""
    with refused(CheckpointNotFoundError, "it is a folder", f"In it there are: {saved.name}."):
        use(saved.parent)


def test_an_argument_that_the_module_does_not_take(saved, Tiny) -> None:
    """A misspelt argument of load_from_checkpoint is told, with the one that was meant."""

    class Wide(Tiny):
        def __init__(self, width: int = 1) -> None:
            super().__init__()

    with pytest.warns(TrainerHooksWarning, match="was given widht, .* left out. Did you mean 'wid"):
        Wide.load_from_checkpoint(saved, widht=2)


def test_a_checkpoint_in_a_missing_folder(use, tmp_path) -> None:
    """A folder that is not there is told apart."""
    with refused(CheckpointNotFoundError, "a.ckpt", "folder", "does not exist either"):
        use(tmp_path / "nowhere" / "a.ckpt")


@pytest.mark.parametrize(
    ("share", "words"),
    [(0.0, "cannot be"), (0.1, "is damaged"), (0.5, "is damaged"), (0.99, "is damaged")],
)
def test_a_truncated_checkpoint(use, saved, share, words) -> None:
    """A file that was cut off is called so, wherever it was cut."""
    content = saved.read_bytes()
    saved.write_bytes(content[: int(len(content) * share)])
    with refused(CheckpointError, str(saved), words):
        use(saved)


def test_the_traceback_of_a_damaged_checkpoint_is_short(saved, Tiny) -> None:
    """Above the message stand the user's line and the way to the file, no other error or thread."""
    content = bytearray(saved.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 64] = bytes(64)
    saved.write_bytes(content)
    with pytest.raises(CheckpointError, match="is damaged") as caught:
        Tiny.load_from_checkpoint(saved)
    shown = traceback.format_exception(caught.value)
    assert not [part for part in shown if "concurrent/futures" in part or "direct cause" in part]
    assert len(shown) < 12


@pytest.mark.parametrize("content", [b"hello", b"\x80\x02]q\x00.", b"PK\x03\x04 no zip"])
def test_a_file_that_is_no_checkpoint(use, tmp_path, content) -> None:
    """Something else altogether is refused as no checkpoint."""
    path = tmp_path / "notes.ckpt"
    path.write_bytes(content)
    with refused(CheckpointError, str(path), "no checkpoint"):
        use(path)


def test_bare_weights(use, tmp_path) -> None:
    """A state_dict that was saved alone is told what to do with it."""
    path = tmp_path / "weights.pt"
    torch.save(torch.nn.Linear(2, 1).state_dict(), path)
    with refused(
        CheckpointError, "no trainer checkpoint", "['bias', 'weight']", "module.load_state_dict"
    ):
        use(path)


class Payload:
    """An object that only code could rebuild."""


def test_a_checkpoint_with_objects(use, tmp_path) -> None:
    """A file that would need code to be opened is not opened, and the reason given."""
    path = tmp_path / "objects.ckpt"
    torch.save({"state_dict": {}, "extra": Payload()}, path)
    with refused(CheckpointError, str(path), "never run here"):
        use(path)


def test_resuming_from_weights_alone(Tiny, quiet_trainer, batches, tmp_path) -> None:
    """fit cannot go on from a checkpoint without the optimizer; the message says what can."""
    path = tmp_path / "weights.ckpt"
    trainer = quiet_trainer()
    trainer.fit(Tiny(), batches(1))
    trainer.save_checkpoint(path, weights_only=True)
    with refused(CheckpointError, str(path), "holds weights alone", "Tiny.load_from_checkpoint"):
        quiet_trainer(max_epochs=2).fit(Tiny(), batches(1), ckpt_path=path)


@pytest.mark.parametrize("name", ["best", "last"])
def test_best_and_last_without_a_saver(Tiny, quiet_trainer, batches, name) -> None:
    """The two names need a checkpoint callback that has saved."""
    words = (f"ckpt_path='{name}'", "no checkpoint callback", "give a path")
    with refused(CheckpointNotFoundError, *words):
        quiet_trainer().fit(Tiny(), batches(1), ckpt_path=name)


def test_weights_that_do_not_fit(use, saved, Tiny, quiet_trainer, batches) -> None:
    """Missing and unexpected names and other shapes are listed, and nothing is loaded."""

    class Other(Tiny):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)
            self.head = torch.nn.Linear(1, 1)

    checkpoint = torch.load(saved, weights_only=True)
    checkpoint["state_dict"]["tail.weight"] = torch.zeros(1)
    torch.save(checkpoint, saved)
    other = Other()
    before = other.layer.bias.clone()
    with refused(
        CheckpointError,
        f"the weights in {str(saved)!r} do not fit ",
        "Other: ",
        "Missing key(s) in state_dict: head.weight, head.bias",
        "Unexpected key(s) in state_dict: tail.weight",
        "of another shape: layer.weight (saved (1, 2), here (1, 3))",
        "Build the module with the arguments it was saved with; for other layers there, replace "
        "them after load_from_checkpoint.",
    ):
        quiet_trainer(max_epochs=2).fit(other, batches(1), ckpt_path=saved)
    assert torch.equal(other.layer.bias, before)
    with refused(CheckpointError, "Unexpected key(s) in state_dict: tail.weight"):
        use(saved)


def test_weights_that_fit_in_part(saved, Tiny) -> None:
    """Where only names differ, strict=False is offered, and loads what fits."""

    class Other(Tiny):
        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Linear(1, 1)

    with refused(
        CheckpointError, "Missing key(s) in state_dict: head.weight, head.bias", "strict=False"
    ):
        Other.load_from_checkpoint(saved)
    weight = torch.load(saved, weights_only=True)["state_dict"]["layer.weight"]
    with pytest.warns(TrainerHooksWarning, match="in part: Missing key.*: head.weight, head.bias"):
        other = Other.load_from_checkpoint(saved, strict=False)
    assert torch.equal(other.layer.weight, weight)


def test_another_number_of_optimizers(quiet_trainer, batches, saved) -> None:
    """A checkpoint of other optimizers is refused with both numbers."""

    with refused(CheckpointError, "1 entries under 'optimizer_states'", "returned 0", "the same"):
        quiet_trainer(max_epochs=2).fit(UnoptimizedLinear(), batches(1), ckpt_path=saved)


# --- options and hardware ---


def test_an_unknown_option() -> None:
    """A misspelt option is suggested right."""
    with refused(OptionError, "Trainer(max_epoch=...)", "no option", "Did you mean 'max_epochs'?"):
        Trainer(max_epoch=3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"accelerator": "tpu"}, ["accelerator='tpu'", "auto, cpu, cuda, gpu, mps"]),
        ({"accelerator": "gpus"}, ["accelerator='gpus'", "Did you mean 'gpu'?"]),
        ({"devices": "two"}, ["devices='two'", "must be 'auto', a number of devices"]),
        ({"devices": [0, 0]}, ["devices=[0, 0]", "a list of different indices"]),
        ({"devices": 2, "strategy": "single_device"}, ["devices=2"]),
        ({"strategy": "fsdpp"}, ["strategy='fsdpp'", "Did you mean 'fsdp'", "FSDPStrategy"]),
        ({"precision": "transformer-engine"}, ["not available", "bf16-mixed"]),
        ({"precision": "fp16"}, ["precision='fp16'", "must be one of 16-mixed, 16-true, 32-true"]),
        ({"num_nodes": 2}, ["num_nodes=2", "torchrun --nnodes 2"]),
    ],
)
def test_hardware_that_is_not_supported(options: dict, words: list[str]) -> None:
    """What cannot be had is named with what can."""
    with refused(OptionError, "Trainer(", *words):
        Trainer(**options)


@pytest.mark.parametrize("accelerator", ["cuda", "gpu", "mps"])
def test_hardware_that_is_not_there(monkeypatch, accelerator) -> None:
    """A device that this machine lacks is named, with the version of torch and a way out."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    words = (f"accelerator={accelerator!r}", torch.__version__, "no such device", "'cpu'")
    with refused(OptionError, *words):
        Trainer(accelerator=accelerator)


def test_a_device_number_that_is_not_there(monkeypatch) -> None:
    """An index beyond the devices is refused with how many there are."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with refused(OptionError, "devices=[2]", "2 CUDA device(s), numbered 0 to 1"):
        Trainer(accelerator="cuda", devices=[2])


def test_a_fit_that_has_nothing_to_do(Tiny, quiet_trainer, batches) -> None:
    """A second fit past max_epochs warns with what is done already and how to go on."""
    trainer, net = quiet_trainer(), Tiny()
    trainer.fit(net, batches(2))
    with pytest.warns(TrainerHooksWarning) as caught:
        trainer.fit(net, batches(2))
    message = str(caught[0].message)
    for words in ("nothing to do", "max_epochs=1 epochs are done", "step 2", "trainer.max_epochs"):
        assert words in message
    assert caught[0].filename == __file__
    assert trainer.num_training_batches in (2, math.inf)


# --- what is of a framework that has no adapter ---

FOREIGN = [
    ("fastai.callback.core", "Callback"),
    ("keras.src.callbacks.callback", "Callback"),
    ("skorch.callbacks.base", "Callback"),
    ("detectron2.engine.train_loop", "HookBase"),
    ("catalyst.core.callback", "ICallback"),
]


def somebodys(home: str, name: str, *bases: type) -> Any:
    """An object of a class of somebody's who derives it from another framework's."""
    base = type(name, bases or (object,), {"__module__": home})
    return type("Mine", (base,), {"__module__": "my_project.parts"})()


@pytest.mark.parametrize(("home", "name"), FOREIGN)
def test_it_is_said_whose_it_is_and_what_to_do(Tiny, quiet_trainer, home: str, name: str) -> None:
    """A callback, logger, data module or module of such a one is told with its framework."""
    framework = home.partition(".")[0]
    words = (f"a class of {framework!r}", f"{home}.{name}", "run it there", "register an adapter")
    thing = somebodys(home, name)
    with refused(CallbackError, "callbacks[0]", "trainer_hooks.Callback", *words):
        quiet_trainer(callbacks=[thing])
    with refused(OptionError, "Trainer(logger=", "trainer_hooks.loggers.Logger", *words):
        quiet_trainer(logger=thing)
    with refused(DataError, "as datamodule", "trainer_hooks.DataModule", *words):
        quiet_trainer().fit(Tiny(), datamodule=thing)
    with refused(ModuleError, "as its model", "trainer_hooks.Module", *words):
        quiet_trainer().fit(somebodys(home, name, torch.nn.Module))


def test_a_class_that_derives_from_nobodys_is_not_said_to_be_foreign(quiet_trainer) -> None:
    """A plain object, or one of a base of its own package, gets the rule and no guess."""
    own = type("Base", (torch.nn.Module,), {"__module__": "my_project.bases"})
    mine = type("Mine", (own,), {"__module__": "my_project.parts"})()
    with pytest.raises(ModuleError) as caught:
        quiet_trainer().fit(mine)
    assert "a class of" not in str(caught.value)


def test_a_class_whose_base_lies_in_another_package_is_to_be_called(quiet_trainer) -> None:
    """It derives from Module, so that it is no other framework's."""
    base = type("Base", (Module,), {"__module__": "shared_models"})
    net = type("Net", (base,), {"__module__": "train"})
    with refused(ModuleError, "Write Net(...) instead of Net"):
        quiet_trainer().fit(net, [])
