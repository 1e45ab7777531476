"""`EarlyStopping` and `Timer`."""

from __future__ import annotations

from typing import Any

from programs import differs, error

AT_THE_END = "`EarlyStopping` at a value that ends the run by a threshold or by not being finite"


ERRORS = "The class of some errors"


def _decaying(x: Any, values: list[float]) -> Any:
    """Return a module class that logs these values, one for each epoch's validation."""

    class Net(x.Net):
        def validation_step(self, batch, batch_idx):
            self.log("val", values[self.current_epoch])

    return Net


def _stopped(x: Any, values: list[float], **options: Any) -> dict[str, Any]:
    stopper = x.callbacks.EarlyStopping("val", **options)
    trainer = x.trainer(stopper, max_epochs=len(values))
    trainer.fit(_decaying(x, values)(), x.loader(2), x.loader(1))
    return {
        "epochs": trainer.current_epoch, "stopped": stopper.stopped_epoch,
        "waited": stopper.wait_count, "best": float(stopper.best_score), "mode": stopper.mode,
        "stop": trainer.should_stop,
    }  # fmt: skip


def early_stopping(x):
    """Patience of two epochs."""
    return _stopped(x, [1.0, 0.9, 0.95, 0.92, 0.93, 0.5], patience=2)


def early_stopping_max(x):
    """The other way round."""
    return _stopped(x, [1.0, 2.0, 1.5, 1.6, 3.0], mode="max", patience=2)


def early_stopping_min_delta(x):
    """An improvement must be large enough."""
    return _stopped(x, [1.0, 0.95, 0.91, 0.5, 0.1], min_delta=0.1, patience=2)


@differs(AT_THE_END, best=(0.5, 0.1), waited=(0, 1))
def early_stopping_thresholds(x):
    """A value that is good enough, and one that is too bad."""
    good = _stopped(x, [1.0, 0.5, 0.1, 0.0], stopping_threshold=0.2)
    bad = _stopped(x, [1.0, 5.0, 0.1, 0.0], divergence_threshold=4.0)
    return {"best": good.pop("best"), "waited": bad.pop("waited"), "good": good, "bad": bad}


@differs(AT_THE_END, waited=(0, 1))
def early_stopping_not_finite(x):
    """NaN stops, unless `check_finite` is off."""
    on = _stopped(x, [1.0, float("nan"), 0.5])
    return {
        "waited": on.pop("waited"),
        "on": on,
        "off": _stopped(x, [1.0, float("nan"), 0.5], check_finite=False),
    }


@differs(ERRORS, strict=(error("RuntimeError"), error("MetricError")))
def early_stopping_without_the_value(x):
    """An unknown monitor is refused, unless `strict` is off."""

    def run(**options):
        stopper = x.callbacks.EarlyStopping("nothing", **options)
        x.trainer(stopper, max_epochs=2).fit(x.Net(), x.loader(1), x.loader(1))

    return {"strict": x.error(run), "not strict": x.error(lambda: run(strict=False))}


def early_stopping_on_a_training_value(x):
    """A monitor that is logged in training."""

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            self.log("a", float(self.current_epoch), on_step=False, on_epoch=True)
            return self.cost(batch)

    stopper = x.callbacks.EarlyStopping("a", patience=2)
    trainer = x.trainer(stopper, max_epochs=6)
    trainer.fit(Net(), x.loader(2))
    return {"epochs": trainer.current_epoch, "stopped": stopper.stopped_epoch}


def early_stopping_at_the_end_of_training(x):
    """`check_on_train_epoch_end=False` waits for the validation."""
    return _stopped(x, [1.0, 2.0, 3.0, 4.0], patience=1, check_on_train_epoch_end=False)


def early_stopping_and_min_epochs(x):
    """`min_epochs` holds it back."""
    stopper = x.callbacks.EarlyStopping("val", patience=1)
    trainer = x.trainer(stopper, max_epochs=6, min_epochs=4)
    trainer.fit(_decaying(x, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])(), x.loader(2), x.loader(1))
    return {"epochs": trainer.current_epoch, "stopped": stopper.stopped_epoch}


def early_stopping_options(x):
    """What it cannot be given."""
    return {
        "mode": x.error(lambda: x.callbacks.EarlyStopping("a", mode="odd")),
        "monitor": x.error(lambda: x.callbacks.EarlyStopping()),
    }


def early_stopping_resumes(x):
    """Its count goes on after a resume."""
    values = [1.0, 2.0, 3.0, 4.0, 5.0]

    def trainer(epochs):
        return x.trainer(x.callbacks.EarlyStopping("val", patience=3), max_epochs=epochs)

    first = trainer(2)
    first.fit(_decaying(x, values)(), x.loader(2), x.loader(1))
    first.save_checkpoint(x.folder / "a.ckpt")
    second = trainer(5)
    second.fit(_decaying(x, values)(), x.loader(2), x.loader(1), ckpt_path=x.folder / "a.ckpt")
    stopper = second.early_stopping_callback
    return {"epochs": second.current_epoch, "waited": stopper.wait_count}


def timer(x):
    """`Timer` stops when its time is over, and tells the times."""
    clock = x.callbacks.Timer(duration={"milliseconds": 100}, interval="epoch")

    class Slow(x.Net):
        def training_step(self, batch, batch_idx):
            while clock.time_remaining() > 0:
                pass
            return self.cost(batch)

    trainer = x.trainer(clock, max_epochs=3)
    trainer.fit(Slow(), x.loader(2), x.loader(1))
    return {
        "epochs": trainer.current_epoch, "elapsed": clock.time_elapsed() > 0,
        "left": clock.time_remaining() <= 0, "validated": clock.time_elapsed("validate") > 0,
        "tested": clock.time_elapsed("test"),
        "started": clock.start_time() is not None, "none": x.callbacks.Timer().time_remaining(),
        "interval": x.error(lambda: x.callbacks.Timer(interval="odd")),
    }  # fmt: skip


@differs("The members of `EarlyStoppingReason`", reason=("int", "str"))
def early_stopping_reason(x):
    """Why it stopped, as a member of an enumeration."""
    stopper = x.callbacks.EarlyStopping("val", patience=1)
    trainer = x.trainer(stopper, max_epochs=4)
    trainer.fit(_decaying(x, [1.0, 2.0, 3.0, 4.0])(), x.loader(2), x.loader(1))
    value = stopper.stopping_reason.value
    return {
        "reason": "str" if isinstance(value, str) else "int",
        "name": stopper.stopping_reason.name,
    }


def early_stopping_tolerance(x):
    """With a negative `min_delta` a value may be a little worse."""
    return _stopped(x, [1.0, 1.05, 1.1, 1.5, 2.0], min_delta=-0.2, patience=1)


@differs(
    "Another `patience` of `EarlyStopping` on a resume",
    given=([2, 4, True], [2, 3, True]),
    patience=(3, 2),
)
def patience_of_a_resume(x):
    """A resumed run is given a stopper of less patience."""
    values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]

    def trained(epochs, patience, **options):
        stopper = x.callbacks.EarlyStopping("val", patience=patience)
        trainer = x.trainer(stopper, max_epochs=epochs)
        trainer.fit(_decaying(x, values)(), x.loader(2), x.loader(1), **options)
        return trainer, stopper

    first, _ = trained(2, 3)
    first.save_checkpoint(x.folder / "a.ckpt")
    second, stopper = trained(6, 2, ckpt_path=x.folder / "a.ckpt")
    return {
        "given": [first.current_epoch, second.current_epoch, second.should_stop],
        "patience": stopper.patience,
    }
