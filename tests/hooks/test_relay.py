"""The relay: one call in, a call on every member that overrides the hook."""

from __future__ import annotations

import functools
import sys
import traceback
from unittest.mock import Mock, patch

import pytest
from for_each import for_each

from trainer_hooks.callback import Callback
from trainer_hooks.connector.connector import CallbackConnector
from trainer_hooks.errors import StopTraining, TrainerHooksWarning
from trainer_hooks.hooks.band import Band
from trainer_hooks.hooks.catalogue import Hooks
from trainer_hooks.hooks.check import hook_errors
from trainer_hooks.hooks.relay import HookRelay, RelayMember, error_summary_with_notes
from trainer_hooks.hooks.spec import HOOKS

ISOLATED = ["on_exception", "on_keyboard_interrupt", "teardown", "on_close", "on_post_close"]


class Recorder(Callback):
    """Writes down which hooks reached it, with what."""

    def __init__(self, name: str, seen: list) -> None:
        self.name = name
        self.seen = seen

    def on_fit_start(self, trainer, module):
        self.seen.append((self.name, "on_fit_start", trainer, module))

    def teardown(self, trainer, module, stage):
        self.seen.append((self.name, "teardown", stage))


class Failing(Callback):
    """Fails in every hook that the tests fire."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def on_fit_start(self, trainer, module):
        raise self.error

    def on_exception(self, trainer, module, exception):
        raise self.error

    def teardown(self, trainer, module, stage):
        raise self.error


def member(implementer: object, label: str = "someone", **options: object) -> RelayMember:
    return RelayMember(implementer, label, **options)  # type: ignore[arg-type]


@for_each(list(HOOKS))
def test_a_hook_nobody_overrides_stays_the_catalogues(hook: str) -> None:
    """However many callbacks there are, a hook that none overrides is the empty method."""
    relay = HookRelay([member(Callback()) for _ in range(50)])
    assert getattr(relay, hook).__func__ is getattr(Hooks, hook)
    assert relay.listened == frozenset()


def test_listened_names_the_overridden_hooks() -> None:
    """`listened` holds the hooks that anybody overrides, and no others."""
    relay = HookRelay([member(Recorder("a", [])), member(Callback())])
    assert relay.listened == {"on_fit_start", "teardown"}


def test_fan_out_keeps_the_members_order() -> None:
    """Members are called in the order in which they were connected, with the same arguments."""
    seen: list = []
    relay = HookRelay([member(Recorder(name, seen)) for name in "cab"])
    relay.on_fit_start("trainer", "module")
    assert seen == [(name, "on_fit_start", "trainer", "module") for name in "cab"]


def test_a_hook_goes_on_after_a_member() -> None:
    """A resume calls the members after the one in which the run was cut off, and no other."""
    seen: list = []
    callbacks = [Recorder(name, seen) for name in "abcd"]
    relay = HookRelay([member(callback) for callback in callbacks])
    relay.fire_after("on_fit_start", callbacks[1], "trainer", "module")
    assert [name for name, *_ in seen] == ["c", "d"]
    assert relay.has_listeners_after("on_fit_start", callbacks[2])
    assert not relay.has_listeners_after("on_fit_start", callbacks[3])
    assert not relay.has_listeners_after("on_fit_start", Recorder("elsewhere", seen))


def test_return_values_are_ignored() -> None:
    """What a hook returns reaches nobody: the relay returns None."""
    callback = Callback()
    callback.on_fit_start = lambda trainer, module: -1
    relay = HookRelay([member(callback)])
    assert relay.on_fit_start(None, None) is None


def test_one_library_frame_between_caller_and_callback() -> None:
    """Between the loop's frame and the callback's stands the fan-out and nothing else."""
    between: list[str] = []

    class Counting(Callback):
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            frame = sys._getframe(1)
            while frame.f_code.co_name != "a_loop":
                between.append(frame.f_code.co_filename)
                assert frame.f_back is not None
                frame = frame.f_back

    def a_loop(hooks: Hooks) -> None:
        hooks.on_train_batch_start(None, None, None, 0)

    connector = CallbackConnector(Counting(), discover=False)
    connector.set_module(object())
    a_loop(connector.relay)
    assert len(between) == 1
    assert between[0].endswith("relay.py")


def test_an_instance_attribute_counts_as_an_override() -> None:
    """A function set on one instance is called for it, and not for another of its class."""
    seen: list[str] = []
    patched, plain = Callback(), Callback()
    patched.on_fit_end = lambda trainer, module: seen.append("patched")
    HookRelay([member(plain), member(patched)]).on_fit_end(None, None)
    assert seen == ["patched"]


@pytest.mark.parametrize("hook", ["on_fit_start", "on_train_batch_end"])
def test_a_mock_in_the_place_of_a_hook_is_called(hook) -> None:
    """A hook of a class that a test has patched is an override, whatever a mock says of itself."""

    class Watched(Callback):
        def on_fit_start(self, trainer, module):
            raise AssertionError

    with patch.object(Watched, hook) as mock:
        CallbackConnector(Watched(), discover=False).relay.fire(hook, *range(5))
    assert mock.call_args.args == tuple(range(5))


def counted(hook, calls):
    """Wrap a hook as timers and tracers do."""

    @functools.wraps(hook)
    def wrapper(*args, **kwargs):
        calls.append(hook.__name__)
        return hook(*args, **kwargs)

    return wrapper


def wrapped_callbacks():
    """Yield each way of wrapping a hook, as a callback made with the list of its calls."""

    class Inherits(Callback):
        pass

    class Overrides(Callback):
        def on_fit_start(self, trainer, module):
            pass

    def in_the_class(base):
        return lambda calls: type(
            "Wrapped", (base,), {"on_fit_start": counted(base.on_fit_start, calls)}
        )()

    def after_the_class(base):
        def make(calls):
            kind = type("Wrapped", (base,), {})
            kind.on_fit_start = counted(kind.on_fit_start, calls)
            return kind()

        return make

    def on_the_instance(base):
        def make(calls):
            callback = base()
            callback.on_fit_start = counted(callback.on_fit_start, calls)
            return callback

        return make

    def by_partial(calls):
        callback = Inherits()
        callback.on_fit_start = functools.partial(lambda seen, *args: seen.append("partial"), calls)
        return callback

    def by_mock(calls):
        callback = Inherits()
        callback.on_fit_start = Mock(side_effect=lambda *args: calls.append("mock"))
        return callback

    for way in (in_the_class, after_the_class, on_the_instance):
        for base in (Inherits, Overrides):
            yield pytest.param(way(base), id=f"{way.__name__} {base.__name__}")
    yield pytest.param(by_partial, id="partial")
    yield pytest.param(by_mock, id="mock")


@pytest.mark.parametrize("make", list(wrapped_callbacks()))
def test_a_wrapped_hook_is_called_once(make) -> None:
    """functools.wraps copies the marks of a hook to its wrapper, which does something all the same.

    It passes the check of its signature, too.
    """
    calls: list[str] = []
    callback = make(calls)
    assert hook_errors(callback) == ()
    HookRelay([member(callback)]).on_fit_start("trainer", "module")
    assert len(calls) == 1


def test_a_wrapper_of_another_signature_is_refused_by_name() -> None:
    """The wrapper is looked at, and not the hook whose marks it has."""
    callback = Callback()

    def wrapper(trainer):
        pass

    callback.on_fit_start = functools.wraps(callback.on_fit_start, assigned=())(wrapper)
    del callback.on_fit_start.__wrapped__
    (message,) = hook_errors(callback)
    assert "on_fit_start" in message


def test_a_callback_may_answer_to_any_name() -> None:
    """One with a `__getattr__` for all names takes part by the hooks that its class has."""

    class Anything(Callback):
        seen = False

        def __getattr__(self, name):
            return lambda *args: name

        def on_fit_start(self, trainer, module):
            self.seen = True

    anything = Anything()
    relay = CallbackConnector(anything, discover=False).relay
    assert relay.listened == {"on_fit_start"}
    relay.on_fit_start(None, None)
    assert anything.seen


def test_on_configure_sharded_model_is_an_alias() -> None:
    """A callback with the older name is called at `on_configure_model`."""
    seen: list[str] = []

    class Old(Callback):
        def on_configure_sharded_model(self, trainer, module):
            seen.append("old")

    relay = HookRelay([member(Old())])
    assert relay.listened == {"on_configure_model"}
    relay.on_configure_model(None, None)
    assert seen == ["old"]


def test_the_hooks_own_name_wins_over_its_alias() -> None:
    """A callback that has both names is called once, under the hook's own."""
    seen: list[str] = []

    class Both(Callback):
        def on_configure_model(self, trainer, module):
            seen.append("new")

        def on_configure_sharded_model(self, trainer, module):
            seen.append("old")

    HookRelay([member(Both())]).on_configure_model(None, None)
    assert seen == ["new"]


