"""Hooks that a package adds, that another one listens to, and that a third one fires."""

from __future__ import annotations

import json

import pytest

EXAMPLES = "trainer-hooks-monitoring,trainer-hooks-vision"  # they may be installed for good

pytestmark = pytest.mark.slow  # packages are built, and trainings run where they are installed

OURS = "trainer_hooks.callbacks_factory"
HOOKS = "trainer_hooks.hooks"
DRIFT = '''
    from __future__ import annotations

    from typing import TYPE_CHECKING

    from trainer_hooks.hooks.catalogue import Hooks

    if TYPE_CHECKING:
        from trainer_hooks import Module, Trainer

    class DriftHooks(Hooks):
        def on_drift_detected(self, trainer: Trainer, module: Module, score: float) -> None:
            """Called after a batch whose inputs have drifted."""

        def _no_hook(self):
            pass
'''
LISTENER = """
    from trainer_hooks.callback import Callback

    HEARD = []

    class Listener(Callback):
        def on_drift_detected(self, trainer, module, score):
            HEARD.append(("Listener", type(trainer).__name__, type(module).__name__, score))

    class Router(Callback):
        def run_event(self, event, *args):
            if event == "on_drift_detected":
                trainer, module, score = args
                HEARD.append(("Router", type(trainer).__name__, type(module).__name__, score))

    def make():
        return [Listener(), Router()]
"""
DETECTOR = """
    from trainer_hooks.callback import Callback

    class Detector(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            if batch_idx == 1:
                trainer.call_event("on_drift_detected", score=0.3)

    def make():
        return Detector()
"""
HEAD = "from trainer_hooks.hooks.catalogue import Hooks\n"
BROKEN = {
    "no-hooks": ("class Added:\n    pass\n", "it must be a subclass of trainer_hooks.Hooks"),
    "an-instance": (HEAD + "Added = Hooks()\n", "it must be a subclass of trainer_hooks.Hooks"),
    "the-base": (HEAD + "Added = Hooks\n", "it must be a subclass of trainer_hooks.Hooks"),
    "shadow": (
        HEAD + "class Added(Hooks):\n    def on_fit_start(self, trainer, module):\n        'At.'\n",
        "the hook 'on_fit_start' is one of trainer_hooks itself: give it another name",
    ),
    "older-name": (
        HEAD + "class Added(Hooks):\n"
        "    def on_configure_sharded_model(self, trainer, module):\n        'At.'\n",
        "the hook 'on_configure_sharded_model' is one of trainer_hooks itself",
    ),
    "no-on": (
        HEAD + "class Added(Hooks):\n    def drifted(self, trainer, module):\n        'At.'\n",
        "the hook 'drifted' has a name that does not start with 'on_': rename it",
    ),
    "no-doc": (
        HEAD + "class Added(Hooks):\n    def on_a(self, trainer, module):\n        pass\n",
        "the hook 'on_a' has no docstring: say in one sentence when it is called",
    ),
    "no-module": (
        HEAD + "class Added(Hooks):\n    def on_b(self, trainer, score):\n        'At.'\n",
        "the hook 'on_b' does not begin with the arguments (self, trainer, module, ...)",
    ),
    "keywords": (
        HEAD + "class Added(Hooks):\n    def on_c(self, trainer, module, *, x):\n        'At.'\n",
        "the hook 'on_c' has arguments that cannot be given positionally",
    ),
    "raises": ("raise LookupError('no licence')\n", "LookupError: no licence"),
    # comes after acme-drift by name
    "twin-of-drift": (
        HEAD + "class Added(Hooks):\n"
        "    def on_drift_detected(self, trainer, module):\n        'At.'\n",
        "the hook 'on_drift_detected' is one of acme-drift 1.2 already: give it another name",
    ),
}


@pytest.fixture(scope="module")
def sites(installed):
    """The groups of packages below, besides those of all tests."""
    installed.declare(
        "drift",
        ("acme-drift", "1.2", {"hooks": DRIFT}, {HOOKS: {"drift": "hooks:DriftHooks"}}),
        ("acme-listener", "1.0", {"factories": LISTENER}, {OURS: {"listener": "factories:make"}}),
        ("acme-detector", "1.0", {"factories": DETECTOR}, {OURS: {"detector": "factories:make"}}),
    )
    installed.declare(
        "broken hooks",
        *(
            (f"hooks-{name}", "0.1", {"hooks": source}, {HOOKS: {name: "hooks:Added"}})
            for name, (source, _) in BROKEN.items()
        ),
    )
    return installed


