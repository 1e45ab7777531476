"""Names of ours that Lightning has not: a user's own under its import lines and hosted, told else.

The names are drawn from the code, so that a new public name is covered.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import pickle
import warnings
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from for_each import for_each
from quiet_trainers import QUIET_OPTIONS
from samples import one_in
from torch.utils.data import DataLoader, TensorDataset

import trainer_hooks
import trainer_hooks.compat.lightning as pl
from trainer_hooks import loggers
from trainer_hooks._names import names_left_to_user
from trainer_hooks.adapters.lightning.names import CALLBACK_NAMES, MODULE_NAMES
from trainer_hooks.callback import OWN_NAMES
from trainer_hooks.compat import accelerated, composer
from trainer_hooks.errors import (
    CallbackError,
    ModuleError,
    TrainerHooksError,
    TrainerHooksWarning,
)
from trainer_hooks.hooks.spec import ALIASES, HOOKS

QUIET = {**QUIET_OPTIONS, "limit_train_batches": 2, "limit_val_batches": 1}
WAYS = ("import line", "hosted")

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    # those that Lightning 1 called are told: tests/compat/lightning/test_uncalled.py
    pytest.mark.filterwarnings("ignore:.*nothing calls the method .* here. it is .*of Lightning 1"),
]


def names_of(kind: type) -> list[str]:
    """Return the public names that the user may use for anything; no dunder, none of torch's."""
    return sorted(names_left_to_user(kind))


def bases(way: str) -> SimpleNamespace:
    """Return the classes that a user's classes derive from."""
    if way == "plain":
        return SimpleNamespace(
            module=trainer_hooks.Module,
            callback=trainer_hooks.Callback,
            datamodule=trainer_hooks.DataModule,
            logger=loggers.Logger,
        )
    if way == "import line":
        package, logger = pl, pl.loggers.Logger
    else:
        if find_spec("pytorch_lightning") is None:
            pytest.skip("Lightning is not installed")
        import pytorch_lightning as package

        logger = package.loggers.Logger
    return SimpleNamespace(
        module=package.LightningModule,
        callback=package.Callback,
        datamodule=package.LightningDataModule,
        logger=logger,
    )


def own_method(self: Any, *, only_by_name: Any) -> Any:
    """Fail if anybody but the user's code calls it."""
    raise AssertionError("it was called")


def as_method(_name: str) -> Any:
    return own_method


def as_property(name: str) -> Any:
    return property(lambda self: ("own", name))


def as_attribute(name: str) -> Any:
    return ("own", name)


FORMS = {"method": as_method, "property": as_property, "class attribute": as_attribute}


def build(way: str, names: list[str], form: str, part: str) -> SimpleNamespace:
    """Return a module, callback, data module and logger, of which `part` uses `names` for its own.

    Args:
        way: the bases' package.
        names: the names.
        form: a key of `FORMS`; or `"attribute"`, `"parameter"`, `"buffer"` or `"submodule"`, set in
            `__init__`.
        part: which of the four has them.
    """
    kinds = bases(way)
    defined = {part: {name: FORMS[form](name) for name in names} if form in FORMS else {}}

    def set_up(self: Any) -> None:
        for name in names:
            if form == "attribute":
                setattr(self, name, ("own", name))
            elif form == "parameter":
                setattr(self, name, torch.nn.Parameter(torch.ones(1)))
            elif form == "buffer":
                self.register_buffer(name, torch.ones(1))
            elif form == "submodule":
                setattr(self, name, torch.nn.Linear(1, 1))

    def init_of(which: str, kind: type) -> Any:
        def __init__(self: Any) -> None:
            kind.__init__(self)
            if which == "module":
                self.layer = torch.nn.Linear(2, 1)
            if which == part:
                set_up(self)

        return __init__

    data = TensorDataset(torch.ones(8, 2))
    methods: dict[str, dict[str, Any]] = {
        "module": {
            "training_step": lambda self, batch, batch_idx: self.layer(batch[0]).square().mean(),
            "validation_step": lambda self, batch, batch_idx: self.log("v", 1.0),
            "configure_optimizers": lambda self: torch.optim.SGD(self.parameters(), 0.01),
        },
        "callback": {
            "state_dict": lambda self: {"n": 1},
            "load_state_dict": lambda self, state: None,
            "on_train_batch_end": lambda self, *_: setattr(self, "ended", True),
        },
        "datamodule": {
            "train_dataloader": lambda self: DataLoader(data, 2),
            "val_dataloader": lambda self: DataLoader(data, 2),
        },
        "logger": {
            "name": "own",
            "version": 0,
            "log_metrics": lambda self, metrics, step=None: None,
            "log_hyperparams": lambda self, params, *_: None,
        },
    }
    return SimpleNamespace(
        **{
            which: type(
                f"Users{which.title()}",
                (kind,),
                {"__init__": init_of(which, kind), **methods[which], **defined.get(which, {})},
            )()
            for which, kind in vars(kinds).items()
        }
    )