@for_each(list(HOOKS))
def test_run_event_receives_every_event(hook: str) -> None:
    """It is given each event's name and arguments, the module None where there is none yet."""
    seen: list[tuple] = []

    class All(Callback):
        def run_event(self, event, *args):
            seen.append((event, *args))

    connector = CallbackConnector(All(), discover=False)
    arguments = HOOKS[hook].arguments
    getattr(connector.relay, hook)(*arguments)
    given = arguments if HOOKS[hook].takes_module else (*arguments, None)
    assert seen == [(hook, *given)]


def test_run_event_replaces_the_named_hooks_unless_it_calls_them() -> None:
    """Named hooks of such a callback are its own to call; `super().run_event` calls the named."""
    seen: list[str] = []

    class Selective(Callback):
        def run_event(self, event, *args):
            if event == "on_fit_end":
                super().run_event(event, *args)

        def on_fit_start(self, trainer, module):
            seen.append("on_fit_start")

        def on_fit_end(self, trainer, module):
            seen.append("on_fit_end")

    relay = CallbackConnector(Selective(), discover=False).relay
    relay.on_fit_start(None, None)
    relay.on_fit_end(None, None)
    assert seen == ["on_fit_end"]


def test_run_event_set_on_the_instance_counts() -> None:
    """`run_event` as an instance attribute receives events like one of the class."""
    seen: list[str] = []
    callback = Callback()
    callback.run_event = lambda event, *args: seen.append(event)
    CallbackConnector(callback, discover=False).relay.on_train_start(None, None)
    assert seen == ["on_train_start"]


