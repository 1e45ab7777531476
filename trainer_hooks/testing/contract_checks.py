"""The checks of the contract, one function each; the table in `contract` gives their order."""

from __future__ import annotations

import contextlib
import copy
import itertools
import os
import re
from typing import TYPE_CHECKING, Any

from trainer_hooks._names import ours
from trainer_hooks.callback import Callback
from trainer_hooks.checkpoint.file import load_checkpoint
from trainer_hooks.connector.registry import hooks_declared_by_bases
from trainer_hooks.context.run_state import TrainerFn
from trainer_hooks.errors import (
    CallbackError,
    CheckpointStateError,
    error_message,
    error_summary,
)
from trainer_hooks.hooks.band import Band
from trainer_hooks.hooks.check import hook_errors, hook_warnings
from trainer_hooks.hooks.discovery import installed_hooks
from trainer_hooks.hooks.relay import HookRelay, RelayMember
from trainer_hooks.hooks.spec import HOOKS
from trainer_hooks.testing.contract_report import CheckNote, Defect, Findings, defect_from_error
from trainer_hooks.testing.harness import run_entry_point
from trainer_hooks.testing.nested_diff import nested_differences, summarize_differences

if TYPE_CHECKING:
    from trainer_hooks.hooks.spec import HookSpec
    from trainer_hooks.module.module import Module
    from trainer_hooks.testing.harness import CallbackHarness
    from trainer_hooks.trainer.trainer import Trainer

# at least six digits: a shorter number is one that the author wrote
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")
_COST_EPOCHS = 8
_HOOK_NAMES = tuple(HOOKS)
# the catalogue lists the hooks in the order of their calls
_BATCH_HOOKS = frozenset(
    _HOOK_NAMES[
        _HOOK_NAMES.index("on_before_dataloader") : _HOOK_NAMES.index("on_batch_checkpoint") + 1
    ]
)


# --- the callback as it was made, and its first run ---


def check_construction(harness: CallbackHarness) -> Findings:
    """Yield a defect if the factory does not make a new callback each time."""
    first_run = harness.first_run
    if isinstance(first_run.make_error, CallbackError):
        yield Defect(
            "the factory makes a callback", str(first_run.make_error), "Return an instance."
        )
    elif first_run.make_error is not None:
        yield defect_from_error(
            first_run.make_error,
            "when the callback is made, twice",
            "Give the factory all arguments that the constructor needs.",
        )
    elif first_run.callback is first_run.twin:
        yield Defect(
            "the factory makes a new callback each time",
            f"it returned the same object, {first_run.callback!r}, twice",
            "Construct it inside the factory: lambda: MyCallback(...).",
        )


def check_hook_names(harness: CallbackHarness) -> Findings:
    """Yield a defect for each method that looks like a hook and is none."""
    callback = _callback_of(harness)
    for sentence in hook_warnings(callback, _hooks(), hooks_declared_by_bases(callback)):
        yield Defect("every public method named on_... is a hook", sentence, "Rename it.")


def check_hook_signatures(harness: CallbackHarness) -> Findings:
    """Yield a defect for each hook that cannot be called with the arguments that it will get."""
    for sentence in hook_errors(_callback_of(harness), _hooks()):
        yield Defect(
            "every hook can be called with its arguments",
            sentence,
            "Give it the signature that it has in trainer_hooks.Hooks.",
        )


def check_shared_state(harness: CallbackHarness) -> Findings:
    """Yield a defect for each value of another callback that the first run changed."""
    for sentence in harness.first_run.shared:
        yield Defect(
            "a run with one callback leaves another one of the same factory as it was",
            sentence,
            "Make the value in __init__, a new one for each instance.",
        )


def _hooks() -> dict[str, HookSpec]:
    """Return every hook by name, those of installed packages included."""
    return {**HOOKS, **installed_hooks()}


def _callback_of(harness: CallbackHarness) -> Callback:
    return harness.first_run.callback or harness.make()


def check_global_state(harness: CallbackHarness) -> Findings:
    """Yield a defect for each change that the first run left in the process."""
    for change in harness.first_run.changes:
        yield Defect(
            f"the {change.what} is as before once the trainer is closed",
            str(change),
            "Put it back in teardown or on_close, or do without changing it.",
        )
    for change in harness.first_run.import_changes:
        packages = ", ".join(harness.first_run.imported)
        yield CheckNote(f"{change}, by the first import of {packages}, and not in a second run")


