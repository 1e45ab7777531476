"""The errors of a conversion for a framework that is not there, or not wholly."""

from __future__ import annotations

import pytest

from trainer_hooks import Callback
from trainer_hooks.adapters import (
    to_accelerated,
    to_composer,
    to_ignite,
    to_lightning,
    to_transformers,
)
from trainer_hooks.adapters.export.accelerated import AcceleratedDriver
from trainer_hooks.adapters.export.composer import ComposerDriver
from trainer_hooks.adapters.export.ignite import IgniteCallback, IgniteDriver
from trainer_hooks.adapters.export.lightning import LightningDriver
from trainer_hooks.adapters.export.requirements import import_host_framework
from trainer_hooks.adapters.export.transformers import TransformersDriver
from trainer_hooks.errors import CallbackError, TrainerHooksWarning

DRIVERS = {
    to_lightning: LightningDriver,
    to_transformers: TransformersDriver,
    to_composer: ComposerDriver,
    to_accelerated: lambda callback, function: AcceleratedDriver(callback, function, 50),
    to_ignite: lambda callback, function: IgniteDriver(callback, function, 50),
}
each_host = pytest.mark.parametrize("convert", DRIVERS, ids=lambda function: function.__name__)


class Mine(Callback):
    """A hook that each host has."""

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        pass


class Foreign:
    """A callback of another framework."""

    __module__ = "pytorch_lightning.callbacks.early_stopping"


class Converted:
    """One of ours in the form of a host."""

    trainer_hooks_driver = object()


@each_host
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Mine, r"is the class Mine: .* Write Mine\(\.\.\.\) instead of Mine"),
        (object(), r"of type object: it must be an instance of trainer_hooks.Callback"),
        (None, r"is None of type NoneType: it must be"),
        ("Mine", "is the text 'Mine'"),
        (Foreign(), r"of type Foreign of the package 'pytorch_lightning': .* that framework's"),
        (Foreign, r"of the package 'pytorch_lightning' \(a class: write Foreign\(\.\.\.\)\)"),
        (Converted(), r"is Converted, which is converted already"),
        (IgniteCallback.__new__(IgniteCallback), "is IgniteCallback, which is converted already"),
    ],
)
def test_what_is_no_callback_is_told(convert, given, said) -> None:
    """As in our Trainer, with the function's name; the host's framework is not needed for it."""
    where = rf"the callback of {convert.__name__}\(\.\.\.\) .*"
    with pytest.raises(CallbackError, match=where + said):
        convert(given)


@each_host
def test_a_misspelt_hook_is_told(convert) -> None:
    """Once, with the hook that was meant."""

    class Misspelt(Mine):
        def on_train_batch_ned(self, trainer, module):
            pass

    said = (
        rf"Misspelt.* from {convert.__name__}\(\.\.\.\).*'on_train_batch_ned' is no hook.* Did you "
        r"mean 'on_train_batch_end'"
    )
    with pytest.warns(TrainerHooksWarning, match=said) as caught:
        DRIVERS[convert](Misspelt(), convert.__name__)
    assert len(caught) == 1


@each_host
def test_a_hook_that_cannot_be_called_is_told(convert) -> None:
    """Before the run, in which it would fail."""

    class Wrong(Mine):
        def on_train_epoch_end(self):
            pass

    with pytest.raises(CallbackError, match=r"Wrong.*on_train_epoch_end"):
        convert(Wrong())


def test_a_framework_that_is_not_installed_is_told() -> None:
    """By its own name, with the command that installs it."""
    with pytest.raises(CallbackError, match=r"Frame is not installed. .* pip install their-f"):
        import_host_framework("no_such_frame.core", "Their Frame", "to_theirs", "their-frame")


def test_a_framework_that_lacks_a_package_is_told(tmp_path, monkeypatch) -> None:
    """The package that is missing is named: the framework itself is installed."""
    (tmp_path / "half_a_frame.py").write_text("import no_such_vision.ops\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    said = "cannot be imported, as it lacks 'no_such_vision'. Install it: pip install no_such_vis"
    with pytest.raises(CallbackError, match=said):
        import_host_framework("half_a_frame", "Half a Frame", "to_half", "half-a-frame")