def test_run_event_ignores_an_unknown_event() -> None:
    """The base `run_event` calls hooks only: any other name is left alone, not looked up."""

    class Tempting(Callback):
        def state_dict(self):
            raise AssertionError

    Tempting().run_event("state_dict", None, None)


class _OwnError(Exception):
    """An error whose constructor takes what no wrapper could know."""

    def __init__(self, code: int, *, where: str) -> None:
        super().__init__(code, where)
        self.code = code


@pytest.mark.parametrize(
    "error", [ValueError("v"), KeyboardInterrupt(), SystemExit(3), _OwnError(7, where="x")]
)
def test_an_error_keeps_its_type_and_gains_a_note(error: BaseException) -> None:
    """The very error leaves the relay, with a note that names the hook and the callback."""
    connector = CallbackConnector(Failing(error), discover=False)
    with pytest.raises(type(error)) as caught:
        connector.relay.on_fit_start(None, None)
    assert caught.value is error
    [note] = caught.value.__notes__
    assert note == (
        "raised in hook 'on_fit_start' of callback Failing (state_key 'Failing', "
        "from Trainer(callbacks=...))"
    )


def test_the_note_is_part_of_the_traceback_text() -> None:
    """Whoever prints the traceback sees which callback it was."""
    with pytest.raises(ZeroDivisionError) as caught:
        HookRelay([member(Failing(ZeroDivisionError("d")), "the culprit")]).on_fit_start(None, None)
    text = "".join(traceback.format_exception(caught.value))
    assert "raised in hook 'on_fit_start' of the culprit" in text