STORY = """
import contextlib, json, os, sys, warnings
import torch
from acme_listener.factories import HEARD
from trainer_hooks import Callback, Module, Trainer
from trainer_hooks.callbacks import LambdaCallback

class Line(Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, batch_idx):
        return self.layer(batch).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

class Hearing(Line):
    def on_drift_detected(self, score):
        HEARD.append(("module", score))

class HardOfHearing(Line):
    def on_drift_detectd(self, score):
        pass

class Typo(Callback):
    def on_drift_detectde(self, trainer, module, score):
        pass

class Narrow(Callback):
    def on_drift_detected(self, trainer):
        pass

class Failing(Callback):
    def on_drift_detected(self, trainer, module, score):
        raise ZeroDivisionError("of the listener")

class Own(Callback):
    def verify_train_batch(self, x):
        HEARD.append(("own event", x))

story = {}

@contextlib.contextmanager
def chapter(name):
    HEARD.clear()
    told = story[name] = {"error": None, "notes": []}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        except Exception as error:
            told["error"] = f"{type(error).__name__}: {error}"
            told["notes"] = getattr(error, "__notes__", [])
    told["heard"] = list(HEARD)
    told["warned"] = [str(warning.message) for warning in caught]

def trainer(*callbacks, **options):
    return Trainer(callbacks=list(callbacks), max_epochs=1, accelerator="cpu", logger=False,
                   enable_checkpointing=False, enable_progress_bar=False,
                   enable_model_summary=False, **options)

def fit(*callbacks, module=Line, **options):
    trainer(*callbacks, **options).fit(module(), torch.ones(3, 2, 4))

def calling(event, **arguments):
    return LambdaCallback(
        on_fit_start=lambda trainer, module: trainer.call_event(event, **arguments)
    )

with chapter("all"):
    fit(module=Hearing)
with chapter("function"):
    fit(LambdaCallback(on_drift_detected=lambda t, m, score: HEARD.append(("function", score))))
with chapter("misspelt function"):
    LambdaCallback(on_drift_detectde=print)
with chapter("misspelt in a callback"):
    trainer(Typo())
with chapter("misspelt, strict"):
    trainer(Typo(), strict_hooks=True)
with chapter("misspelt in a module"):
    fit(module=HardOfHearing)
with chapter("narrow"):
    trainer(Narrow())
with chapter("failing"):
    fit(Failing())
with chapter("disabled"):
    fit(Failing(), callback_errors={"Failing": "disable"})
with chapter("no argument"):
    fit(calling("on_drift_detected"))
with chapter("another argument"):
    fit(calling("on_drift_detected", scores=1))
with chapter("misspelt event"):
    fit(calling("on_drift_detectde", score=1))
with chapter("built-in"):
    fit(calling("on_fit_start"))
with chapter("reserved"):
    fit(calling("state_dict"))
with chapter("private"):
    fit(calling("_generate_state_key"))
with chapter("own event"):
    fit(calling("verify_train_batch", x=1), Own())
with chapter("blocked"):
    os.environ["TRAINER_HOOKS_BLOCK_PLUGINS"] += ",acme-drift,acme-detector"
    fit(calling("on_drift_detected", score=1))
sys.stdout.write(json.dumps(story))
"""


@pytest.fixture(scope="module")
def story(sites, run_with_plugins) -> dict:
    """What came of the calls above, by chapter."""
    done = run_with_plugins(STORY, "drift", TRAINER_HOOKS_BLOCK_PLUGINS=EXAMPLES)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_a_package_adds_a_hook_another_fires_it_a_third_hears_it(story: dict) -> None:
    """The listener, one that routes all events, and the module, each are given what is theirs."""
    chapter = story["all"]
    assert (chapter["error"], chapter["warned"]) == (None, [])
    assert chapter["heard"] == [
        ["Listener", "Trainer", "Hearing", 0.3],
        ["Router", "Trainer", "Hearing", 0.3],
        ["module", 0.3],
    ]


def test_a_function_can_listen(story: dict) -> None:
    """`LambdaCallback` knows the hooks of packages, and names them for a misspelt one."""
    assert story["function"]["error"] is None
    assert ["function", 0.3] in story["function"]["heard"]
    error = story["misspelt function"]["error"]
    assert error.startswith("CallbackError: hook 'on_drift_detectde' of LambdaCallback")
    assert "Did you mean 'on_drift_detected'?" in error


@pytest.mark.parametrize("chapter", ["misspelt in a callback", "misspelt in a module"])
def test_a_misspelt_listener_is_warned_of(story: dict, chapter: str) -> None:
    """The nearest hook is the package's."""
    [message] = story[chapter]["warned"]
    assert "is no hook, so nothing calls it. Did you mean 'on_drift_detected'?" in message
    assert story[chapter]["error"] is None


def test_a_misspelt_listener_is_an_error_where_hooks_are_strict(story: dict) -> None:
    """With `strict_hooks=True` it is refused at construction."""
    error = story["misspelt, strict"]["error"]
    assert error.startswith("CallbackError: callback Typo")
    assert "Did you mean 'on_drift_detected'?" in error


def test_a_listener_that_cannot_take_the_arguments_is_refused(story: dict) -> None:
    """The signature to write is the package's."""
    error = story["narrow"]["error"]
    assert error.startswith("CallbackError: callback Narrow")
    assert "Define on_drift_detected(self, trainer, module, score)." in error


def test_an_error_of_a_listener_says_where(story: dict) -> None:
    """It keeps its type and has a note with hook and callback, and one for who fired it."""
    chapter = story["failing"]
    assert chapter["error"] == "ZeroDivisionError: of the listener"
    own, outer = chapter["notes"][:2]
    assert own.startswith("raised in hook 'on_drift_detected' of callback Failing")
    assert outer.startswith("raised in hook 'on_train_batch_end' of callback Detector")


