"""Whatever ends a run in order, the hooks that were opened are closed, once each."""

from __future__ import annotations

import pytest
import torch

from trainer_hooks import StopTraining
from trainer_hooks.callbacks import EarlyStopping
from trainer_hooks.errors import DataError, MetricError, TrainerHooksWarning
from trainer_hooks.hooks.spec import HOOKS


def raise_once(error=None):
    """Return a function that stops the first time, and a list of whether it did."""
    raised = []

    def react(*args):
        if not raised:
            raised.append(True)
            raise error or StopTraining("enough")

    return react, raised


IN_FIT = [
    hook
    for hook in HOOKS
    if "_init_" not in hook
    and "load_checkpoint" not in hook
    and hook != "on_before_restore"
    and not hook.startswith(("on_test", "on_predict", "on_evaluation"))
    and hook not in {"on_exception", "on_keyboard_interrupt", "teardown", "on_close"}
    and hook not in {"on_post_close", "on_stop_training_error"}
    and hook not in {"on_save_checkpoint", "on_checkpoint_saved"}
]


@pytest.mark.parametrize("hook", IN_FIT)
def test_stop_training_raised_in_any_hook(hook, bare, defaulted, recorder, batches) -> None:
    """fit returns, open hooks are closed, on_stop_training_error is called once for each."""
    first, seen = recorder(name="first"), recorder(name="second")
    react, raised = raise_once()
    first.on(hook, react)
    trainer = bare(
        first,
        seen,
        EarlyStopping("val_loss"),
        max_epochs=3,
        num_sanity_val_steps=1,
        val_check_interval=2,
        iteration_length=1,
    )
    trainer.fit(defaulted(), batches(3), batches(2))
    assert raised
    first.assert_paired()
    assert first.names == seen.names
    assert seen.count("on_stop_training_error") == 1
    assert seen.count("on_fit_end") == 1
    assert seen.count("on_exception") == 0
    assert trainer.current_epoch == seen.count("on_train_epoch_end")
    assert trainer.current_epoch <= 1 or hook in {"on_train_end", "on_fit_end"}
    assert not trainer.interrupted


@pytest.mark.parametrize(
    "where",
    [
        "prepare_data",
        "configure_optimizers",
        "train_dataloader",
        "forward",
        "loss",
        "training_step",
        "validation_step",
        "lr_scheduler_step",
        "on_before_batch_transfer",
    ],
)
def test_stop_training_raised_in_the_module(where, bare, defaulted, recorder, batches) -> None:
    """A step or another method of the module may raise it as well."""
    react, raised = raise_once()

    class Stops(defaulted):
        def train_dataloader(self):
            return batches(3)

        def val_dataloader(self):
            return batches(2)

        def configure_optimizers(self):
            optimizer = super().configure_optimizers()
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
            return [optimizer], [{"scheduler": scheduler, "interval": "step"}]

        if where.endswith("_step") and where != "lr_scheduler_step":

            def training_step(self, batch, batch_idx):
                return self(batch).mean()

            def validation_step(self, batch, batch_idx):
                self.log("val_loss", self(batch).mean())

    def method(self, *args):
        react()
        return getattr(super(kind, self), where)(*args)

    kind = type("Stopping", (Stops,), {where: method})
    seen = recorder()
    trainer = bare(seen, max_epochs=3, val_check_interval=2)
    trainer.fit(kind())
    assert raised
    if seen.count("on_fit_start"):
        seen.assert_paired()
    assert seen.count("on_stop_training_error") == 1
    assert seen.count("teardown") == 1
    assert trainer.current_epoch <= 1


def test_stop_training_raised_by_a_loader(bare, tiny, recorder, batches) -> None:
    """A loader may raise it; the batches before are trained, and the epoch ends."""

    class Ends:
        def __len__(self):
            return 5

        def __iter__(self):
            yield from batches(2)
            raise StopTraining("no more")

    seen = recorder()
    trainer = bare(seen, max_epochs=3)
    trainer.fit(tiny(), Ends())
    seen.assert_paired()
    assert seen.count("on_train_batch_end") == 2
    assert trainer.current_epoch == 1


