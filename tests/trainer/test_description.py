"""`trainer.describe_hooks()`: the loop, and at each hook who listens, in order."""

from __future__ import annotations

import io
import sys
import types

import pyte
import pytest

from trainer_hooks import Band, Callback, Hooks, TrainerHooksError
from trainer_hooks.callbacks import EarlyStopping, ModelCheckpoint, ModelSummary
from trainer_hooks.errors import ModuleError, UsageError
from trainer_hooks.hooks.spec import HOOKS
from trainer_hooks.trainer.trainer import Trainer


class Early(Callback):
    band = Band.TRANSFORM

    def on_fit_start(self, trainer, module):
        pass


class Late(Callback):
    band = Band.SAVE

    def on_fit_start(self, trainer, module):
        pass

    def on_save_checkpoint(self, trainer, module, checkpoint):
        pass


class Named(Callback):
    """Has a key of its own."""

    def __init__(self, what: str) -> None:
        self.what = what

    @property
    def state_key(self) -> str:
        return self._generate_state_key(what=self.what)

    def on_fit_start(self, trainer, module):
        pass


class Keyed(Named):
    """Has a key that does not tell its class."""

    @property
    def state_key(self) -> str:
        return f"my {self.what}"


class Router(Callback):
    """Takes every event."""

    def run_event(self, event, *args):
        pass


class Older(Callback):
    def on_configure_sharded_model(self, trainer, module):
        pass


@pytest.fixture
def listening(Tiny):
    """The class of a module with a hook of its own, which brings a callback."""

    class Listening(Tiny):
        def on_fit_start(self):
            pass

        def configure_callbacks(self):
            assert self.trainer is not None
            return [EarlyStopping("loss")]

    Listening.__qualname__ = "Listening"
    return Listening


def lines_of(trainer, *args, **kwargs) -> list[str]:
    file = io.StringIO()
    trainer.describe_hooks(*args, **kwargs, file=file)
    return file.getvalue().splitlines()


def listeners(lines: list[str], hook: str) -> list[str]:
    """Return what stands below a hook where it first stands."""
    at = [line.strip() for line in lines].index(hook)
    found = []
    for line in lines[at + 1 :]:
        if not line.strip().startswith("-> "):
            break
        found.append(line.strip().removeprefix("-> "))
    return found


def test_listeners_stand_at_their_hook_in_order(bare, listening) -> None:
    """Band by band, the module in between, each with who supplied it."""
    lines = lines_of(bare(Late(), Early(), Named("x")), listening())
    assert listeners(lines, "on_fit_start") == [
        "Early, from Trainer(callbacks=...)",
        "Named, from Trainer(callbacks=...)",
        "module Listening",
        "EarlyStopping, from configure_callbacks",
        "Late, from Trainer(callbacks=...)",
    ]
    assert listeners(lines, "on_save_checkpoint") == ["Late, from Trainer(callbacks=...)"]
    assert listeners(lines, "on_before_load") == []


def test_the_order_is_that_of_a_run(bare, Tiny) -> None:
    """Who is shown at a hook is who is called there, one after the other."""
    seen = []

    def telling(base, name):
        return type(name, (base,), {"on_fit_start": lambda self, *args: seen.append(name)})

    class Beside(Callback):
        band = Band.MODULE

    trainer = bare(*(telling(kind, kind.__name__)() for kind in (Late, Beside, Early, Callback)))
    model = telling(Tiny, "Own")()
    lines = lines_of(trainer, model)
    trainer.fit(model, [model.layer.weight.detach()])
    shown = [line.partition(",")[0] for line in listeners(lines, "on_fit_start")]
    assert shown == ["module Own" if name == "Own" else name for name in seen]
    assert len(shown) == 5


def test_all_who_take_part_are_listed_first(bare, listening) -> None:
    """The list has everybody once, with state_key, supplier and band, in order."""
    trainer = bare(Late(), Named("x"), Keyed("own"), Callback())
    assert lines_of(trainer, listening(), "predict")[:9] == [
        "hooks of this trainer",
        "  who takes part, in order",
        "    Named{'what': 'x'}, from Trainer(callbacks=...), in band OBSERVE",
        "    Keyed (state_key 'my own'), from Trainer(callbacks=...), in band OBSERVE",
        "    Callback, from Trainer(callbacks=...), in band OBSERVE",
        "    module Listening, in band MODULE",
        f"    {EarlyStopping('loss').state_key}, from configure_callbacks, in band CONTROL",
        "    Late, from Trainer(callbacks=...), in band SAVE",
        "  predict",
    ]


def test_two_of_a_kind_are_told_apart(bare) -> None:
    """At a hook a callback is called by its class, or by its state_key where that is not enough."""
    lines = lines_of(bare(Named("x"), Named("y"), Keyed("z")))
    assert listeners(lines, "on_fit_start") == [
        "Named{'what': 'x'}, from Trainer(callbacks=...)",
        "Named{'what': 'y'}, from Trainer(callbacks=...)",
        "Keyed, from Trainer(callbacks=...)",
    ]


