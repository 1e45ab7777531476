"""Doubts that are voiced about a callback before anything runs."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import pytest
from for_each import for_each

from trainer_hooks.callback import Callback
from trainer_hooks.hooks.check import hook_errors, hook_warnings
from trainer_hooks.hooks.spec import HOOKS


def test_the_empty_callback_raises_no_doubt() -> None:
    """A callback that overrides nothing has nothing wrong with it."""
    assert hook_warnings(Callback()) == hook_errors(Callback()) == ()


def test_a_misspelt_hook_is_named_with_the_nearest() -> None:
    """A public `on_` method that is no hook is reported with the hook that was meant."""

    class Typo(Callback):
        def on_train_epoch_ends(self, trainer, module):
            pass

    [doubt] = hook_warnings(Typo())
    assert "'on_train_epoch_ends' is no hook" in doubt
    assert "Did you mean 'on_train_epoch_end'?" in doubt


def test_a_misspelt_hook_on_the_instance_is_found() -> None:
    """A function set on the instance under a name that is no hook is reported too."""
    callback = Callback()
    callback.on_fit_begin = lambda trainer, module: None  # type: ignore[attr-defined]
    [doubt] = hook_warnings(callback)
    assert "'on_fit_begin' is no hook" in doubt


def test_other_methods_and_data_are_left_alone() -> None:
    """Private methods, methods of other names, and data called `on_...` are no typos."""

    class Fine(Callback):
        on_error = "disable"

        def _on_something(self):
            pass

        def verify_train_batch(self, **kwargs):
            pass

        def on_configure_sharded_model(self, trainer, module):
            pass

    assert hook_warnings(Fine()) == ()


def test_a_signature_that_is_too_short_is_reported() -> None:
    """A hook that cannot take its arguments is reported with the signature that it needs."""

    class Short(Callback):
        def on_train_batch_end(self, trainer, module):
            pass

    [fault] = hook_errors(Short())
    assert "'on_train_batch_end' cannot take" in fault
    assert "on_train_batch_end(self, trainer, module, outputs, batch, batch_idx)" in fault


def test_a_keyword_only_argument_is_reported() -> None:
    """Hooks are called positionally, so a keyword-only argument is one that it cannot take."""

    class KeywordOnly(Callback):
        def setup(self, trainer, module, *, stage):
            pass

    [fault] = hook_errors(KeywordOnly())
    assert "'setup' cannot take" in fault


def test_an_alias_is_held_to_its_hooks_arguments() -> None:
    """A hook under its older name is checked like the hook it stands for."""

    class Old(Callback):
        def on_configure_sharded_model(self):
            pass

    [fault] = hook_errors(Old())
    assert "'on_configure_sharded_model' cannot take" in fault


@for_each(list(HOOKS))
def test_any_hook_may_take_star_args(name: str) -> None:
    """A hook that takes `*args` takes the arguments of every hook."""
    callback = Callback()
    setattr(callback, name, lambda *args: None)
    assert hook_errors(callback) == ()


def test_dataloader_idx_may_be_left_out() -> None:
    """An evaluation hook written for one loader needs no `dataloader_idx`."""

    class OneLoader(Callback):
        def on_validation_batch_end(self, trainer, module, outputs, batch, batch_idx):
            pass

    assert hook_errors(OneLoader()) == ()


def test_every_signature_is_judged_by_a_call() -> None:
    """A hook is reported if Python refuses to call it with the hook's arguments, and only then."""
    parts = itertools.product(
        ("", "self, ", "self, trainer, /, "),
        ("", "module, ", "module, outputs, ", "module=0, "),
        ("", "batch, batch_idx, ", "batch=0, batch_idx=0, more=0, "),
        ("", "*, key, ", "*, key=0, ", "*args, ", "*args, key, ", "**kwargs"),
    )
    for words in map("".join, parts):
        made: dict[str, Any] = {}
        try:
            exec(f"def on_train_batch_start({words}): pass", made)
        except SyntaxError:  # a parameter with a default before one without
            continue
        hook = made["on_train_batch_start"]
        callback = type("Drawn", (Callback,), {"on_train_batch_start": hook})()
        try:
            callback.on_train_batch_start(*range(4))
        except TypeError:
            is_callable = False
        else:
            is_callable = True
        assert (not hook_errors(callback)) is is_callable, words