def test_a_batch_cut_off_is_no_step(bare, tiny, recorder, batches) -> None:
    """The batch in which StopTraining is raised changes no weight and gives no outputs."""
    react, _ = raise_once()
    seen = recorder().on("on_after_backward", react)
    module = tiny()
    before = module.layer.weight.detach().clone()
    trainer = bare(seen)
    trainer.fit(module, batches(2))
    assert torch.equal(module.layer.weight, before)
    assert trainer.global_step == 0
    assert [args[2] for name, args in seen.calls if name == "on_train_batch_end"] == [{}]


def test_a_stopped_run_is_validated(bare, tiny, recorder, batches) -> None:
    """After a stop inside an epoch its validation still runs, so that a monitor is there."""
    react, _ = raise_once()
    stopping = EarlyStopping("val_loss")
    seen = recorder().on("on_train_batch_start", react)
    trainer = bare(seen, stopping)
    trainer.fit(tiny(), batches(2), batches(2))
    assert seen.count("on_validation_batch_end") == 2
    assert stopping.best_score.item() == pytest.approx(trainer.callback_metrics["val_loss"].item())


@pytest.mark.parametrize("fn", ["validate", "test", "predict"])
@pytest.mark.parametrize("where", ["setup", "start", "epoch_start", "batch_start", "batch_end"])
def test_stop_training_in_an_evaluation(fn, where, bare, tiny, recorder, loader) -> None:
    """It ends validate, test and predict as well, with their results and end hooks."""
    phase = {"validate": "validation"}.get(fn, fn)
    react, _ = raise_once()
    hook = where if where == "setup" else f"on_{phase}_{where}"
    seen = recorder().on(hook, react)
    options = {} if fn == "predict" else {"verbose": False}
    results = getattr(bare(seen), fn)(tiny(), [loader(2), loader(2)], **options)
    seen.assert_paired()
    assert seen.count(f"on_{phase}_end") == 1
    assert seen.count(f"on_{phase}_batch_end") == (1 if "batch" in where else 0)
    assert len(results) == 2


@pytest.mark.parametrize("at", [1, 2, 3])
def test_stop_by_asking(at, bare, tiny, recorder, batches) -> None:
    """trainer.stop() lets the batch in work end, and closes the epoch."""
    seen = recorder()

    def stop(trainer, *args):
        if trainer.progress.batches_completed == at:
            trainer.stop("enough")

    trainer = bare(seen.on("on_train_batch_end", stop), max_epochs=3)
    trainer.fit(tiny(), batches(4), batches(1))
    seen.assert_paired()
    assert seen.count("on_train_batch_end") == at
    assert seen.count("on_validation_end") == 1
    assert trainer.stop_reason == "enough"
    assert seen.count("on_stop_training_error") == 0


def test_stop_asked_for_before_the_first_batch(bare, tiny, recorder, batches) -> None:
    """A stop in setup is kept: no batch is trained."""
    seen = recorder().on("setup", lambda trainer, *args: trainer.stop("no"))
    trainer = bare(seen, num_sanity_val_steps=2)
    trainer.fit(tiny(), batches(4), batches(1))
    seen.assert_paired()
    assert seen.count("on_train_batch_start") == 0
    assert seen.count("on_validation_start") == 0


def test_a_window_cut_off_is_forgotten(bare, tiny, recorder, batches) -> None:
    """A stop inside a window steps with none of it; a later fit does not either."""
    seen = recorder().on("on_train_batch_end", lambda trainer, *args: trainer.stop())
    module = tiny()
    before = module.layer.weight.detach().clone()
    trainer = bare(seen, accumulate_grad_batches=2)
    trainer.fit(module, batches(4))
    assert trainer.progress.batches_in_window == 0
    assert torch.equal(module.layer.weight, before)


class Short:
    """A loader that ends before its length says."""

    def __init__(self, batches, length) -> None:
        self.batches = batches
        self.length = length

    def __len__(self):
        return self.length

    def __iter__(self):
        return iter(self.batches)


def test_a_loader_shorter_than_its_length(bare, tiny, recorder, batches) -> None:
    """The epoch ends early, steps with the open window, validates, and warns."""
    seen = recorder()
    trainer = bare(seen, max_epochs=2, accumulate_grad_batches=2)
    with pytest.warns(TrainerHooksWarning, match=r"ended after 3 batches, but its length is 5"):
        trainer.fit(tiny(), Short(batches(3), 5), batches(1))
    seen.assert_paired()
    assert seen.count("on_train_batch_end") == 6
    assert trainer.global_step == 4
    assert seen.count("on_validation_end") == 2
    none = [args for name, args in seen.calls if name == "on_after_dataloader" and args[2] is None]
    assert len(none) == 2


