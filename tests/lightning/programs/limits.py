"""Limits of a run: epochs, steps, times, batches, validations."""

from __future__ import annotations

import datetime as dt

from shared import limited, watching

from programs import differs, error


def max_epochs(x):
    """Two epochs over all batches."""
    return limited(x, max_epochs=2)


def max_steps(x):
    """The run ends inside the second epoch."""
    return limited(x, max_epochs=None, max_steps=8)


def max_steps_before_max_epochs(x):
    """Of two limits the first that is reached counts."""
    return limited(x, max_epochs=3, max_steps=2)


def max_steps_zero(x):
    """No step at all."""
    return limited(x, max_steps=0)


def max_epochs_zero(x):
    """No epoch at all."""
    return limited(x, max_epochs=0)


def max_time(x):
    """A time that is over at once stops after the first batch's check."""
    hooks, module = watching(x), x.Net()
    trainer = x.trainer(hooks, max_epochs=3, max_time=dt.timedelta(0))
    trainer.fit(module, x.loader(3))
    return {"calls": hooks.calls, "counters": x.counters(trainer)}


def max_time_waits_for_min_epochs(x):
    """`min_epochs` holds also if the time is over."""
    hooks = x.hooks("on_train_epoch_start")
    trainer = x.trainer(hooks, max_epochs=4, min_epochs=2, max_time="00:00:00:00")
    trainer.fit(x.Net(), x.loader(2))
    return {"calls": hooks.calls, "counters": x.counters(trainer)}


def limit_train_batches_int(x):
    """A number of batches."""
    return limited(x, limit_train_batches=2)


def limit_train_batches_float(x):
    """A share of the batches."""
    return limited(x, limit_train_batches=0.5)


@differs(
    "`trainer.num_training_batches`, `num_val_batches` with a limit of 0",
    num_training_batches=("inf", 0),
)
def limit_train_batches_zero(x):
    """No batch: fit does nothing."""
    return limited(x, limit_train_batches=0)


def limit_train_batches_one(x):
    """1 is one batch, 1.0 is all of them."""
    return limited(x, limit_train_batches=1) | {"all": limited(x, limit_train_batches=1.0)}


def limit_val_batches(x):
    """A number and a share of the validation batches."""
    number = limited(x, x.loader(4), limit_val_batches=1)
    return {"number": number, "share": limited(x, x.loader(4), limit_val_batches=0.75)}


@differs(
    "`trainer.num_training_batches`, `num_val_batches` with a limit of 0",
    num_val_batches=([], [0]),
)
def limit_val_batches_zero(x):
    """No validation."""
    return limited(x, x.loader(4), limit_val_batches=0)


def limit_test_and_predict_batches(x):
    """The limits of the two other verbs."""
    hooks = x.hooks("on_test_batch_start", "on_predict_batch_start")
    trainer = x.trainer(hooks, limit_test_batches=1, limit_predict_batches=0.5)
    tested = trainer.test(x.Net(), x.loader(4), verbose=False)
    predicted = trainer.predict(x.Net(), x.loader(4))
    return {"calls": hooks.calls, "tested": tested, "predicted": predicted}


def val_check_interval_int(x):
    """A validation after every second batch."""
    return limited(x, x.loader(1), val_check_interval=2, max_epochs=2)


def val_check_interval_float(x):
    """A validation after each half of an epoch."""
    return limited(x, x.loader(1), val_check_interval=0.5)


def val_check_interval_across_epochs(x):
    """With `check_val_every_n_epoch=None` the batches are counted through."""
    return limited(x, x.loader(1), val_check_interval=4, check_val_every_n_epoch=None, max_epochs=2)


def val_check_interval_uneven(x):
    """An interval that does not divide the epoch."""
    return limited(x, x.loader(1), val_check_interval=4, max_epochs=2)


def val_check_interval_too_large(x):
    """An interval larger than the epoch is refused."""
    trainer = x.trainer(val_check_interval=7)
    return {"error": x.error(lambda: trainer.fit(x.Net(), x.loader(6), x.loader(1)))}


def check_val_every_n_epoch(x):
    """A validation in every second epoch."""
    return limited(x, x.loader(1), check_val_every_n_epoch=2, max_epochs=4)


def check_val_and_interval(x):
    """Both: inside of every second epoch."""
    return limited(x, x.loader(1), check_val_every_n_epoch=2, val_check_interval=3, max_epochs=2)


def accumulate_grad_batches(x):
    """Two batches to a step; the odd one at the end is a step of its own."""
    hooks, module = x.hooks("on_before_optimizer_step", "on_train_batch_end"), x.Net()
    trainer = x.trainer(hooks, accumulate_grad_batches=2, max_epochs=2)
    trainer.fit(module, x.loader(5))
    return {
        "calls": hooks.calls,
        "counters": x.counters(trainer),
        "weights": x.weights(module),
        "stepping": trainer.estimated_stepping_batches,
    }


def accumulate_and_max_steps(x):
    """`max_steps` counts optimizer steps."""
    return limited(x, accumulate_grad_batches=4, max_steps=3, max_epochs=None)


def min_epochs(x):
    """A request to stop waits until the epochs are done."""
    hooks = x.hooks("on_train_epoch_start")

    class Net(x.Net):
        def on_train_batch_end(self, *args):
            self.trainer.should_stop = True

    trainer = x.trainer(hooks, min_epochs=2, max_epochs=5)
    trainer.fit(Net(), x.loader(3))
    return {"calls": hooks.calls, "counters": x.counters(trainer)}


def min_steps(x):
    """A request to stop waits until the steps are done."""

    class Net(x.Net):
        def on_train_batch_end(self, *args):
            self.trainer.should_stop = True

    trainer = x.trainer(min_steps=4, max_epochs=5)
    trainer.fit(Net(), x.loader(3))
    return {"counters": x.counters(trainer)}


@differs(
    "`trainer.max_epochs`, `max_steps`",
    epochs=(error("AttributeError"), "none"),
    steps=(error("AttributeError"), "none"),
)
def limits_that_are_set(x):
    """Whether the limits may be set after the Trainer is made."""
    trainer = x.trainer(max_epochs=1)
    return {
        "epochs": x.error(lambda: setattr(trainer, "max_epochs", 3)),
        "steps": x.error(lambda: setattr(trainer, "max_steps", 3)),
    }


@differs(
    "`Trainer(min_epochs=3, max_epochs=2)`, and `min_steps` over `max_steps`",
    epochs=("none", error("ValueError")),
    steps=("none", error("ValueError")),
)
def least_over_most(x):
    """A least length over the greatest one."""
    found = {}
    for unit, least in (("epochs", 3), ("steps", 9)):
        options = {f"min_{unit}": least, f"max_{unit}": 2}
        found[unit] = x.error(
            lambda options=options: x.trainer(**options).fit(x.Net(), x.loader(4))
        )
    return found