def test_an_error_stops_an_ordinary_hook() -> None:
    """After an error in an ordinary hook the members behind it are not called."""
    seen: list = []
    relay = HookRelay(
        [
            member(Recorder("before", seen)),
            member(Failing(ValueError("v"))),
            member(Recorder("behind", seen)),
        ]
    )
    with pytest.raises(ValueError, match="v"):
        relay.on_fit_start(None, None)
    assert [name for name, *_ in seen] == ["before"]


@pytest.mark.parametrize("hook", ISOLATED)
def test_isolated_hooks_run_for_everyone(hook: str) -> None:
    """At the hooks that clean up everybody is called; the first error is raised in the end."""
    seen: list[str] = []
    first, second = ValueError("first"), KeyError("second")

    def failing(error: BaseException) -> Callback:
        def fail(*args):
            seen.append(str(error.args[0]))
            raise error

        callback = Callback()
        setattr(callback, hook, fail)
        return callback

    last = Callback()
    setattr(last, hook, lambda *args: seen.append("last"))
    relay = HookRelay(
        [member(failing(first), "one"), member(failing(second), "two"), member(last, "three")]
    )
    with pytest.raises(ValueError, match="first") as caught:
        getattr(relay, hook)(*HOOKS[hook].arguments)
    assert seen == ["first", "second", "last"]
    assert caught.value is first
    own, other = caught.value.__notes__
    assert own == f"raised in hook {hook!r} of one"
    assert "KeyError: 'second'" in other
    assert f"raised in hook {hook!r} of two" in other


def test_which_hooks_are_isolated_is_frozen() -> None:
    """Only the hooks that clean up go on after an error."""
    isolated = []
    for hook in HOOKS:
        seen: list[str] = []
        fails, follows = Callback(), Callback()
        setattr(fails, hook, lambda *args: 1 / 0)
        setattr(follows, hook, lambda *args, seen=seen: seen.append("x"))
        with pytest.raises(ZeroDivisionError):
            getattr(HookRelay([member(fails), member(follows)]), hook)(*HOOKS[hook].arguments)
        if seen:
            isolated.append(hook)
    assert sorted(isolated) == sorted(ISOLATED)


def test_reraising_the_original_exception_is_told_once() -> None:
    """Two members that raise one and the same error leave it without a note about itself."""
    original = RuntimeError("the run's own")
    relay = HookRelay([member(Failing(original), "one"), member(Failing(original), "two")])
    with pytest.raises(RuntimeError) as caught:
        relay.on_exception(None, None, original)
    assert caught.value is original
    assert caught.value.__notes__ == [
        "raised in hook 'on_exception' of one",
        "raised in hook 'on_exception' of two",
    ]


def test_isolated_hooks_without_errors_raise_nothing() -> None:
    """An isolated hook that fails nowhere ends quietly, everybody called."""
    seen: list = []
    HookRelay([member(Recorder(name, seen)) for name in "ab"]).teardown(None, None, "fit")
    assert seen == [("a", "teardown", "fit"), ("b", "teardown", "fit")]


def test_connecting_inside_a_hook_does_not_disturb_the_firing() -> None:
    """Members added or taken out by a hook count from the next firing on."""
    seen: list = []
    connector = CallbackConnector(discover=False)

    class Swapping(Callback):
        def on_fit_start(self, trainer, module):
            seen.append(("swapping",))
            connector.remove(old)
            connector.add(new)

    old, new = Recorder("old", seen), Recorder("new", seen)
    connector.add(Swapping())
    connector.add(old)
    connector.relay.on_fit_start(None, None)
    assert [name for name, *_ in seen] == ["swapping", "old"]

    seen.clear()
    connector.remove(connector.callbacks[0])
    connector.relay.on_fit_start(None, None)
    assert [name for name, *_ in seen] == ["new"]


