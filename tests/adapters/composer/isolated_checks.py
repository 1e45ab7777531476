"""The objects that Composer's callbacks receive in a Trainer."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from pathlib import Path

import pytest
import torch

import trainer_hooks
from trainer_hooks.loggers import InMemoryLogger

pytest.importorskip("composer", reason="needs tests/adapters/composer/requirements.txt")

import composer
from composer import callbacks
from composer.algorithms import LabelSmoothing
from composer.loggers import FileLogger, ProgressBarLogger
from composer.models import ComposerModel
from running import Hearing, Ours, Program, Theirs, loader, raised, train

pytestmark = pytest.mark.filterwarnings("ignore")

IMPORTS = ("tests/adapters/composer/stand_ins", "composer")


class OwnStep(Ours):
    """A module with a training_step of its own."""

    def training_step(self, batch, batch_idx):
        return self.loss(self(batch), batch)


def seen(look, at="batch_end", module=None, **options):
    """Return what a function sees at each firing of an event in a fit."""
    hearing = Hearing(look, at)
    train([hearing], module, **options)
    return hearing.found


def test_an_attribute_that_is_lacking_is_named():
    for look, owner in (
        (lambda state, logger: state.weather, "State"),
        (lambda state, logger: logger.weather, "Logger"),
    ):
        message = str(seen(lambda *given, look=look: raised(lambda: look(*given)))[0])
        assert f"'weather' of Composer's {owner}" in message, message
        assert "on_train_batch_end of callback Hearing" in message, message
        assert "composer:Hearing" in message, message


def test_what_would_be_ignored_is_refused():
    for name in ("batch", "loss"):
        found = seen(lambda state, _, name=name: raised(lambda: setattr(state, name, 1)))
        assert f"state.{name} was set at 'batch_end'" in str(found[0])
    found = seen(lambda state, _: raised(lambda: setattr(state, "outputs", 1)), at="before_loss")
    assert "state.outputs was set at 'before_loss'" in str(found[0])


def test_what_a_fit_would_not_follow_is_refused():
    for change, message in (
        (lambda state: setattr(state, "device_train_microbatch_size", 2), "the size that it began"),
        (lambda state: state.set_dataloader(loader(), "train"), "the loaders that it began with"),
    ):
        found = seen(lambda state, _, change=change: raised(lambda: change(state)))
        assert f"at 'batch_end': a fit keeps {message}" in str(found[0])


def test_an_end_in_samples_is_obeyed():
    def lengthen(state, _):
        state.max_duration = "20sp"
        return str(state.max_duration)

    assert seen(lengthen) == ["20sp"] * 5


def test_a_window_is_a_batch():
    hearing = Hearing(lambda state, _: [state.timestamp.batch.value, state.timestamp.sample.value],
                      "batch_end")  # fmt: skip
    train([hearing], accumulate_grad_batches=3)
    count = Counter(hearing.events)
    assert hearing.found == [[1, 12], [2, 16]]
    assert [count[e] for e in ("batch_start", "batch_end", "batch_checkpoint")] == [2, 2, 2]
    assert [count[e] for e in ("after_dataloader", "before_forward", "after_backward")] == [4] * 3
    # one more for the end of the loader, as with windows of one batch
    assert count["before_dataloader"] == 5
    assert seen(lambda s, _: str(s.dataloader_len), accumulate_grad_batches=3) == ["2ba", "2ba"]


def test_a_step_of_its_own_has_the_same_events():
    plain, own = Hearing(), Hearing(lambda state, _: float(state.loss) > 0, "after_loss")
    alive = train([plain]), train([own], OwnStep())  # a collected trainer closes its callbacks
    assert all(alive)
    assert own.events == plain.events
    assert own.found == [True] * 4
    calls = []

    class Notes(OwnStep):
        def training_step(self, batch, batch_idx):
            calls.append("step")
            self.full = super().training_step(batch, batch_idx)
            return self.full

    def look(state, _):
        calls.append("event")
        return [state.outputs.numel(), state.loss.numel()]

    for event, order, sizes in (
        ("before_forward", ["event", "step"], [0, 0]),
        ("after_forward", ["step", "event"], [0, 1]),
        ("before_loss", ["step", "event"], [0, 1]),
    ):
        calls.clear()
        found = seen(look, event, Notes())
        assert (calls[:2], found[0]) == (order, sizes), (event, calls[:2], found)
    module = Notes()
    shares = seen(lambda state, _: float(state.loss / module.full), "after_loss", module,
                  accumulate_grad_batches=2)  # fmt: skip
    assert shares == [0.5] * 4


def test_several_callbacks_have_the_same_events():
    first, second = Hearing(), Hearing()
    alive = train([first, second])
    assert alive
    assert first.events == second.events
    assert Counter(second.events)["before_dataloader"] == 5  # once more than there are batches


def test_the_loader_of_a_training_is_shown_again_after_an_evaluation():
    label = Hearing(lambda state, _: state.dataloader_label, "eval_after_all")
    trainer = train([label], fits=False)
    trainer.fit(Ours(), loader(), loader())
    assert label.found == ["train"]
    alone = Hearing(lambda state, _: state.dataloader_label, "eval_standalone_end")
    train([alone], fits=False).validate(Ours(), loader(), verbose=False)
    assert alone.found == [None]


def test_a_nan_is_found_in_a_step_of_its_own():
    class Nan(OwnStep):
        def training_step(self, batch, batch_idx):
            return super().training_step(batch, batch_idx) * float("nan")

    error = raised(lambda: train([callbacks.NaNMonitor()], Nan()))
    assert "Train loss contains a NaN" in str(error)
    assert any("callback NaNMonitor" in note for note in error.__notes__)


def test_only_what_is_overridden_is_wired():
    class Ending(composer.Callback):
        def epoch_end(self, state, logger):
            self.seen = [state.timestamp.batch.value, state.timestamp.epoch.value]

    ending = Ending()
    trainer = train([ending])
    adapter = next(one for one in trainer.callbacks if getattr(one, "guest", None) is ending)
    wired = [hook for hook in trainer_hooks.hooks.spec.HOOKS if adapter.translated(hook)]
    assert [hook for hook in wired if "batch" in hook] == ["on_train_batches_end"]
    assert ending.seen == [4, 1]


def test_what_is_logged_goes_to_the_loggers():
    class Logs(composer.Callback):
        def init(self, state, logger):
            logger.log_hyperparameters({"a": 1})

        def batch_end(self, state, logger):
            logger.log_metrics({"seen": float(state.timestamp.sample)})
            logger.log_table(["x"], [[1]], name="t")

    native = InMemoryLogger()
    train([Logs()], logger=native)
    assert native.history("seen") == [(1, 4.0), (2, 8.0), (3, 12.0), (4, 16.0)]
    assert (native.hparams["a"], len(native.tables["t"])) == (1, 4)


def test_defaults_step_back():
    saver, bar = callbacks.CheckpointSaver("saved", overwrite=True), ProgressBarLogger()
    stopper = callbacks.EarlyStopper("MulticlassAccuracy", "eval")
    trainer = train([saver, bar, stopper], enable_checkpointing=None, enable_progress_bar=None)
    assert [one.guest for one in trainer.checkpoint_callbacks] == [saver]
    assert [one.guest for one in trainer.early_stopping_callbacks] == [stopper]
    assert trainer.progress_bar_callback.guest is bar
    assert trainer.callbacks[0].state_key.startswith("composer:")


def test_a_saver_s_file_goes_on_here_and_gives_its_weights_there():
    saver = callbacks.CheckpointSaver("saved", overwrite=True, save_interval="2ba")
    module = Ours()
    train([saver], module, enable_checkpointing=None)
    file = "saved/ep0-ba2-rank0.pt"
    assert len(saver.saved_checkpoints) == 2, saver.saved_checkpoints
    hearing, again = Hearing(), Ours()
    train([hearing], again, ckpt_path=file)
    assert Counter(hearing.events)["batch_end"] == 2
    assert torch.equal(again.layers[1].weight, module.layers[1].weight)
    weights = Hearing(lambda state, _: state.model.layers[1].weight.clone(), "fit_start")
    Program(lambda: weights).train_there(
        "1ba", load_path=saver.saved_checkpoints[-1], load_weights_only=True
    )
    assert torch.equal(weights.found[0], module.layers[1].weight)


def test_the_last_file_of_a_saver_is_found():
    train([callbacks.CheckpointSaver("saved", overwrite=True)], enable_checkpointing=None)
    saver = callbacks.CheckpointSaver("saved", overwrite=True)
    trainer = train([saver], enable_checkpointing=None, ckpt_path="last", max_epochs=2)
    assert trainer.global_step == 8
    assert list(saver.all_saved_checkpoints_to_timestamp) == [
        "saved/ep1-ba4-rank0.pt", "saved/ep2-ba8-rank0.pt",
    ]  # fmt: skip


def test_a_whole_training_of_composer_s_is_refused():
    there, _, _ = Program(callbacks.LRMonitor).train_there("1ba")
    there.save_checkpoint("theirs.pt")
    error = raised(lambda: train([callbacks.LoadCheckpoint("theirs.pt")]))
    assert "load_weights_only=True" in str(error), error


def test_an_algorithm_is_refused():
    error = raised(lambda: trainer_hooks.Trainer(callbacks=[LabelSmoothing()]))
    assert "LabelSmoothing: it is an algorithm of Composer" in str(error), error


def test_the_model_passes_for_one_of_composer_s():
    module = Ours()

    def look(state, _):
        model = state.model
        copied, pickled = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
        return [
            isinstance(model, ComposerModel), isinstance(model, Ours), model == module,
            type(copied) is Ours, type(pickled) is Ours, len(list(model.parameters())),
        ]  # fmt: skip

    assert seen(look, "fit_start", module) == [[True, True, True, True, True, 2]]


def test_state_is_saved_under_its_key():
    class Counts(composer.Callback):
        batches = 0

        def batch_end(self, state, logger):
            self.batches += 1

        def state_dict(self):
            return {"batches": self.batches}

        def load_state_dict(self, state):
            self.batches = state["batches"]

    trainer = train([Counts()])
    trainer.save_checkpoint("end.ckpt")
    kept = torch.load("end.ckpt", weights_only=True)["callbacks"]
    assert kept[f"composer:{Counts.__qualname__}"] == {"batches": 4}
    again = Counts()
    train([again], ckpt_path="end.ckpt", max_epochs=2)
    assert again.batches == 8


def test_it_is_closed_once_also_after_an_error():
    class Failing(Hearing):
        def run_event(self, event, state, logger):
            super().run_event(event, state, logger)
            if event.value == "epoch_end":
                raise RuntimeError("no")

    failing, other = Failing(), Hearing()
    trainer = train([failing, other], fits=False)
    assert "no" in str(raised(lambda: trainer.fit(Ours(), loader())))
    assert "close" not in failing.events
    trainer.close()
    trainer.close()
    assert failing.events[-2:] == other.events[-2:] == ["close", "post_close"]


def test_a_trainer_that_is_gone_has_closed_its_callbacks():
    hearing = Hearing()
    train([hearing])
    import gc

    gc.collect()
    assert hearing.events[-2:] == ["close", "post_close"], hearing.events[-3:]


def test_evaluations_alone_and_predictions():
    hearing = Hearing(lambda state, _: [state.dataloader_label, state.eval_timestamp.batch.value],
                      "eval_end")  # fmt: skip

    class Several(Ours):
        def validation_step(self, batch, batch_idx, dataloader_idx=0):
            return super().validation_step(batch, batch_idx)

    trainer, module = train([hearing], fits=False), Several()
    trainer.validate(module, [loader(), loader()], verbose=False)
    assert hearing.found == [["eval_0", 4], ["eval_1", 4]]
    assert hearing.events[:5] == [
        "init", "before_load", "after_load", "eval_standalone_start", "eval_start",
    ]  # fmt: skip
    assert hearing.events[-1] == "eval_standalone_end"
    hearing.events.clear()
    trainer.predict(module, loader())
    assert Counter(hearing.events)["predict_batch_end"] == 4
    assert Counter(hearing.events)["predict_after_forward"] == 4


def test_iterations_are_cycles_of_epochs():
    hearing = Hearing(lambda state, _: state.timestamp.epoch_in_iteration.value, "iteration_end")
    train([hearing], max_epochs=4, iteration_length=2)
    assert hearing.found == [0, 0]
    assert Counter(hearing.events)["iteration_start"] == 2


def test_the_sanity_check_is_silent():
    hearing = Hearing()
    trainer = train([hearing], fits=False, num_sanity_val_steps=2)
    trainer.fit(Ours(), loader(), loader())
    assert Counter(hearing.events)["eval_batch_start"] == 4


def test_destinations_are_adapted():
    file = FileLogger("log.txt", flush_interval=1)
    train([callbacks.LRMonitor(), file]).close()
    assert "lr-SGD/group0" in Path("log.txt").read_text()


class Several(Ours):
    """A module that evaluates several loaders."""

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        return super().validation_step(batch, batch_idx)


def test_loaders_in_a_dict_and_batches_in_a_list_are_evaluated():
    for make, ends in (
        (lambda: {"a": loader(), "b": loader()}, [["eval_0", 4], ["eval_1", 4]]),
        (lambda: list(loader()), [["eval", 4]]),
    ):
        hearing = Hearing(lambda s, _: [s.dataloader_label, s.eval_timestamp.batch.value],
                          "eval_end")  # fmt: skip
        trainer = train([hearing], fits=False)
        trainer.fit(Several(), loader(), make())
        assert hearing.found == ends


def test_each_loader_ends_when_it_is_over():
    def look(state, _):
        metric = state.eval_metrics[state.dataloader_label]["MulticlassAccuracy"].compute()
        return [state.dataloader_label, state.eval_timestamp.batch.value, round(float(metric), 4)]

    def evaluate(make_trainer):
        first, second = Hearing(look, "eval_end"), Hearing(look, "eval_end")
        trainer = make_trainer([first, second])
        assert trainer is not None
        return [[one.found, [e for e in one.events if "eval" in e]] for one in (first, second)]

    def here(hearings):
        trainer = train(hearings, fits=False)
        torch.manual_seed(1)
        trainer.fit(Several(), loader(), [loader(), loader()])
        return trainer

    def there(hearings):
        torch.manual_seed(1)
        model = Theirs()
        evaluators = [
            composer.Evaluator(label=f"eval_{i}", dataloader=loader(), eval_interval="1ep")
            for i in range(2)
        ]
        trainer = composer.Trainer(
            model=model, train_dataloader=loader(), eval_dataloader=evaluators, callbacks=hearings,
            optimizers=torch.optim.SGD(model.parameters(), 0.1), max_duration="1ep", device="cpu",
            progress_bar=False, auto_log_hparams=False,
        )  # fmt: skip
        trainer.fit()
        return trainer

    theirs, ours = evaluate(there), evaluate(here)
    assert ours == theirs, (ours, theirs)
    assert [one[0] for one in ours[0][0]] == ["eval_0", "eval_1"]


def test_a_stop_inside_an_epoch_evaluates_as_at_home():
    class Stops(Hearing):
        at = 6

        def batch_end(self, state, logger):
            if state.timestamp.batch == self.at:
                state.stop_training()

        def run_event(self, event, state, logger):
            super().run_event(event, state, logger)
            if event.value == "batch_end":
                self.batch_end(state, logger)

    def look(state, _):
        return [state.timestamp.epoch.value, state.timestamp.batch.value]

    for stop in (6, 8):
        there, here = Stops(look, "eval_end"), Stops(look, "eval_end")
        there.at = here.at = stop
        Program(lambda there=there: there).train_there("3ep")
        train([here], max_epochs=3)
        assert here.found == there.found, (stop, here.found, there.found)
        ends, ends_there = (Counter(one.events)["epoch_end"] for one in (here, there))
        assert ends == ends_there == stop // 4
        assert Counter(here.events)["batch_end"] == stop


def test_an_end_by_steps_inside_an_epoch_evaluates_before_the_end_of_the_fit():
    def look(state, _):
        return state.timestamp.batch.value

    there, here = Hearing(look, "eval_end"), Hearing(look, "eval_end")
    Program(lambda: there).train_there("6ba")
    train([here], max_epochs=None, max_steps=6)
    assert here.found == there.found == [4, 6]
    orders = [
        [event for event in one.events if event in ("eval_end", "fit_end")] for one in (there, here)
    ]
    assert orders == [["eval_end", "fit_end", "eval_end"], ["eval_end", "eval_end", "fit_end"]]


def test_optimizers_are_made_by_the_fit_that_follows_the_init():
    def look(state, _):
        return [len(state.optimizers), state.train_dataloader is None]

    for event, expected in (
        ("init", [[1, True], [0, True]]), ("fit_start", [[1, False], [1, False]]),
    ):  # fmt: skip
        there, here = Hearing(look, event), Hearing(look, event)
        Program(lambda there=there: there).train_there("1ep")
        train([here])
        assert [there.found, here.found] == [[state] for state in expected], event


def test_the_batch_of_a_window_is_its_first_and_then_its_last():
    batches = [batch[0] for batch in loader()]
    for event, indices in (
        ("batch_start", (0, 2)), ("after_train_batch", (1, 3)), ("batch_end", (1, 3)),
    ):  # fmt: skip
        found = seen(lambda state, _: state.batch[0], event, accumulate_grad_batches=2)
        pairs = zip(found, indices, strict=True)
        assert all(torch.equal(batch, batches[index]) for batch, index in pairs), event


def test_an_evaluation_by_a_step_of_its_own_shows_the_return_value():
    class Returns(Ours):
        def validation_step(self, batch, batch_idx):
            super().validation_step(batch, batch_idx)
            return torch.tensor(7.0)

    found = seen(lambda state, _: float(state.outputs), "eval_after_forward", Returns())
    assert found == [7.0] * 4