def test_a_trainer_without_callbacks_can_be_described(bare) -> None:
    """Every hook is shown, nobody listens, and the reader is told of model=."""
    lines = lines_of(bare())
    assert lines[:3] == [
        "hooks of this trainer (with model=..., its own hooks are shown too)",
        "  who takes part, in order",
        "    nobody",
    ]
    assert {line.strip() for line in lines} >= set(HOOKS)
    assert not any("->" in line for line in lines)


def test_defaults_and_plugins_are_told_as_such(tmp_path, monkeypatch) -> None:
    """A callback that nobody asked for says where it comes from."""
    trainer = Trainer(accelerator="cpu", default_root_dir=tmp_path, logger=False)
    assert "ModelSummary, from default" in listeners(lines_of(trainer), "on_fit_start")


def test_a_callback_that_routes_events_listens_everywhere(bare) -> None:
    """It stands at every hook, and how it listens is said; so does an older name of a hook."""
    lines = lines_of(bare(Router(), Older()))
    by_event = "Router, from Trainer(callbacks=...), by run_event"
    older = "Older, from Trainer(callbacks=...), as on_configure_sharded_model"
    for hook in HOOKS:
        expected = [by_event, older] if hook == "on_configure_model" else [by_event]
        if any(line.strip() == hook for line in lines):
            assert listeners(lines, hook) == expected
    assert sum(line.strip() in HOOKS for line in lines) >= len(HOOKS)


def test_an_instance_that_routes_events_does_too(bare) -> None:
    """An attribute of the instance counts as a method of the class does."""
    callback = Callback()
    callback.run_event = lambda event, *args: None
    assert listeners(lines_of(bare(callback)), "setup") == [
        "Callback, from Trainer(callbacks=...), by run_event"
    ]


@pytest.mark.parametrize("fn", ["fit", "validate", "test", "predict"])
def test_one_function_can_be_asked_for(fn, bare) -> None:
    """Its part is shown, with what fires at any moment, and no other."""
    lines = lines_of(bare(), fn=fn)
    parts = [line.strip() for line in lines if line.startswith("  ") and line[2] != " "]
    assert parts == ["who takes part, in order", fn, "at any moment"]


@pytest.mark.parametrize("fn", ["validation", "", 3, ["fit"], {}])
def test_an_unknown_function_is_refused(fn, bare) -> None:
    """What was given and what there is are told."""
    with pytest.raises(UsageError, match="one of 'fit', 'validate', 'test', 'predict'") as error:
        lines_of(bare(), fn=fn)
    assert f"describe_hooks(fn={fn!r})" in str(error.value)


def test_a_near_miss_is_named(bare) -> None:
    """A misspelt function gets the nearest one."""
    with pytest.raises(UsageError, match="Did you mean 'validate'"):
        lines_of(bare(), fn="validation")


@pytest.mark.parametrize("model", ["fit", 3, Early()])
def test_a_model_that_is_none_is_refused(model, bare) -> None:
    """A string, which is meant for fn, or another object is named with its type."""
    with pytest.raises(ModuleError, match=f"of type {type(model).__qualname__}: it must be"):
        lines_of(bare(), model)


def test_a_class_in_place_of_a_model_is_refused(bare, Tiny) -> None:
    """A class has no hooks to call."""
    with pytest.raises(ModuleError, match="an instance of"):
        lines_of(bare(), Tiny)


def test_describing_changes_nothing(bare, listening) -> None:
    """The callbacks, the module of the trainer and the model itself are as they were."""
    trainer, model = bare(Early()), listening()
    before = trainer.callback_origins
    lines_of(trainer, model)
    assert trainer.callback_origins == before
    assert trainer.module is None
    with pytest.raises(UsageError, match="attached to no trainer"):
        model.trainer  # noqa: B018
    assert not any("Listening" in line for line in lines_of(trainer))


def test_a_model_whose_callbacks_fail_is_let_go(bare, listening) -> None:
    """An error of configure_callbacks comes through, and the model is attached to nothing."""

    class Failing(listening):
        def configure_callbacks(self):
            raise ValueError("no")

    model = Failing()
    with pytest.raises(ValueError, match="no"):
        lines_of(bare(), model)
    with pytest.raises(UsageError):
        model.trainer  # noqa: B018


def test_after_a_run_its_module_is_shown(bare, listening, batches) -> None:
    """Without a model it is the last run's; with another one, that one and what it brings."""

    class Other(listening):
        def configure_callbacks(self):
            return []

    class Logging(listening):
        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            self.log("loss", loss)
            return loss

    trainer = bare(EarlyStopping("loss", patience=9))
    trainer.fit(Logging(), batches())
    assert listeners(lines_of(trainer), "on_fit_start") == [
        "module Logging",
        "EarlyStopping, from configure_callbacks",
    ]
    # what the last module replaced is back with another one
    assert listeners(lines_of(trainer, Other()), "on_fit_start") == [
        "module Other",
        "EarlyStopping, from Trainer(callbacks=...)",
    ]
    assert listeners(lines_of(trainer), "on_fit_start")[1].endswith("configure_callbacks")