def test_connecting_later_asks_once_at_the_next_firing() -> None:
    """However often members change, they are asked for when a hook fires, and then no more."""
    seen: list = []
    asked: list = []

    def members():
        asked.append(True)
        return (member(Recorder("one", seen)),)

    relay = HookRelay([member(Recorder("former", seen))])
    relay.connect_later(lambda: 1 / 0)
    relay.connect_later(members)
    assert asked == []
    relay.on_train_end("trainer", "module")  # which nobody overrides
    relay.on_fit_start("trainer", "module")
    assert asked == [True]
    assert seen == [("one", "on_fit_start", "trainer", "module")]
    assert relay.listened == {"on_fit_start", "teardown"}
    assert relay.on_train_end.__func__ is Hooks.on_train_end


class Watch:
    """A monitor that notes what it sees."""

    def __init__(self) -> None:
        self.seen: list = []
        self.opening = member(Recorder("opening", self.seen), "opening")
        self.closing = member(Recorder("closing", self.seen), "closing")

    def watched(self, hook, member, call):
        def watch(*args):
            self.seen.append((hook, member.label))
            call(*args)

        return watch


def test_a_monitor_sees_every_call_until_it_is_taken_out() -> None:
    """It stands around each listener, with a turn of its own first and last."""
    recorder = Recorder("one", [])
    relay = HookRelay([member(recorder, "one")])
    relay.on_fit_start("trainer", "module")
    watch = Watch()
    relay.observe(watch)
    relay.on_fit_start("trainer", "module")
    assert [entry[:2] for entry in watch.seen] == [
        ("opening", "on_fit_start"),
        ("on_fit_start", "one"),
        ("closing", "on_fit_start"),
    ]
    relay.leave(watch)
    watch.seen.clear()
    relay.on_fit_start("trainer", "module")
    assert watch.seen == []
    assert len(recorder.seen) == 3


def test_reconnecting_forgets_the_former_members() -> None:
    """After `connect` a hook that nobody overrides any more is the empty method again."""
    seen: list = []
    relay = HookRelay([member(Recorder("a", seen))])
    relay.connect([])
    relay.on_fit_start(None, None)
    assert seen == []
    assert relay.on_fit_start.__func__ is Hooks.on_fit_start  # type: ignore[attr-defined]


class _Module:
    """A module with hooks of its own, which are not given trainer and module."""

    def __init__(self, seen: list) -> None:
        self.seen = seen

    def on_fit_start(self):
        self.seen.append(("module", "on_fit_start"))

    def on_train_batch_start(self, batch, batch_idx):
        self.seen.append(("module", batch, batch_idx))

    def on_train_batch_end(self, outputs, batch, batch_idx):
        raise ValueError(outputs)


def test_a_modules_hooks_are_not_given_trainer_and_module() -> None:
    """The module takes part with the two leading arguments dropped."""
    seen: list = []
    connector = CallbackConnector(discover=False)
    connector.set_module(_Module(seen))
    connector.relay.on_train_batch_start("trainer", "module", "batch", 3)
    assert seen == [("module", "batch", 3)]


def test_a_modules_error_is_noted_with_its_class() -> None:
    """An error in the module's own hook names the hook and the module's class."""
    connector = CallbackConnector(discover=False)
    connector.set_module(_Module([]))
    with pytest.raises(ValueError, match="o") as caught:
        connector.relay.on_train_batch_end("t", "m", "o", "b", 0)
    assert caught.value.__notes__ == ["raised in hook 'on_train_batch_end' of module _Module"]


