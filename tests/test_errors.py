"""The tree of errors."""

from __future__ import annotations

import builtins
import copy
import pickle
import signal

import pytest

from trainer_hooks import errors
from trainer_hooks.errors import TerminationSignal, TrainerHooksError, did_you_mean

TREE = {
    "OptionError": ("TrainerHooksError", "ValueError"),
    "CallbackError": ("TrainerHooksError", "ValueError"),
    "StateKeyError": ("CallbackError",),
    "PluginError": ("TrainerHooksError", "RuntimeError"),
    "ModuleError": ("TrainerHooksError", "TypeError"),
    "DataError": ("TrainerHooksError", "ValueError"),
    "MetricError": ("TrainerHooksError", "ValueError"),
    "OptimizationError": ("TrainerHooksError", "ValueError"),
    "CheckpointError": ("TrainerHooksError", "RuntimeError"),
    "CheckpointNotFoundError": ("CheckpointError", "FileNotFoundError"),
    "CheckpointStateError": ("CheckpointError", "TypeError"),
    "ExportError": ("TrainerHooksError", "RuntimeError"),
    "NonFiniteError": ("TrainerHooksError", "ArithmeticError"),
    "MovedError": ("TrainerHooksError", "ImportError"),
    "UsageError": ("TrainerHooksError", "RuntimeError"),
    "StopTraining": ("TrainerHooksError",),
}
#: other names of the same class, as a peer has them
ALIASES = {"StopTrainingError": "StopTraining"}


def test_the_tree_is_frozen() -> None:
    """Every public error stands where the tree says, and there are no others."""
    public = {
        name
        for name in errors.__all__
        if isinstance(getattr(errors, name), type)
        and issubclass(getattr(errors, name), TrainerHooksError)
    }
    assert public == {"TrainerHooksError", *TREE, *ALIASES}
    for name, bases in TREE.items():
        assert tuple(base.__name__ for base in getattr(errors, name).__bases__) == bases
    for alias, name in ALIASES.items():
        assert getattr(errors, alias) is getattr(errors, name)


@pytest.mark.parametrize("name", list(TREE))
def test_the_docstring_draws_the_tree(name: str) -> None:
    """The drawing in the module's docstring has each error, with the builtin beside it."""
    assert errors.__doc__ is not None
    [line] = [line for line in errors.__doc__.splitlines() if f"- {name} " in line]
    for base in TREE[name]:
        if hasattr(builtins, base):
            assert f"({base})" in line


@pytest.mark.parametrize("name", list(TREE))
def test_errors_are_caught_as_ours_and_as_builtins(name: str) -> None:
    """Code that knows nothing of us catches the matching builtin; ours catches all of ours."""
    kind = getattr(errors, name)
    for base in TREE[name]:
        with pytest.raises(getattr(builtins, base, TrainerHooksError), match="what and why"):
            raise kind("what and why")
    with pytest.raises(TrainerHooksError):
        raise kind("what and why")


@pytest.mark.parametrize("name", list(TREE))
def test_errors_travel_between_processes(name: str) -> None:
    """A pickled error comes back with its type and message, as from a worker process."""
    error = getattr(errors, name)("told in a worker")
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert str(back) == "told in a worker"


def test_a_termination_exits_with_128_and_the_signal() -> None:
    """SIGTERM becomes a SystemExit with code 143, which `except Exception` lets through."""
    error = TerminationSignal(signal.SIGTERM)
    assert isinstance(error, SystemExit)
    assert not isinstance(error, Exception)
    assert (error.code, error.signum) == (143, 15)


@pytest.mark.parametrize("make", [copy.copy, lambda e: pickle.loads(pickle.dumps(e))])
def test_a_termination_keeps_its_code_when_copied(make) -> None:
    """A copy of the signal, as across processes, has the same exit code."""
    back = make(TerminationSignal(15))
    assert (back.code, back.signum) == (143, 15)


def test_nearest_suggests_only_what_is_near() -> None:
    """A near name is suggested in a sentence; for one that is far off nothing is said."""
    assert (
        did_you_mean("on_fit_strat", ["on_fit_start", "teardown"])
        == " Did you mean 'on_fit_start'?"
    )
    assert did_you_mean("zzz", ["on_fit_start", "teardown"]) == ""
    assert did_you_mean("zzz", []) == ""


def test_all_is_sorted() -> None:
    """The public names stand in alphabetical order."""
    assert errors.__all__ == sorted(errors.__all__)


@pytest.mark.posix
def test_an_error_of_an_enum_is_no_interruption():
    """Nor where SIGCHLD has its default handler, which is a member of an Enum itself."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        with pytest.raises(ValueError, match="3 is not a valid") as caught:
            signal.Sigmasks(3)
        assert not errors.is_interruption(caught.value)
    finally:
        signal.signal(signal.SIGCHLD, before)