def test_a_decorated_hook_is_judged_by_its_own_signature() -> None:
    """A decorator that passes all arguments on hides nothing."""

    def logged(method):
        @functools.wraps(method)
        def call(*args):
            return method(*args)

        return call

    class Short(Callback):
        @logged
        def on_train_epoch_end(self, trainer):
            pass

    [fault] = hook_errors(Short())
    assert "Define on_train_epoch_end(self, trainer, module)" in fault


def test_an_async_hook_is_reported() -> None:
    """A coroutine function is never awaited, so it is reported instead of silently skipped."""

    class Async(Callback):
        async def on_fit_start(self, trainer, module):
            pass

    [fault] = hook_errors(Async())
    assert "'on_fit_start' is `async`" in fault


def test_an_async_generator_is_reported_as_async() -> None:
    """A hook with both `async` and `yield` is refused as well."""

    class Both(Callback):
        async def on_fit_start(self, trainer, module):
            yield

    [fault] = hook_errors(Both())
    assert "'on_fit_start' is `async`" in fault


def test_a_hook_with_a_yield_is_reported() -> None:
    """A generator would never run, so it is refused; so is a state that would be one."""

    class Lazy(Callback):
        def on_train_start(self, trainer, module):
            yield

        def state_dict(self):
            yield "count", 1

    rule = (
        "has a `yield`, so it would never run: hooks are called, not iterated. Define it without."
    )
    assert hook_errors(Lazy()) == (
        f"the hook 'on_train_start' {rule}",
        f"the method 'state_dict' {rule}",
    )


def test_a_callable_without_a_signature_is_let_through() -> None:
    """What cannot be inspected is not doubted."""
    callback = Callback()
    callback.on_fit_end = max  # type: ignore[assignment, method-assign]
    assert hook_errors(callback) == ()


def test_composers_methods_are_named_with_what_to_do() -> None:
    """A method that Composer calls with a state and a logger is called by nobody, and told so."""

    class Monitor(Callback):
        def epoch_start(self, state, logger):
            pass

        def close(self, state, logger):
            pass

        def batch_end(self):  # takes neither, so it is meant for somebody else
            pass

        def init(self, stream, width):  # two arguments, but not those
            pass

    closing, starting = hook_warnings(Monitor())
    assert "'epoch_start' is Composer's, so nothing calls it" in starting
    assert "trainer_hooks.compat.composer.Callback" in starting
    assert "define the hook 'on_train_epoch_start' instead" in starting
    assert "'on_close'" in closing


def test_other_things_under_composers_names_are_the_users() -> None:
    """A common name is Composer's with its two arguments alone, and a value is no method."""

    class Plain(Callback):
        epoch_start = "08:00"

        def init(self, width, height):
            pass

        def close(self, state, logger, reason):
            pass

    assert hook_warnings(Plain()) == ()


@pytest.mark.parametrize(
    "method",
    [
        lambda self, event, state, logger: None,
        lambda self, event: None,
        lambda self, event, trainer, module, batch: None,
    ],
)
def test_a_run_event_that_cannot_take_every_event_is_a_fault(method) -> None:
    """It is told before the run, in which only the events with more arguments would fail."""
    kind = type("Events", (Callback,), {"run_event": method})
    [fault] = hook_errors(kind())
    assert "run_event" in fault
    assert "self, event" in fault


@pytest.mark.parametrize(
    "method",
    [
        lambda self, event, *args: None,
        lambda self, event, trainer, module=None, *args: None,
        lambda self, event, trainer, module, a=None, b=None, c=None, d=None: None,
    ],
)
def test_a_run_event_that_can_is_none(method) -> None:
    """Any way of taking all arguments will do."""
    kind = type("Events", (Callback,), {"run_event": method})
    assert hook_errors(kind()) == ()