def fit_and_resume(
    way: str, names: list[str], form: str, part: str, folder: Any
) -> SimpleNamespace:
    """Train two batches, save, and resume in new objects; return these."""
    kind = pl.Trainer if way == "import line" else trainer_hooks.Trainer
    for epochs in (1, 2):
        made = build(way, names, form, part)
        trainer = kind(
            **{**QUIET, "logger": made.logger},
            max_epochs=epochs,
            callbacks=[made.callback],
            default_root_dir=str(folder),
            log_every_n_steps=1,
        )
        path = str(folder / "saved.ckpt") if epochs == 2 else None
        trainer.fit(made.module, datamodule=made.datamodule, ckpt_path=path)
        assert trainer.global_step == 2 * epochs
        assert made.callback.ended
        trainer.save_checkpoint(folder / "saved.ckpt")
    return made


KINDS = {
    "module": pl.LightningModule,
    "callback": pl.Callback,
    "datamodule": pl.LightningDataModule,
    "logger": pl.loggers.Logger,
}
FORMS_OF = {
    part: (*FORMS, "attribute", *(("parameter", "buffer", "submodule") if part == "module" else ()))
    for part in KINDS
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("part", "form"),
    one_in(
        2,
        (pytest.param(part, form) for part, forms in FORMS_OF.items() for form in forms),
        otherwise="slow",
    ),
)
def test_names_that_lightning_has_not_are_the_users(way, part, form, tmp_path):
    """They keep their values and nothing calls them, over two batches, a save and a resume."""
    names = names_of(KINDS[part])
    assert len(names) > (40 if part in ("module", "callback") else 2)
    owner = getattr(fit_and_resume(way, names, form, part, tmp_path), part)
    for name in names:
        if form in ("property", "class attribute", "attribute"):
            assert getattr(owner, name) == ("own", name)
        elif form == "submodule":
            assert isinstance(getattr(owner, name), torch.nn.Linear)
        elif form in ("parameter", "buffer"):
            assert getattr(owner, name).shape == (1,)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ending", ["stop", "error"])
def test_names_are_the_users_where_a_run_ends_early(way, ending, tmp_path):
    """A stop inside of an epoch, whose request is in the checkpoint; an error, and the resume."""
    kind = pl.Trainer if way == "import line" else trainer_hooks.Trainer
    for part in KINDS:
        names = names_of(KINDS[part])
        for path in (None, str(tmp_path / part / "saved.ckpt")):
            made = build(way, names, "property", part)
            trainer = kind(
                **{**QUIET, "logger": made.logger, "limit_train_batches": 4},
                max_epochs=3,
                val_check_interval=1,
                callbacks=[made.callback, _Ends(ending), _Saves(tmp_path / part / "saved.ckpt")],
                default_root_dir=str(tmp_path / part),
            )
            with pytest.raises(KeyError) if ending == "error" else contextlib.nullcontext():
                trainer.fit(made.module, datamodule=made.datamodule, ckpt_path=path)
        owner = getattr(made, part)
        assert [getattr(owner, name) for name in names] == [("own", name) for name in names]


class _Ends(trainer_hooks.Callback):
    """Requests a stop in each second batch, or raises an error."""

    def __init__(self, way: str) -> None:
        self.way = way

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step % 2 == 0:
            if self.way == "error":
                raise KeyError("ended")
            trainer.should_stop = True


class _Saves(trainer_hooks.Callback):
    """Saves after each batch."""

    def __init__(self, path: Any) -> None:
        self.path = path

    def on_batch_checkpoint(self, trainer: Any, *_: Any) -> None:
        trainer.save_checkpoint(self.path)