def test_a_listener_may_be_disabled(story: dict) -> None:
    """The policy for errors holds for the hooks of packages too."""
    chapter = story["disabled"]
    assert chapter["error"] is None
    [message] = chapter["warned"]
    assert "callback Failing" in message
    assert "failed in hook 'on_drift_detected'" in message


@pytest.mark.parametrize(
    ("chapter", "given"), [("no argument", "no arguments"), ("another argument", "['scores']")]
)
def test_wrong_arguments_are_refused(story: dict, chapter: str, given: str) -> None:
    """Who fires the hook is told what it takes, and whose hook it is."""
    assert story[chapter]["error"] == (
        f"UsageError: event 'on_drift_detected' of call_event: was given {given}, and its hook, of "
        "acme-drift 1.2, takes ['score']. Give exactly those, by name."
    )


@pytest.mark.parametrize(
    ("chapter", "rule"),
    [
        ("misspelt event", "begins with 'on_' and is no hook. Did you mean 'on_drift_detected'?"),
        ("built-in", "is a hook, which the trainer fires itself"),
        ("reserved", "is no event but a part of every callback"),
        ("private", "is no event but a part of every callback"),
    ],
)
def test_an_event_that_cannot_be_is_refused(story: dict, chapter: str, rule: str) -> None:
    """Misspelt, one of ours, something else of every callback: UsageErrors, and nobody hears."""
    assert story[chapter]["error"].startswith("UsageError: event ")
    assert rule in story[chapter]["error"]
    assert story[chapter]["heard"] == []


def test_an_event_of_ones_own_needs_no_package(story: dict) -> None:
    """A name that is no hook's calls the method of that name where there is one."""
    chapter = story["own event"]
    assert (chapter["error"], chapter["warned"]) == (None, [])
    assert ["own event", 1] in chapter["heard"]


def test_a_blocked_package_adds_nothing(story: dict) -> None:
    """Its hook is none then: the listener is warned of, and firing it is an error."""
    chapter = story["blocked"]
    [message] = chapter["warned"]
    assert "callback Listener" in message
    assert "'on_drift_detected' is no hook" in message
    assert "begins with 'on_' and is no hook" in chapter["error"]


def test_each_fault_of_such_a_package_is_reported_and_left_out(sites, probe) -> None:
    """A warning for each, with the package, the hook, the rule, the way out; the rest works."""
    probed = probe("drift", "broken hooks")
    assert probed.callbacks == ["Detector", "Listener", "Router"]
    failed = {name.partition(":")[2] for name in probed.with_status("failed")}
    assert failed == set(BROKEN)
    assert len(probed.warnings) == len(BROKEN)
    for name, (_, cause) in BROKEN.items():
        [message] = [text for text in probed.warnings if f"plugin hooks-{name} 0.1" in text]
        assert f"group '{HOOKS}', could not be loaded: " in message
        assert cause in message
        assert f"TRAINER_HOOKS_BLOCK_PLUGINS=hooks-{name}" in message


def test_a_fault_of_such_a_package_stops_on_request(sites, probe) -> None:
    """With `plugin_errors="raise"` it is an error."""
    probed = probe("broken hooks", plugin_errors="raise", ALLOW_PLUGINS="no-doc")
    assert probed.error.startswith("PluginError: plugin hooks-no-doc 0.1")


def test_the_hooks_are_listed(sites, run_with_plugins) -> None:
    """`plugins list` names what a package adds, and who listens to it."""
    code = "import sys\nfrom trainer_hooks.cli.main import main\nmain(sys.argv[1:])\n"
    done = run_with_plugins(code, "drift", arguments=("plugins", "list", "--json"))
    records = {record["distribution"]: record for record in json.loads(done.stdout)}
    assert records["acme-drift"]["adds_hooks"] == {
        "on_drift_detected": "Called after a batch whose inputs have drifted."
    }
    assert records["acme-drift"]["status"] == "loaded"
    listener, router = records["acme-listener"]["callbacks"]
    assert listener["listens_to"] == ["on_drift_detected"]
    assert router["listens_to"] == ["run_event"]
    done = run_with_plugins(code, "drift", arguments=("plugins", "list"))
    adds = "    adds the hook on_drift_detected: Called after a batch whose inputs have drifted."
    assert adds in done.stdout.splitlines()


@pytest.mark.exhaustive  # the kit trains with three callbacks
def test_who_fires_and_hears_the_hook_passes_the_check(sites, run_with_plugins) -> None:
    """`plugins check` has the hooks of packages, as a run does, whatever it is asked to check."""
    code = "import sys\nfrom trainer_hooks.cli.main import main\nsys.exit(main(sys.argv[1:]))\n"
    names = ("acme-listener", "acme-detector")
    done = run_with_plugins(code, "drift", arguments=("plugins", "check", *names))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "2 passed"
    done = run_with_plugins(code, "drift", arguments=("plugins", "check", "drift"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "  it adds on_drift_detected" in done.stdout.splitlines()