@pytest.mark.parametrize("bands", [list(Band), list(reversed(Band)), [Band.OBSERVE], [Band.SAVE]])
def test_the_module_stands_at_its_band(bands: list[Band]) -> None:
    """The module's hook comes after transformers and observers, before control, sinks, savers."""
    seen: list = []

    class Banded(Recorder):
        def __init__(self, band: Band) -> None:
            super().__init__(band.name, seen)
            self.band = band  # type: ignore[misc]

    connector = CallbackConnector([Banded(band) for band in bands], discover=False)
    connector.set_module(_Module(seen))
    connector.relay.on_fit_start("t", "m")
    names = [name for name, *_ in seen]
    at = names.index("module")
    assert len(names) == len(bands) + 1
    assert all(Band[name] <= Band.MODULE for name in names[:at])
    assert all(Band[name] > Band.MODULE for name in names[at + 1 :])


class Tolerated(Failing):
    """Asks to be taken out of the run if it fails."""

    on_error = "disable"

    def state_dict(self):
        return {"a": 1}


def test_a_callback_may_ask_to_be_taken_out_when_it_fails() -> None:
    """Its error is reported once, with the traceback, and the run goes on without it."""
    seen: list = []
    tolerated = Tolerated(ValueError("bad day"))
    connector = CallbackConnector([tolerated, Recorder("next", seen)], discover=False)
    with pytest.warns(TrainerHooksWarning) as caught:
        connector.relay.on_fit_start(None, None)
    [warning] = caught
    message = str(warning.message)
    assert "callback Tolerated (state_key 'Tolerated', from Trainer(callbacks=...))" in message
    assert "failed in hook 'on_fit_start' and takes no further part" in message
    assert "raise self.error" in message
    assert message.rstrip().endswith("ValueError: bad day")
    assert warning.filename == __file__
    assert [name for name, *_ in seen] == ["next"]
    assert tolerated not in connector.callbacks
    assert connector.state_dict() == {"Tolerated": {"a": 1}}
    connector.relay.on_fit_start(None, None)
    assert len(seen) == 2


def test_the_user_may_say_so_for_a_callback() -> None:
    """`on_error` on the instance has the same effect as in the class, in every kind of hook."""
    callback = Failing(ValueError("bad day"))
    callback.on_error = "disable"
    connector = CallbackConnector(callback, discover=False)
    with pytest.warns(TrainerHooksWarning, match="bad day"):
        connector.relay.teardown(None, None, "fit")
    assert connector.callbacks == ()


@pytest.mark.parametrize("error", [StopTraining("enough"), KeyboardInterrupt()])
def test_a_request_to_stop_passes_a_tolerated_callback(error: BaseException) -> None:
    """Only faults are held back: stopping and Ctrl-C are what the callback or a person wants."""
    tolerated = Tolerated(error)
    connector = CallbackConnector(tolerated, discover=False)
    with pytest.raises(type(error)):
        connector.relay.on_fit_start(None, None)
    assert connector.callbacks == (tolerated,)


def test_a_tolerated_callback_that_fails_twice_is_reported_once() -> None:
    """A hook that was firing already when the callback was taken out reports nothing more."""
    connector = CallbackConnector(Tolerated(ValueError("bad day")), discover=False)
    firing = connector.relay.on_fit_start
    with pytest.warns(TrainerHooksWarning, match="bad day"):
        firing(None, None)
    firing(None, None)  # a second warning would be an error here


def test_describe_error_holds_type_message_and_notes() -> None:
    """An error in one line: its type, its message, its notes."""
    error = ValueError("bad")
    assert error_summary_with_notes(error) == "ValueError: bad"
    error.add_note("seen here")
    error.add_note("and there")
    assert error_summary_with_notes(error) == "ValueError: bad (seen here; and there)"


def test_a_hook_that_requires_the_loaders_index_gets_0() -> None:
    """Lightning 1.x passed `dataloader_idx` always; one loader's index is passed to nobody here."""
    seen = []

    class Requires(Callback):
        def on_validation_batch_start(self, trainer, module, batch, batch_idx, dataloader_idx):
            seen.append((batch, batch_idx, dataloader_idx))

    listener = RelayMember(Requires(), "it").listener("on_validation_batch_start")
    assert listener is not None
    listener(None, None, "batch", 3)
    listener(None, None, "batch", 3, 1)
    assert seen == [("batch", 3, 0), ("batch", 3, 1)]
