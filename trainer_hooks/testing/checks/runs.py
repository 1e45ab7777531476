"""Checks that runs in every order and number raise nothing."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING

from trainer_hooks.callback import Callback
from trainer_hooks.errors import described, message_of
from trainer_hooks.hooks import HookRelay, Member
from trainer_hooks.testing.checks.finding import Findings, Note, raised
from trainer_hooks.testing.entry import enter
from trainer_hooks.testing.report import Defect

if TYPE_CHECKING:
    from typing import Any

    from trainer_hooks.module import Module
    from trainer_hooks.testing.bench import Bench
    from trainer_hooks.trainer import Trainer

__all__ = ["check_closing", "check_failing_run", "check_first_fit", "check_orders", "check_refits"]


def check_first_fit(bench: Bench) -> Findings:
    """Find errors in the plainest use: a trainer, a fit, and the close."""
    for step, during in (
        ("Trainer", "by Trainer(callbacks=[...])"),
        ("fit", "in a fit"),
        ("close", "by trainer.close()"),
    ):
        if step in bench.trial.errors:
            yield raised(bench.trial.errors[step], during)


def check_orders(bench: Bench) -> Findings:
    """Find orders of fit, validate, test and predict in which something is raised."""
    orders = list(itertools.permutations(bench.trial.entry_points))
    limits = {f"limit_{name}_batches": 1 for name in ("train", "val", "test", "predict")}
    seen: set[tuple[str, str]] = set()
    for order in orders:
        with bench.room():
            trainer, module = (
                bench.trainer(bench.make(), max_epochs=1, **limits),
                bench.make_module(),
            )
            for index, step in enumerate(order):
                try:
                    enter(trainer, step, module)
                except Exception as error:  # noqa: BLE001 - reported, once for each kind
                    if (step, message_of(error)) not in seen:
                        seen.add((step, message_of(error)))
                        before = f"after {', '.join(order[:index])}" if index else "first of all"
                        yield raised(error, f"in {step}, {before}")
            trainer.close()
    yield Note(f"{len(orders)} orders of {', '.join(bench.trial.entry_points)}")


def check_refits(bench: Bench) -> Findings:
    """Find errors when a callback is used again, by the same trainer and by another one."""
    callback = bench.make()
    with bench.room():
        trainer, module = bench.trainer(callback, max_epochs=1), bench.make_module()
        trainer.fit(module)
        trainer.max_epochs += 1
        yield from _attempt("in a second fit, which trains the module on", trainer, module)
        yield from _attempt("in a fit of another module", trainer, bench.make_module())
        trainer.close()
    with bench.room("second"):
        other = bench.trainer(callback, max_epochs=1)
        yield from _attempt("in a fit of a second trainer", other, bench.make_module())
        other.close()


def _attempt(during: str, trainer: Trainer, module: Module) -> Findings:
    try:
        trainer.fit(module)
    except Exception as error:  # noqa: BLE001 - reported
        yield raised(error, during, "Set up in on_fit_start what a fit needs, not in __init__.")


def check_closing(bench: Bench) -> Findings:
    """Find `teardown`, `on_close` and `on_post_close` that cannot be called twice, or alone."""
    for step in bench.trial.entry_points:
        stage_callback = bench.make()
        with bench.room():
            trainer, module = bench.trainer(stage_callback, max_epochs=1), bench.make_module()
            with contextlib.suppress(Exception):  # the check of orders tells of it
                enter(trainer, step, module)
            yield from _again(stage_callback, "teardown", trainer, module, step)
            trainer.close()
            if step == "fit":
                yield from _again(stage_callback, "on_close", trainer, module)
                yield from _again(stage_callback, "on_post_close", trainer, module)
    try:
        with bench.room():
            bench.trainer(bench.make()).close()
    except Exception as error:  # noqa: BLE001 - reported
        remedy = "on_close and on_post_close are given None as the module then: bear that."
        yield raised(error, "when a trainer is closed that ran nothing", remedy)


def _again(callback: Callback, hook: str, *args: Any) -> Findings:
    """Call a hook that was called already."""
    relay = HookRelay(
        [Member(callback, type(callback).__qualname__, routes_events=callback.routes_events)]
    )
    try:
        getattr(relay, hook)(*args)
    except Exception as error:  # noqa: BLE001 - reported
        stage = f" of {args[2]}" if hook == "teardown" else ""
        yield raised(
            error,
            f"when {hook}{stage} is called a second time",
            "Forget what was closed: `file, self._file = self._file, None`, and close it if it is "
            "not None.",
        )


class _Saboteur(Callback):
    """Raises in the second batch."""

    error = RuntimeError("raised on purpose by the test kit")

    def on_train_batch_end(self, *args: object) -> None:
        """Raise."""
        if args[-1] == 1:
            raise self.error


def check_failing_run(bench: Bench) -> Findings:
    """Find callbacks that fail in turn when something else ends a run."""
    callback, saboteur = bench.make(), _Saboteur()
    saboteur.error = RuntimeError("raised on purpose by the test kit")
    with bench.room():
        trainer = bench.trainer(callback, saboteur)
        try:
            trainer.fit(bench.make_module())
        except Exception as error:  # noqa: BLE001 - it is compared with the one that was raised
            notes = [
                note for note in getattr(error, "__notes__", ()) if note.startswith("and then")
            ]
            if error is not saboteur.error or notes:
                yield Defect(
                    "an error of somebody else leaves the fit as it was raised",
                    "; ".join(notes) or described(error),
                    "Make on_exception, teardown and the end hooks bear a run that was cut short.",
                )
        trainer.close()