def check_random_numbers(harness: CallbackHarness) -> Findings:
    """Yield a defect for each global random generator that the callback drew from or seeded."""
    for name in harness.first_run.consumed:
        yield Defect(
            f"the global random numbers of {name} go on as without the callback",
            f"after a fit, validate, test and predict, the state of {name}'s generator is another",
            "Draw from a generator of your own: random.Random(seed), numpy.random.default_rng(seed)"
            " or torch.Generator().manual_seed(seed); and keep its state in state_dict.",
        )


# --- runs in several orders, and again ---


def check_first_fit(harness: CallbackHarness) -> Findings:
    """Yield a defect for each error of the plainest use: a trainer, a fit, and the close."""
    for part, during in (
        ("Trainer", "by Trainer(callbacks=[...])"),
        ("fit", "in a fit"),
        ("close", "by trainer.close()"),
    ):
        if part in harness.first_run.errors:
            yield defect_from_error(
                harness.first_run.errors[part],
                during,
                "Mend that line, or make the hook bear what it was given. A callback that needs "
                "another module gets it by check_callback(..., module=...); one of a plugin is in "
                "every run, whatever its module.",
            )


def check_orders(harness: CallbackHarness) -> Findings:
    """Yield a defect for each error raised in some order of fit, validate, test and predict.

    Each of them comes first, right after each other one alone, and after all three others: 12
    orders. An error that needs exactly two others before it, or more of them in a certain order,
    may not show. Of three entry points, as of a module without a test step, all orders are run.
    """
    orders = _orders(harness.first_run.entry_points)
    # one batch each, since there are many runs
    limits = {f"limit_{name}_batches": 1 for name in ("train", "val", "test", "predict")}
    reported: set[tuple[str, str]] = set()
    for order in orders:
        with harness.new_folder():
            trainer = harness.make_trainer(harness.make(), max_epochs=1, **limits)
            module = harness.make_module()
            for index, stage in enumerate(order):
                try:
                    run_entry_point(trainer, stage, module)
                except Exception as error:  # noqa: BLE001 - reported, once for each message
                    # an error shows in many of the orders, and the author mends it once
                    if (stage, error_message(error)) not in reported:
                        reported.add((stage, error_message(error)))
                        before = f"after {', '.join(order[:index])}" if index else "first of all"
                        yield defect_from_error(error, f"in {stage}, {before}")
            trainer.close()
    yield CheckNote(f"{len(orders)} orders of {', '.join(harness.first_run.entry_points)}")