BUILT_IN_ARGUMENTS: dict[str, dict[str, Any]] = {
    "BackboneFinetuning": {"unfreeze_backbone_at_epoch": 1, "verbose": True},
    "BasePredictionWriter": {"write_interval": "epoch"},
    "BatchSizeFinder": {"max_trials": 1, "steps_per_trial": 1},
    "EarlyStopping": {"monitor": "v", "patience": 1, "check_on_train_epoch_end": False},
    "GradientAccumulationScheduler": {"scheduling": {1: 2}},
    "LearningRateFinder": {"num_training_steps": 3},
    "ModelCheckpoint": {"monitor": "v", "save_last": True},
    "ModelPruning": {"pruning_fn": "l1_unstructured"},
    "OnExceptionCheckpoint": {"dirpath": "unused"},
    "SpikeDetection": {"warmup": 1},
    "StochasticWeightAveraging": {"swa_lrs": 0.1},
    "ThroughputMonitor": {"batch_size_fn": len, "window_size": 2},
    "Timer": {"duration": "00:01:00:00"},
    "WeightAveraging": {"device": "cpu"},
}
BUILT_INS = sorted(set(pl.callbacks.__all__) - {"Callback", "ProgressBarBase"})
UNHOSTED = {"QuantizationAwareTraining": "Lightning 2 has none"}
UNRESUMED = {"SpikeDetection"}
"""Callbacks of Lightning that cannot load their own state."""


def users_built_in(way: str, name: str, form: str) -> tuple[Any, list[str]]:
    """Return a user's subclass of a built-in callback, built, and the names it has for its own.

    Args:
        way: the package of the built-in callback.
        name: the built-in callback's name.
        form: as for `build`; empty for no names.
    """
    names = names_of(getattr(pl.callbacks, name)) if form else []
    package = pl
    if way == "hosted":
        if find_spec("pytorch_lightning") is None:
            pytest.skip("Lightning is not installed")
        import pytorch_lightning as package
    base = getattr(package.callbacks, name)

    def __init__(self: Any, **kwargs: Any) -> None:
        base.__init__(self, **kwargs)
        if form == "attribute":
            for each in names:
                setattr(self, each, ("own", each))

    defined: dict[str, Any] = {each: FORMS[form](each) for each in names if form in FORMS}
    if name == "BasePredictionWriter":
        defined["write_on_epoch_end"] = lambda self, *_: None
    if name == "BaseFinetuning":
        defined["freeze_before_training"] = lambda self, module: self.freeze(module.backbone)
        defined["finetune_function"] = lambda self, *_: None
    kind = type("Users", (base,), {"__init__": __init__, **defined})
    return kind(**BUILT_IN_ARGUMENTS.get(name, {})), names


class _Net:
    """What is the user's own in the module of a run with a built-in callback."""

    def set_up(self) -> None:
        self.backbone, self.head = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)
        self.batch_size = 2
        self.lr = 0.01

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.head(self.backbone(batch[0])).square().mean()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("v", self.training_step(batch, batch_idx))

    def configure_optimizers(self) -> Any:
        trained = [each for each in self.parameters() if each.requires_grad]
        return torch.optim.SGD(trained, self.lr)

    def train_dataloader(self) -> Any:
        return DataLoader(TensorDataset(torch.ones(8, 2)), self.batch_size)

    val_dataloader = train_dataloader


def trace_of_built_in(way: str, name: str, form: str, folder: Any) -> Any:
    """Return what a run with the callback, and its resume, leave behind."""
    kind = pl.Trainer if way == "import line" else trainer_hooks.Trainer
    trace = []
    options = {
        **QUIET,
        "logger": loggers.CSVLogger(folder, version="v"),
        "limit_train_batches": 4,
        "enable_checkpointing": "Checkpoint" in name,
        "enable_model_summary": "Summary" in name,
        "enable_progress_bar": "ProgressBar" in name,
    }
    for epochs in (1, 2):
        torch.manual_seed(0)
        callback, names = users_built_in(way, name, form)
        net = type("Net", (_Net, bases(way).module), {})()
        net.set_up()
        trainer = kind(
            **options,
            max_epochs=epochs,
            callbacks=[callback],
            default_root_dir=str(folder),
            log_every_n_steps=1,
        )
        path = str(folder / "saved.ckpt") if epochs == 2 and name not in UNRESUMED else None
        trainer.fit(net, ckpt_path=path)
        trainer.save_checkpoint(folder / "saved.ckpt")
        for each in names if form != "method" else ():
            assert getattr(callback, each) == ("own", each)
        weights = {key: repr(value) for key, value in net.state_dict().items()}
        trace.append((weights, trainer.global_step))
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
    return trace, files


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*flops_per_batch")
@pytest.mark.filterwarnings("ignore:Checkpoint directory")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", one_in(10, BUILT_INS))
def test_names_are_the_users_in_a_subclass_of_a_built_in_callback(way, name, tmp_path):
    """Each form: the run, its resume, weights and files are as without the names."""
    if way == "hosted" and name in UNHOSTED:
        pytest.skip(UNHOSTED[name])
    without = trace_of_built_in(way, name, "", tmp_path / "without")
    assert len(names_of(getattr(pl.callbacks, name))) > 40
    for form in (*FORMS, "attribute"):
        assert trace_of_built_in(way, name, form, tmp_path / form) == without, form


