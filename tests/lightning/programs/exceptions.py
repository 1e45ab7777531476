"""What follows an exception in a hook or step."""

from __future__ import annotations

from typing import Any

from programs import differs
from programs.hooks import OF_CALLBACKS


def _failing(x: Any, where: str, verb: str = "fit") -> dict[str, Any]:
    """Run with a callback that raises in a hook; tell which hooks follow, and the error."""

    class OwnError(Exception):
        pass

    def fail(*args: Any, **kwargs: Any) -> None:
        raise OwnError

    calls: list[str] = []
    failing = type("Failing", (x.Callback,), {where: fail})()
    trainer = x.trainer(x.hooks(*OF_CALLBACKS, into=calls), failing)
    module = x.Net()
    loaders = (x.loader(2), x.loader(1)) if verb == "fit" else (x.loader(2),)
    error = x.error(lambda: getattr(trainer, verb)(module, *loaders))
    after = calls[-3:] if len(calls) > 3 else calls
    torn = [call for call in calls if call.startswith("teardown")]
    rest = [call for call in after if call not in torn]
    return {
        "calls": rest[-1:],
        "error": error,
        "torn": len(torn),
        "status": trainer.state.status,
        "training": module.training,
    }


TEARDOWN = "`teardown` after an exception"


MODE = "The module's mode after an exception in an evaluation"


@differs(TEARDOWN, torn=(0, 1))
def exception_in_a_training_batch(x):
    """`on_exception` follows."""
    return _failing(x, "on_train_batch_start")


@differs(TEARDOWN, torn=(0, 1))
def exception_in_fit_start(x):
    """The same early in a fit."""
    return _failing(x, "on_fit_start")


@differs(TEARDOWN, torn=(0, 1))
def exception_in_setup(x):
    """The same in `setup`."""
    return _failing(x, "setup")


@differs(TEARDOWN, torn=(0, 1))
@differs(MODE, training=(False, True))
def exception_in_test(x):
    """The same in another verb."""
    return _failing(x, "on_test_batch_end", "test")


@differs(TEARDOWN, torn=(0, 1))
@differs(MODE, training=(False, True))
def exception_in_validation(x):
    """The same in a validation inside of fit; the module is back in training mode."""
    return _failing(x, "on_validation_batch_start")


@differs(
    "`trainer.fit_loop.epoch_loop.batch_progress` after a run",
    counters=(
        {"global_step": 2, "current_epoch": 0, "batches": [3, 2], "epochs": [1, 0]},
        {"global_step": 2, "current_epoch": 0, "batches": [2, 2], "epochs": [1, 0]},
    ),
)
def exception_in_a_step(x):
    """What `on_exception` is given, and what the counters say."""

    class OwnError(Exception):
        pass

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            if batch_idx == 2:
                raise OwnError
            return super().training_step(batch, batch_idx)

    hooks = x.hooks("on_exception", "on_train_end", "on_fit_end")
    trainer = x.trainer(hooks)
    error = x.error(lambda: trainer.fit(Net(), x.loader(4)))
    return {"calls": hooks.calls, "error": error, "counters": x.counters(trainer)}


@differs("Ctrl-C", error=({"kinds": ["SystemExit"]}, {"kinds": ["KeyboardInterrupt"]}))
def keyboard_interrupt(x):
    """What Ctrl-C in a step becomes."""

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            raise KeyboardInterrupt

    hooks = x.hooks("on_exception", "on_train_end")
    trainer = x.trainer(hooks)
    error = x.error(lambda: trainer.fit(Net(), x.loader(2)))
    return {"calls": hooks.calls, "error": error, "interrupted": trainer.interrupted}
