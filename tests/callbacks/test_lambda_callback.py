from __future__ import annotations

import pytest
from for_each import for_each

from trainer_hooks.callbacks import LambdaCallback
from trainer_hooks.connector.connector import CallbackConnector
from trainer_hooks.errors import CallbackError
from trainer_hooks.hooks.spec import ALIASES, HOOKS


def test_unknown_hook_is_named_with_the_nearest():
    """A name that is no hook is refused, with the one that was probably meant."""
    with pytest.raises(CallbackError, match=r"'on_train_epoch_stop'.*Did you mean 'on_train_epoch"):
        LambdaCallback(on_train_epoch_stop=print)


@pytest.mark.parametrize("name", ["state_dict", "run_event", "band"])
def test_what_a_callback_has_beside_hooks_cannot_be_given(name):
    """Methods and attributes of Callback that are no hooks are refused too."""
    with pytest.raises(CallbackError, match=f"hook {name!r} of LambdaCallback: there is no hook"):
        LambdaCallback(**{name: print})


@pytest.mark.parametrize("value", [3, "print"])
def test_value_that_cannot_be_called(value):
    """A value that is no function is refused, with the hook's name."""
    with pytest.raises(CallbackError, match=r"'on_fit_start' of LambdaCallback: .* cannot be call"):
        LambdaCallback(on_fit_start=value)


def test_hook_under_both_its_names():
    """One hook cannot be given under its older and its new name, since only one would run."""
    with pytest.raises(CallbackError, match="is the older name of 'on_configure_model'"):
        LambdaCallback(on_configure_model=print, on_configure_sharded_model=print)


@for_each([*HOOKS, *ALIASES])
def test_every_hook_of_the_catalogue_can_be_given(name):
    """Each hook's function is called by the relay with the hook's arguments, and only it is."""
    seen = []
    connector = CallbackConnector(
        LambdaCallback(**{name: lambda *args: seen.append(args)}), discover=False
    )
    hook = ALIASES.get(name, name)
    arguments = tuple(range(len(HOOKS[hook].arguments)))
    getattr(connector.relay, hook)(*arguments)
    assert seen == [arguments]
    assert connector.relay.listened == {hook}


def test_two_lambda_callbacks_take_part():
    """Several LambdaCallbacks live beside each other and are told apart by their functions."""

    def first(trainer, module):
        pass

    def second(trainer, module):
        pass

    one, other = LambdaCallback(on_fit_start=first), LambdaCallback(on_fit_start=second)
    assert CallbackConnector([one, other], discover=False).callbacks == (one, other)
    assert one.state_key != other.state_key
    assert one.state_key == LambdaCallback(on_fit_start=first).state_key
    assert not one.is_stateful
    assert repr(one) == "LambdaCallback(on_fit_start)"


def test_object_that_can_be_called():
    """An instance with __call__ will do for a function."""

    class Recorder:
        def __call__(self, trainer, module):
            self.seen = (trainer, module)

    recorder = Recorder()
    callback = LambdaCallback(on_fit_start=recorder)
    callback.on_fit_start(1, 2)
    assert recorder.seen == (1, 2)
    assert "Recorder" in callback.state_key


def test_none_stands_for_no_function():
    """As in Lightning, so that `on_x=f if wanted else None` can be written."""
    callback = LambdaCallback(on_train_start=None, on_fit_end=print)
    assert "on_train_start" not in vars(callback)
    assert "on_train_start" not in callback.state_key
    assert repr(callback) == "LambdaCallback(on_fit_end)"