@pytest.mark.parametrize("name", BUILT_INS)
def test_the_extras_of_built_in_callbacks_are_known(name):
    """Each public name that Lightning's class has not is left to the user, or an option's."""
    lightning = pytest.importorskip("pytorch_lightning")
    here, theirs = getattr(pl.callbacks, name), getattr(lightning.callbacks, name, None)
    if theirs is None:
        pytest.skip(f"Lightning has no {name}")
    names = {each for each in dir(here) if each[0] != "_"} - set(dir(theirs))
    source = "".join(map(inspect.getsource, theirs.__mro__[:-1]))
    inside = {each for each in names if f"self.{each}" in source}  # set in its `__init__`
    assert names - inside - OTHER_NAMES - names_left_to_user(here) == set()


OTHER_NAMES = {
    "CHECKPOINT_NAME_EXCEPTION", "CHECKPOINT_NAME_PREEMPTED", "guest_class", "is_disabled",
    "is_enabled", "log", "log_dict", "main_progress_bar", "progress",
}  # fmt: skip
"""Constants, names that Lightning's Trainer sets, and those of another of its bars."""


def test_built_in_callbacks_by_import_line_are_those_of_the_trainer():
    """`isinstance` holds for callbacks that the Trainer makes, and one class has one name."""
    trainer = pl.Trainer(accelerator="cpu", logger=False)
    assert isinstance(trainer.checkpoint_callback, pl.callbacks.ModelCheckpoint)
    assert isinstance(trainer.checkpoint_callback, pl.callbacks.Checkpoint)
    assert not isinstance(trainer.checkpoint_callback, pl.callbacks.EarlyStopping)
    saver = pl.callbacks.ModelCheckpoint()
    assert isinstance(saver, (trainer_hooks.callbacks.ModelCheckpoint, pl.Callback))
    assert pl.callbacks.ProgressBarBase is pl.callbacks.ProgressBar
    assert pl.callbacks.model_checkpoint.ModelCheckpoint is pl.callbacks.ModelCheckpoint

    class Users(pl.callbacks.ModelCheckpoint):
        pass

    assert isinstance(Users(), pl.callbacks.ModelCheckpoint)
    assert not isinstance(saver, Users)
    assert Users not in trainer_hooks.callbacks.Checkpoint.__subclasses__()
    assert type(pickle.loads(pickle.dumps(saver))) is pl.callbacks.ModelCheckpoint
    assert saver.state_key == trainer_hooks.callbacks.ModelCheckpoint().state_key


CASES = [
    (part, name, form)
    for part, kind in KINDS.items()
    for name in names_of(kind)
    for form in FORMS_OF[part]
]


def is_clash(part: str, name: str, form: str) -> bool:
    """Return whether it is no legitimate definition: a property may stand for an option."""
    kind = getattr(bases("plain"), part)
    if form == "property" and name not in HOOKS and not callable(getattr(kind, name, None)):
        return False
    if name == "volatile_state":
        return form == "method"  # any collection of names will do
    # the others are methods of Lightning 1.x, which nothing here calls
    return hasattr(kind, name) or (name in ALIASES and form in ("method", "attribute"))


@for_each([case for case in CASES if is_clash(*case)])
def test_a_clash_in_a_plain_class_is_told_by_name(part, name, form):
    """When the class is defined, the object built, or the callback or logger handed over."""
    with pytest.raises((TrainerHooksError, AttributeError, TrainerHooksWarning)) as raised:
        made = build("plain", [name], form, part)
        trainer_hooks.Trainer(
            **{**QUIET, "logger": made.logger}, callbacks=[made.callback], max_epochs=1
        ).fit(made.module, datamodule=made.datamodule)
    assert name in str(raised.value)


OTHER_CALLBACKS = {"composer": composer.Callback, "accelerated": accelerated.TrainerCallback}


