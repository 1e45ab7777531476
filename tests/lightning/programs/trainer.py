"""The Trainer: clipping, sanity check, dry runs, counters, and its verbs."""

from __future__ import annotations

from shared import limited, watching


def gradient_clip_norm(x):
    """Gradients clipped by norm, the default."""
    return limited(x, gradient_clip_val=0.05)


def gradient_clip_value(x):
    """Gradients clipped by value."""
    return limited(x, gradient_clip_val=0.02, gradient_clip_algorithm="value")


def gradient_clip_accumulated(x):
    """Clipped once for each step, after accumulation."""
    return limited(x, gradient_clip_val=0.05, accumulate_grad_batches=3)


def gradient_clip_zero(x):
    """0 clips nothing."""
    return limited(x, gradient_clip_val=0)


def gradient_clip_unknown(x):
    """An unknown algorithm is refused."""
    return {"error": x.error(lambda: x.trainer(gradient_clip_algorithm="odd"))}


def sanity_check(x):
    """Two validation batches before training."""
    hooks = x.hooks(
        "on_sanity_check_start", "on_validation_batch_start", "on_validation_epoch_end",
        "on_sanity_check_end", "on_train_start",
    )  # fmt: skip
    trainer = x.trainer(hooks, num_sanity_val_steps=2)
    trainer.fit(x.Net(), x.loader(2), x.loader(3))
    return {"calls": hooks.calls, "metrics": x.metrics(trainer)}


def sanity_check_all(x):
    """-1 takes all batches."""
    hooks = x.hooks("on_validation_batch_start", "on_sanity_check_end")
    trainer = x.trainer(hooks, num_sanity_val_steps=-1)
    trainer.fit(x.Net(), x.loader(2), x.loader(3))
    return {"calls": hooks.calls}


def sanity_check_is_not_logged(x):
    """What the sanity check logs goes to no logger and stays in no metrics."""
    seen, journal = [], x.journal()

    class Net(x.Net):
        def on_train_start(self):
            seen.append(sorted(self.trainer.callback_metrics))

    x.trainer(logger=journal, num_sanity_val_steps=1).fit(Net(), x.loader(2), x.loader(3))
    return {"seen": seen, "rows": journal.rows}


def overfit_batches_int(x):
    """Two batches of training, also for validation."""
    return limited(x, x.loader(4), overfit_batches=2, max_epochs=2)


def overfit_batches_float(x):
    """A share of the batches."""
    return limited(x, x.loader(4), overfit_batches=0.5)


def overfit_batches_does_not_shuffle(x):
    """A shuffled loader is gone through in order."""
    seen = []

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            seen.append(batch[:, 0])
            return self.cost(batch)

    x.trainer(overfit_batches=2, max_epochs=2).fit(Net(), x.loader(6, shuffle=True))
    return {"seen": seen}


def fast_dev_run(x):
    """One batch of everything, no logs and no files."""
    hooks, journal = watching(x), x.journal()
    trainer = x.trainer(
        hooks, fast_dev_run=True, logger=journal, max_epochs=5, enable_checkpointing=True
    )
    trainer.fit(x.Net(), x.loader(6), x.loader(4))
    return {
        "calls": hooks.calls,
        "counters": x.counters(trainer),
        "rows": journal.rows,
        "files": x.files(),
        "limits": [trainer.max_steps, trainer.num_sanity_val_steps, trainer.limit_val_batches],
    }


def fast_dev_run_number(x):
    """A number of batches of everything."""
    return limited(x, x.loader(4), fast_dev_run=3)