def _orders(stages: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return orders in which each stage comes first, right after each other one, and last."""
    if len(stages) < 4:
        return list(itertools.permutations(stages))
    # a balanced Latin square: each stage once at each place, each once right after each other one
    whole = [tuple(stages[(first + step) % 4] for step in (0, 1, 3, 2)) for first in range(4)]
    begun = {order[:2] for order in whole}
    # pairs come first: an error is reported with the fewest runs before it
    return [*(pair for pair in itertools.permutations(stages, 2) if pair not in begun), *whole]


def check_refits(harness: CallbackHarness) -> Findings:
    """Yield a defect for each error when a trainer, or a second one, uses a callback again."""
    callback = harness.make()
    with harness.new_folder():
        trainer, module = harness.make_trainer(callback, max_epochs=1), harness.make_module()
        trainer.fit(module)
        # the second fit counts on from the first, and would have nothing left to train
        trainer.max_epochs += 1
        yield from _fit_again("in a second fit, which trains the module on", trainer, module)
        yield from _fit_again("in a fit of another module", trainer, harness.make_module())
        trainer.close()
    with harness.new_folder("second"):
        second = harness.make_trainer(callback, max_epochs=1)
        yield from _fit_again("in a fit of a second trainer", second, harness.make_module())
        second.close()


def _fit_again(during: str, trainer: Trainer, module: Module) -> Findings:
    try:
        trainer.fit(module)
    except Exception as error:  # noqa: BLE001 - reported
        yield defect_from_error(
            error, during, "Set up in on_fit_start what a fit needs, not in __init__."
        )


def check_closing(harness: CallbackHarness) -> Findings:
    """Yield a defect where `teardown` or a closing hook cannot be called twice, or alone."""
    for stage in harness.first_run.entry_points:
        callback = harness.make()
        with harness.new_folder():
            trainer = harness.make_trainer(callback, max_epochs=1)
            module = harness.make_module()
            with contextlib.suppress(Exception):  # the check of orders reports it
                run_entry_point(trainer, stage, module)
            # the run has called `teardown` already, and `close` the closing hooks
            yield from _call_again(callback, "teardown", trainer, module, TrainerFn(stage))
            trainer.close()
            if stage == "fit":
                yield from _call_again(callback, "on_close", trainer, module)
                yield from _call_again(callback, "on_post_close", trainer, module)
    try:
        with harness.new_folder():
            harness.make_trainer(harness.make()).close()
    except Exception as error:  # noqa: BLE001 - reported
        remedy = "on_close and on_post_close are given None as the module then: bear that."
        yield defect_from_error(error, "when a trainer is closed that ran nothing", remedy)


def _call_again(callback: Callback, hook: str, *args: Any) -> Findings:
    """Call a hook a second time; yield a defect if it raises an error."""
    # through a relay of one member, so that the error gets its usual notes
    relay = HookRelay(
        [
            RelayMember(
                callback, type(callback).__qualname__, routes_events=ours(callback).routes_events
            )
        ]
    )
    try:
        getattr(relay, hook)(*args)
    except Exception as error:  # noqa: BLE001 - reported
        stage = f" of {args[2]}" if hook == "teardown" else ""
        yield defect_from_error(
            error,
            f"when {hook}{stage} is called a second time",
            "Forget what was closed: `file, self._file = self._file, None`, and close it if it is "
            "not None.",
        )


class _FailingCallback(Callback):
    """Raises its error in the second batch."""

    def __init__(self) -> None:
        self.error = RuntimeError("raised on purpose by the test kit")

    def on_train_batch_end(self, *args: object) -> None:
        """Raise the error."""
        if args[-1] == 1:
            raise self.error


def check_failing_run(harness: CallbackHarness) -> Findings:
    """Yield a defect if the callback fails in turn when another callback's error ends a run."""
    # the failing one comes second, so that the callback has had its turn at the hook
    callback, failing = harness.make(), _FailingCallback()
    with harness.new_folder():
        trainer = harness.make_trainer(callback, failing)
        try:
            trainer.fit(harness.make_module())
        except Exception as error:  # noqa: BLE001 - compared with the one that was raised
            notes = [
                note for note in getattr(error, "__notes__", ()) if note.startswith("and then")
            ]
            if error is not failing.error or notes:
                yield Defect(
                    "an error of somebody else leaves the fit as it was raised",
                    "; ".join(notes) or error_summary(error),
                    "Make on_exception, teardown and the end hooks bear a run that was cut short.",
                )
        trainer.close()


# --- the state ---


def check_state_key(harness: CallbackHarness) -> Findings:
    """Yield a defect if the state key would be another in the next process."""
    first, second = harness.make(), harness.make()
    remedy = "Return self._generate_state_key(...) with arguments that are the same in every run."
    if first.state_key != second.state_key:
        seen = f"{first.state_key!r} and {second.state_key!r}"
        yield Defect("two callbacks of one factory have the same state_key", seen, remedy)
        return
    address = _ADDRESS.search(first.state_key)
    # each of them differs from process to process, so that a resume would find no state
    transient = {
        "an address": address[0] if address else None,
        "the id of the callback": str(id(first)),
        "the number of the process": rf"\b{os.getpid()}\b",
    }
    for content, pattern in transient.items():
        if pattern is not None and re.search(pattern, first.state_key):
            yield Defect(
                "the state_key is the same in the next process",
                f"{first.state_key!r} holds {content}",
                remedy,
            )


class _StateReader(Callback):
    """Copies a callback's state right after a checkpoint was restored."""

    # before the callback's own hooks, which may change the restored state
    band = Band.TRANSFORM

    def __init__(self, callback: Callback) -> None:
        self.callback = callback
        self.state: dict[str, Any] = {}

    def on_after_load(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any] | None
    ) -> None:
        """Copy the state."""
        self.state = copy.deepcopy(self.callback.state_dict())