@for_each(
    [
        (package, name)
        for package, kind in OTHER_CALLBACKS.items()
        for name in sorted(OWN_NAMES - getattr(kind, "translated_hooks", frozenset()))
    ]
)
def test_a_clash_in_a_callback_of_another_package_is_told_by_name(package, name):
    """When the class is defined, the object built, or the callback handed to a Trainer."""
    kind = OTHER_CALLBACKS[package]
    with pytest.raises((TrainerHooksError, AttributeError)) as raised:
        made = type("Users", (kind,), {name: own_method})()
        trainer_hooks.Trainer(**QUIET, callbacks=[made])
    assert name in str(raised.value)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("part", ["module", "callback", "datamodule"])
def test_a_mixin_after_the_base_keeps_its_names(way, part):
    """`class Net(LightningModule, Mixin)`: a method, a property and a value of the mixin."""
    method, value, *rest = names_of(KINDS[part])
    held = {method: lambda self: "method", value: 3, rest[0]: property(lambda self: "property")}
    kind = type("Net", (getattr(bases(way), part), type("Mixin", (), held)), {})
    made = kind()
    assert getattr(made, method)() == "method"
    assert (getattr(made, value), getattr(kind, value)) == (3, 3)
    assert getattr(made, rest[0]) == "property"


def test_a_module_with_names_left_to_the_user_is_copied_and_scripted():
    """Copies, pickles and TorchScript do not meet the hidden names."""
    net = pl.demos.boring_classes.BoringModel()
    net.num_samples = 5
    assert copy.deepcopy(net).num_samples == pickle.loads(pickle.dumps(net)).num_samples == 5
    assert not hasattr(net, "num_tokens")
    callback = pl.Callback()
    callback.band = 3
    assert copy.deepcopy(callback).band == pickle.loads(pickle.dumps(callback)).band == 3
    with warnings.catch_warnings(action="ignore"):
        scripted = net.to_torchscript()
    assert scripted(torch.ones(1, 32)).shape == (1, 2)


def test_a_module_is_told_of_a_clash_when_it_is_defined_or_built():
    """Not in the middle of a run; the message has the name and the cure."""
    cure = "Give yours another name, such as 'my_num_samples'"
    with pytest.raises(ModuleError, match=cure):
        build("plain", ["num_samples"], "method", "module")
    for form in ("attribute", "parameter", "buffer", "submodule"):
        with pytest.raises(ModuleError, match=cure):
            build("plain", ["num_samples"], form, "module")
    with pytest.raises(CallbackError, match="another name, such as 'my_attach_module'"):
        build("plain", ["attach_module"], "method", "callback")


def test_a_property_of_ours_tells_the_cure_when_it_is_set():
    """`self.is_stateful = ...` in a callback, `self.saved_hparams = ...` in a data module."""
    with pytest.raises(AttributeError, match="another name, such as 'my_is_stateful'"):
        build("plain", ["is_stateful"], "attribute", "callback")
    with pytest.raises(AttributeError, match="another name, such as 'my_saved_hparams'"):
        build("plain", ["saved_hparams"], "attribute", "datamodule")


@pytest.mark.parametrize("kind", ["module", "callback"])
def test_the_names_of_lightning_are_those_of_its_classes(kind):
    """The table of names that both have is what Lightning's own classes say."""
    theirs, here = getattr(bases("hosted"), kind), getattr(bases("plain"), kind)
    torchs = set(dir(torch.nn.Module)) if kind == "module" else set()
    both = {name for name in set(dir(theirs)) & set(dir(here)) if name[0] != "_"} - torchs
    table = {"module": MODULE_NAMES, "callback": CALLBACK_NAMES}[kind]
    # these Lightning's Trainer sets on the callback
    assert table - {"log", "log_dict"} == both - {"log", "log_dict"}


def test_a_user_may_still_define_what_is_ours():
    """`num_samples(batch)`, `band` and a hook as they are meant."""

    class Net(trainer_hooks.Module):
        def num_samples(self, batch):
            return 2

        def on_epoch_end(self):
            pass

    class Last(trainer_hooks.Callback):
        band = trainer_hooks.Band.SAVE
        state_version = 2
        volatile_state: ClassVar = {"seconds"}

        def on_log(self, trainer, module, metrics, step):
            pass

        def upgrade_state_dict(self, state, from_version):
            return state

    net = Net()
    net.on_train_start = lambda: None
    net.on_log = None
    assert Last().band is trainer_hooks.Band.SAVE