def test_a_default_gives_way_to_what_the_model_brings(Tiny, tmp_path) -> None:
    """As in a run: a kind of callback that the model brings is not taken by default too."""

    class Bringing(Tiny):
        def configure_callbacks(self):
            return [ModelCheckpoint(every_n_epochs=2)]

    trainer = Trainer(accelerator="cpu", default_root_dir=tmp_path, logger=False)
    shown = listeners(lines_of(trainer, Bringing()), "on_epoch_checkpoint")
    assert shown == ["ModelCheckpoint, from configure_callbacks"]
    assert trainer.checkpoint_callback is not None
    assert any(isinstance(callback, ModelSummary) for callback in trainer.callbacks)


def test_the_module_of_the_run_is_not_asked_again(bare, Tiny, batches) -> None:
    """What it brought is shown, whether the module is given or not; other modules are asked."""
    asked = []

    class Bringing(Tiny):
        def configure_callbacks(self):
            asked.append(self)
            return [Late()]

    trainer, model = bare(), Bringing()
    trainer.fit(model, batches())
    assert listeners(lines_of(trainer, model), "on_fit_start") == ["Late, from configure_callbacks"]
    assert asked == [model]
    other = Bringing()
    lines_of(trainer, other)
    assert asked == [model, other]


def test_a_module_does_not_listen_before_it_is_there(bare, Tiny) -> None:
    """The init hooks fire when the trainer is made, so a module's are never called."""

    class Eager(Tiny):
        def on_init_end(self):
            pass

        def on_close(self):
            pass

    lines = lines_of(bare(), Eager())
    assert listeners(lines, "on_init_end") == []
    assert listeners(lines, "on_close") == ["module Eager"]


def test_it_can_be_called_from_a_hook(bare, Tiny, batches) -> None:
    """Inside a run the module of the run is shown."""
    seen = []

    class Asking(Callback):
        def on_train_start(self, trainer, module):
            seen.append(lines_of(trainer, fn="fit"))

    class Own(Tiny):
        def on_train_start(self):
            pass

    bare(Asking()).fit(Own(), batches())
    assert listeners(seen[0], "on_train_start") == [
        "Asking, from Trainer(callbacks=...)",
        "module Own",
    ]


class Meals(Hooks):
    def on_lunch(self, trainer, module):
        """Called at noon."""

    def on_dinner(self, trainer, module):
        """Called at eight."""


class Eating(Meals, Callback):
    def on_lunch(self, trainer, module):
        pass


def test_hooks_that_packages_add_are_listed(
    bare, Tiny, installed_distributions, monkeypatch
) -> None:
    """They stand by themselves, with who brought them, and who listens to each."""

    class Hungry(Tiny):
        def on_dinner(self):
            pass

    package = types.ModuleType("kitchen")
    package.Meals, package.make = Meals, Eating
    monkeypatch.setitem(sys.modules, "kitchen", package)
    monkeypatch.delenv("TRAINER_HOOKS_DISABLE_PLUGINS")
    entries = [
        ("meals", "kitchen:Meals", "trainer_hooks.hooks"),
        ("eating", "kitchen:make", "trainer_hooks.callbacks_factory"),
    ]
    installed_distributions.append(installed_distributions.make("kitchen", "1.2", entries))
    lines = lines_of(bare(), Hungry())
    assert lines[-5:] == [
        "  events of installed packages",
        "    on_lunch, of kitchen 1.2",
        "      -> Eating, from plugin kitchen 1.2",
        "    on_dinner, of kitchen 1.2",
        "      -> module Hungry",
    ]
    assert "events of installed packages" not in lines_of(bare(plugins=False))


def test_other_ranks_print_nothing(bare, monkeypatch, capsys) -> None:
    """Only the process that writes and prints shows it; bad input is an error on each."""
    trainer = bare()
    monkeypatch.setattr(type(trainer), "is_global_zero", property(lambda self: False))
    trainer.describe_hooks()
    assert capsys.readouterr().out == ""
    with pytest.raises(TrainerHooksError):
        trainer.describe_hooks(fn="x")


def test_standard_output_is_where_it_goes(bare, capsys) -> None:
    """Unless a file is given."""
    bare().describe_hooks(fn="test")
    assert capsys.readouterr().out.startswith("hooks of this trainer")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_what_nobody_listens_to_is_faint(bare, monkeypatch) -> None:
    """The tree is drawn; hooks without listeners are dimmed, those with them are not."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    bare(Late()).describe_hooks(fn="fit", file=terminal)
    screen = pyte.Screen(120, 150)
    pyte.Stream(screen).feed(terminal.getvalue().replace("\n", "\r\n"))
    drawn = [line.rstrip() for line in screen.display]
    at = next(number for number, line in enumerate(drawn) if line.endswith(" on_fit_start"))
    assert drawn[at].startswith("\u2502   \u251c\u2500\u2500 ")
    assert drawn[at + 1].endswith("\u2514\u2500\u2500 -> Late, from Trainer(callbacks=...)")
    raw = terminal.getvalue().splitlines()
    assert "\x1b[2mon_before_load" in "".join(raw)
    assert "\x1b[2m" not in raw[at].partition("on_fit_start")[0]