def counters_of_the_epoch(x):
    """The batches of the epoch under way, and what they are after the fit."""
    seen = []

    class See(x.Callback):
        def _look(self, trainer, where):
            batches = trainer.fit_loop.epoch_loop.batch_progress
            seen.append(
                [
                    where, batches.current.ready, batches.current.processed,
                    batches.current.completed, bool(batches.is_last_batch),
                    trainer.fit_loop.epoch_loop.batch_idx, trainer.global_step,
                ]
            )  # fmt: skip

        def on_train_batch_start(self, trainer, *args):
            self._look(trainer, "batch start")

        def on_train_batch_end(self, trainer, *args):
            self._look(trainer, "batch end")

        def on_validation_start(self, trainer, *args):
            self._look(trainer, "validation")

        def on_train_epoch_end(self, trainer, *args):
            self._look(trainer, "epoch end")

    trainer = x.trainer(See(), max_epochs=2)
    trainer.fit(x.Net(), x.loader(2), x.loader(1))
    after = trainer.fit_loop.epoch_loop.batch_progress
    return {"seen": seen, "after": [after.current.completed, bool(after.is_last_batch)]}


def should_stop(x):
    """A request to stop in the middle of an epoch ends after that batch."""
    hooks = x.hooks(
        "on_train_batch_end", "on_validation_start", "on_train_epoch_end", "on_train_end"
    )

    class Net(x.Net):
        def on_train_batch_end(self, outputs, batch, batch_idx):
            self.trainer.should_stop = batch_idx == 1

    trainer = x.trainer(hooks, max_epochs=5)
    trainer.fit(Net(), x.loader(4), x.loader(1))
    return {"calls": hooks.calls, "counters": x.counters(trainer), "stop": trainer.should_stop}


def stages_in_hooks(x):
    """`state.fn`, `state.stage` and the flags of the stages, as hooks see them."""
    seen = []

    class See(x.Callback):
        def _look(self, trainer):
            state = trainer.state
            seen.append(
                [
                    state.fn, state.stage, trainer.training, trainer.validating, trainer.testing,
                    trainer.predicting, trainer.sanity_checking, trainer.evaluating,
                ]
            )  # fmt: skip

        def setup(self, trainer, module, stage):
            self._look(trainer)

        def on_fit_start(self, trainer, module):
            self._look(trainer)

        def on_fit_end(self, trainer, module):
            self._look(trainer)

        def teardown(self, trainer, module, stage):
            self._look(trainer)

        def on_train_start(self, trainer, module):
            self._look(trainer)

        def on_validation_start(self, trainer, module):
            self._look(trainer)

        def on_test_start(self, trainer, module):
            self._look(trainer)

        def on_predict_start(self, trainer, module):
            self._look(trainer)

    trainer = x.trainer(See(), num_sanity_val_steps=1)
    trainer.fit(x.Net(), x.loader(1), x.loader(1))
    trainer.validate(x.Net(), x.loader(1), verbose=False)
    trainer.test(x.Net(), x.loader(1), verbose=False)
    trainer.predict(x.Net(), x.loader(1))
    return {"seen": seen, "status": trainer.state.status}


def fit_returns_none(x):
    """`fit` returns None."""
    return {"returned": x.trainer().fit(x.Net(), x.loader(1))}


def verbs_return(x):
    """`validate` and `test` return the metrics of each loader, as dicts of floats."""
    trainer, module = x.trainer(), x.Net()
    loaders = [x.loader(2), x.loader(1, shift=1.0)]
    return {
        "validate": trainer.validate(module, x.loader(2), verbose=False),
        "validate several": trainer.validate(module, loaders, verbose=False),
        "test": trainer.test(module, x.loader(2), verbose=False),
        "test several": trainer.test(module, loaders, verbose=False),
    }


def fit_twice_goes_on(x):
    """A second fit of the same module with more epochs goes on counting."""
    module, trainer = x.Net(), x.trainer(max_epochs=1)
    trainer.fit(module, x.loader(3))
    first = x.counters(trainer)
    trainer.fit_loop.max_epochs = 2
    hooks = x.hooks("on_train_epoch_start")
    trainer.callbacks.append(hooks)
    trainer.fit(module, x.loader(3))
    return {
        "first": first,
        "second": x.counters(trainer),
        "weights": x.weights(module),
        "calls": hooks.calls,
    }


def fit_twice_that_is_done(x):
    """A second fit of what has reached its end trains nothing."""
    module, trainer = x.Net(), x.trainer(max_epochs=1)
    trainer.fit(module, x.loader(3))
    trainer.fit(module, x.loader(3))
    return {"counters": x.counters(trainer), "weights": x.weights(module)}