def test_an_evaluation_loader_shorter_than_its_length(bare, tiny, batches) -> None:
    """Metrics of a part of the data are not passed over in silence."""
    with pytest.warns(TrainerHooksWarning, match=r"evaluation loader .* ended after 1 batches"):
        bare().validate(tiny(), Short(batches(1), 2), verbose=False)


class RaisingSet(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        if index == 2:
            raise StopIteration("in user code")
        return torch.ones(2)


def test_stop_iteration_in_a_data_set(bare, tiny) -> None:
    """A StopIteration out of __getitem__ ends a DataLoader; the short epoch is reported."""
    loader = torch.utils.data.DataLoader(RaisingSet(), batch_size=1)
    with pytest.warns(TrainerHooksWarning, match=r"a StopIteration that its data set raises"):
        bare().fit(tiny(), loader)


class Sequential:
    """A loader without __iter__, which Python iterates by index."""

    def __init__(self, batches) -> None:
        self.batches = batches

    def __len__(self):
        return 4

    def __getitem__(self, index):
        if index == 2:
            raise StopIteration
        return self.batches[index]


def test_stop_iteration_in_a_sequence(bare, tiny, batches) -> None:
    """Likewise for a loader that has __getitem__ alone."""
    with pytest.warns(TrainerHooksWarning, match=r"ended after 2 batches, but its length is 4"):
        bare().fit(tiny(), Sequential(batches(4)))


@pytest.mark.parametrize(
    "where",
    ["training_step", "validation_step", "on_before_batch_transfer", "on_train_batch_end"],
)
@pytest.mark.parametrize("precision", ["32-true", "64-true"])
def test_stop_iteration_in_user_code(where, precision, bare, tiny, recorder, batches) -> None:
    """A StopIteration that leaks out of a step or a hook is an error, and not a short epoch."""

    def fail(self, *args):
        raise StopIteration("leaked")

    seen = recorder()
    module = type("Leaks", (tiny,), {where: fail})()
    with pytest.raises(StopIteration, match="leaked"):
        bare(seen, precision=precision).fit(module, batches(2), batches(1))
    assert seen.count("on_exception") == 1
    assert seen.count("on_train_epoch_end") == 0


def test_stop_iteration_in_a_prediction(bare, tiny, recorder, batches) -> None:
    """The same in predict, which returns the outputs so far."""
    tiny_that_leaks = type("Leaks", (tiny,), {"predict_step": lambda self, *a: next(iter(()))})
    with pytest.raises(StopIteration):
        bare().predict(tiny_that_leaks(), batches(2))


def test_a_generator_gives_one_epoch(bare, tiny, batches) -> None:
    """A loader that can be run through once is an error in the second epoch, not a busy loop."""
    trainer = bare(max_epochs=-1, max_steps=10)
    with pytest.raises(DataError, match="in this epoch, gave no batch"):
        trainer.fit(tiny(), (batch for batch in batches(3)))
    assert trainer.global_step == 3


@pytest.mark.filterwarnings("ignore:.*training_step returned None")
def test_skipped_batches_end(bare, tiny, recorder, batches) -> None:
    """A batch that is skipped, by its step or by a callback, ends as every other."""

    class Skips(tiny):
        def training_step(self, batch, batch_idx):
            return None if batch_idx == 0 else super().training_step(batch, batch_idx)

    seen = recorder()

    def skip(trainer, module, batch, batch_idx):
        if batch_idx == 1:
            trainer.skip_batch()

    trainer = bare(seen.on("on_train_batch_start", skip))
    trainer.fit(Skips(), batches(3))
    seen.assert_paired()
    outputs = [sorted(args[2]) for name, args in seen.calls if name == "on_train_batch_end"]
    assert outputs == [[], [], ["loss"]]
    assert trainer.global_step == 1
    assert trainer.progress.batches_completed == 3


@pytest.mark.parametrize(
    ("hook", "num_skipped"),
    [
        ("on_before_dataloader", 1),
        ("on_after_dataloader", 1),
        ("on_before_zero_grad", 1),
        ("on_before_backward", 1),
        ("on_fit_start", 0),
        ("on_train_epoch_start", 0),
        ("on_after_backward", 0),
        ("on_train_batch_end", 0),
        ("on_batch_checkpoint", 0),
        ("on_validation_end", 0),
        ("on_train_epoch_end", 0),
    ],
)
def test_a_skip_is_about_the_batch_in_work(
    hook, num_skipped, bare, tiny, recorder, batches
) -> None:
    """Asked for after the backward, or outside of a batch, it leaves out no other batch."""
    asked = []

    def skip(trainer, *args):
        if not asked:
            asked.append(hook)
            trainer.skip_batch()

    seen = recorder().on(hook, skip)
    trainer = bare(seen, max_epochs=2, val_check_interval=2)
    trainer.fit(tiny(), batches(4), batches(1))
    assert asked == [hook]
    assert trainer.global_step == 8 - num_skipped


@pytest.mark.filterwarnings("ignore:.*training_step returned None")
@pytest.mark.parametrize("first", ["step", "callback"])
def test_a_skipped_batch_leaves_no_stale_gradients(first, bare, tiny, recorder, batches) -> None:
    """A window that begins with a skipped batch steps with the gradients of the others alone."""

    class Skips(tiny):
        def training_step(self, batch, batch_idx):
            if first == "step" and batch_idx == 2:
                return None
            return super().training_step(batch, batch_idx)

    def skip(trainer, module, batch, batch_idx):
        if first == "callback" and batch_idx == 2:
            trainer.skip_batch()

    data = batches(4)
    module, expected = Skips(), tiny()
    seen = recorder().on("on_train_batch_start", skip)
    bare(seen, accumulate_grad_batches=2).fit(module, data)
    optimizer = expected.configure_optimizers()
    for window in (data[:2], data[3:]):
        optimizer.zero_grad()
        for batch in window:
            (expected.layer(batch).pow(2).mean() / 2).backward()
        optimizer.step()
    assert torch.equal(module.layer.weight, expected.layer.weight)


@pytest.mark.filterwarnings("ignore:.*training_step returned None")
def test_a_skipped_window_does_not_step_schedulers(bare, tiny, batches) -> None:
    """A scheduler that counts steps does not count a window without one."""

    class Scheduled(tiny):
        def training_step(self, batch, batch_idx):
            return None if batch_idx == 0 else super().training_step(batch, batch_idx)

        def configure_optimizers(self):
            optimizer = super().configure_optimizers()
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
            return [optimizer], [{"scheduler": scheduler, "interval": "step"}]

    trainer = bare()
    trainer.fit(Scheduled(), batches(3))
    assert trainer.optimizers[0].param_groups[0]["lr"] == 0.1 * 0.25


def test_early_stopping_closes_everything(bare, tiny, recorder, batches) -> None:
    """Early stopping ends the run after an epoch, with all its end hooks."""
    seen = recorder()
    trainer = bare(seen, EarlyStopping("loss_never", strict=False), max_epochs=2)
    with pytest.warns(TrainerHooksWarning, match="loss_never"):
        trainer.fit(tiny(), batches(2), batches(1))
    worse = EarlyStopping("val_loss", patience=1, min_delta=100.0)
    trainer = bare(seen := recorder(), worse, max_epochs=9)
    trainer.fit(tiny(), batches(2), batches(1))
    seen.assert_paired()
    assert trainer.current_epoch == 2
    assert trainer.should_stop


def test_max_steps_inside_an_epoch_is_validated(bare, tiny, recorder, batches) -> None:
    """A run that max_steps ends inside an epoch closes it, and validates the final weights."""
    seen = recorder()
    stopping = EarlyStopping("val_loss")
    trainer = bare(seen, stopping, max_epochs=-1, max_steps=3)
    trainer.fit(tiny(), batches(5), batches(1))
    seen.assert_paired()
    assert trainer.global_step == 3
    assert seen.count("on_validation_end") == 1


def test_a_missing_monitor_is_still_an_error(bare, tiny, batches) -> None:
    """A stop does not hide that a monitored metric is never logged."""
    trainer = bare(EarlyStopping("nothing"), max_steps=1)
    with pytest.raises(MetricError, match="nothing"):
        trainer.fit(tiny(), batches(5), batches(1))