def check_state_round_trip(harness: CallbackHarness) -> Findings:
    """Yield a defect if the state does not come back from a file as it was saved."""
    callback, fresh = harness.make(), harness.make()
    reader = _StateReader(fresh)
    with harness.new_folder() as folder:
        path = folder / "state.ckpt"
        trainer = harness.make_trainer(callback)
        trainer.fit(harness.make_module())
        try:
            trainer.save_checkpoint(path)
        except CheckpointStateError as error:
            yield Defect("the state can be saved", str(error), "Save plain data and tensors.")
            return
        trainer.close()
        saved = load_checkpoint(path)["callbacks"]
        # of a new callback: one that was saved here would have the state anyway
        second = harness.make_trainer(reader, fresh)
        second.fit(harness.make_module(), ckpt_path=path)
        second.close()
    differences = nested_differences(saved.get(callback.state_key, {}), reader.state, "state")
    if differences:
        yield Defect(
            "what a new callback returns after load_state_dict is what was saved",
            f"saved and returned differ at {summarize_differences(differences)}",
            "Take back in load_state_dict every item that state_dict returns, of the same type.",
        )


class _CheckpointSpy(Callback):
    """A neighbour with state of its own that copies the keys and states of a checkpoint."""

    band = Band.TRANSFORM

    def __init__(self) -> None:
        self.seen: dict[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        """Return a state that would be missed."""
        return {"of": type(self).__name__}

    def on_save_checkpoint(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Copy the checkpoint's keys and states."""
        self.seen = {
            "keys": set(checkpoint),
            "states": copy.deepcopy(checkpoint.get("callbacks", {})),
        }


class _LastCheckpointSpy(_CheckpointSpy):
    """A spy that copies the checkpoint after the callback's own hook."""

    band = Band.SAVE


def check_neighbours(harness: CallbackHarness) -> Findings:
    """Yield a defect for each change of hyperparameters, other states and other checkpoint keys."""
    callback, module = harness.make(), harness.make_module()
    before, after = _CheckpointSpy(), _LastCheckpointSpy()
    hparams = copy.deepcopy(dict(module.hparams))
    with harness.new_folder() as folder:
        trainer = harness.make_trainer(before, callback, after)
        trainer.fit(module)
        trainer.save_checkpoint(folder / "all.ckpt")
        trainer.close()
    differences = nested_differences(hparams, dict(module.hparams), "hparams")
    if differences:
        yield Defect(
            "the module's hyperparameters are as they were",
            summarize_differences(differences),
            "Copy what you want to change.",
        )
    # the callback may change its own state while the checkpoint is made
    for seen in (before.seen["states"], after.seen["states"]):
        seen.pop(callback.state_key, None)
    # a key that was added may be the callback's own
    missing = before.seen["keys"] - after.seen["keys"]
    differences = [f"the key {key!r} is gone" for key in missing]
    differences += nested_differences(
        before.seen["states"], after.seen["states"], "checkpoint['callbacks']"
    )
    if differences:
        yield Defect(
            "on_save_checkpoint leaves other callbacks' states in the checkpoint",
            summarize_differences(differences),
            "Write under a key of your own, or return it from state_dict.",
        )


# --- costs ---


def measure_costs(harness: CallbackHarness) -> Findings:
    """Yield a note of the time that the hooks of a training batch take, and all others together."""
    callback = harness.make()
    with harness.new_folder():
        trainer = harness.make_trainer(callback, max_epochs=_COST_EPOCHS)
        with trainer.profile_hooks() as profile:
            trainer.fit(harness.make_module())
            trainer.close()
    costs = [cost for cost in profile.records if cost.state_key == callback.state_key]
    in_batches = sum(cost.total for cost in costs if cost.hook in _BATCH_HOOKS)
    elsewhere = sum(cost.total for cost in costs if cost.hook not in _BATCH_HOOKS)
    batches = max(1, trainer.progress.batches_completed)
    yield CheckNote(
        f"{in_batches / batches * 1e6:.1f} us in the hooks of each training batch, "
        f"{elsewhere * 1e3:.2f} ms in all others of a fit of {batches} batches"
    )
