"""The order and the arguments of hooks, written by hand from the catalogue."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.optim import Optimizer

from trainer_hooks import Callback, Module, StopTraining, Trainer
from trainer_hooks.errors import ModuleError
from trainer_hooks.hooks.band import Band
from trainer_hooks.hooks.spec import HOOKS

INIT = ["on_init_start", "on_init_end"]
PREPARED = [
    "setup(fit)",
    "on_configure_model",
    "on_after_configure_model",
    "on_before_load(None)",
    "on_after_load(None)",
    "on_fit_start",
]
SANITY = [
    "on_sanity_check_start",
    "on_validation_start",
    "on_epoch_start",
    "on_validation_epoch_start",
    "on_validation_batch_start(batch, 0)",
    "on_validation_batch_end(None, batch, 0)",
    "on_validation_epoch_end",
    "on_epoch_end",
    "on_validation_end",
    "on_sanity_check_end",
]
VALIDATION = [
    "state_dict",  # put aside: a checkpoint saved in the validation holds it as it is now
    "on_validation_run_start",
    "on_validation_start",
    "on_epoch_start",
    "on_validation_epoch_start",
    "on_validation_batch_start(batch, 0)",
    "on_validation_batch_end(None, batch, 0)",
    "on_validation_batch_start(batch, 1)",
    "on_validation_batch_end(None, batch, 1)",
    "on_validation_epoch_end",
    "on_epoch_end",
    "on_log({epoch val_loss}, 0)",
    "on_validation_end",
    "on_validation_run_end",
]
EPOCH_START = ["on_epoch_start", "on_train_epoch_start"]
BATCH_0 = [
    "on_before_dataloader",
    "on_after_dataloader(batch)",
    "on_train_batch_start(batch, 0)",
    "on_before_train_batch",
    "on_before_zero_grad(optimizer)",
    "on_before_backward(loss)",
    "on_after_backward",
    "on_train_batch_end({loss}, batch, 0)",
    "on_batch_checkpoint",
]
BATCH_1 = [
    "on_before_dataloader",
    "on_after_dataloader(batch)",
    "on_train_batch_start(batch, 1)",
    "on_before_backward(loss)",
    "on_after_backward",
    "on_before_optimizer_step(optimizer)",
    "on_after_train_batch",
    "on_after_optimizer_step(optimizer)",
    "on_train_batch_end({loss}, batch, 1)",
]
BATCH_2 = [
    "on_before_dataloader",
    "on_after_dataloader(batch)",
    "on_train_batch_start(batch, 2)",
    "on_before_train_batch",
    "on_before_zero_grad(optimizer)",
    "on_before_backward(loss)",
    "on_after_backward",
    "on_train_batch_end({loss}, batch, 2)",
    "on_batch_checkpoint",
]
SAVED = ["state_dict", "on_save_checkpoint(checkpoint)", "on_checkpoint_saved(path)"]
BATCH_3 = [
    "on_before_dataloader",
    "on_after_dataloader(batch)",
    "on_train_batch_start(batch, 3)",
    "on_before_backward(loss)",
    "on_after_backward",
    "on_before_optimizer_step(optimizer)",
    "on_after_train_batch",
    "on_after_optimizer_step(optimizer)",
    "on_train_batch_end({loss}, batch, 3)",
    "on_log({epoch loss}, 1)",
]
EPOCH_END = ["on_train_epoch_end", "on_epoch_end", "on_epoch_checkpoint"]
FIT_END = ["on_train_end", "on_fit_end", "teardown(fit)"]


class Save(Callback):
    """Saves after the third batch, in the middle of a window."""

    band = Band.SAVE

    def __init__(self, path) -> None:
        self.path = path

    def on_batch_checkpoint(self, trainer, module):
        if trainer.progress.batches_completed == 3:
            trainer.save_checkpoint(self.path)


def validated(step: int) -> list[str]:
    return [entry.replace("val_loss}, 0", f"val_loss}}, {step}") for entry in VALIDATION]


def test_a_whole_fit(bare, tiny, recorder, batches, tmp_path) -> None:
    """A fit with sanity check, windows, validation in and at the end of an epoch, and a save."""
    seen = recorder()
    trainer = bare(
        seen,
        Save(tmp_path / "x.ckpt"),
        num_sanity_val_steps=1,
        accumulate_grad_batches=2,
        val_check_interval=0.5,
        log_every_n_steps=2,
    )
    trainer.fit(tiny(), batches(4), batches(2))
    assert seen.entries == [
        *INIT,
        *PREPARED,
        *SANITY,
        "on_train_start",
        *EPOCH_START,
        *BATCH_0,
        *BATCH_1,
        *validated(0),
        "on_batch_checkpoint",
        *BATCH_2,
        *SAVED,
        *BATCH_3,
        *validated(1),
        "on_batch_checkpoint",
        "on_train_batches_end",
        *EPOCH_END,
        *FIT_END,
    ]


def test_a_fit_resumed_inside_an_epoch(bare, tiny, recorder, batches, tmp_path) -> None:
    """The resumed run goes on with the next batch: no sanity check, no second epoch start."""
    options = {
        "num_sanity_val_steps": 1,
        "accumulate_grad_batches": 2,
        "val_check_interval": 0.5,
        "log_every_n_steps": 2,
    }
    path = tmp_path / "x.ckpt"
    bare(recorder(), Save(path), **options).fit(tiny(), batches(4), batches(2))
    seen = recorder()
    bare(seen, Save(path), **options).fit(tiny(), batches(4), batches(2), ckpt_path=path)
    assert seen.entries == [
        *INIT,
        "setup(fit)",
        "on_configure_model",
        "on_after_configure_model",
        "on_before_load(path)",
        "on_before_restore(checkpoint)",
        "on_load_checkpoint(checkpoint)",
        "load_state_dict",
        "on_after_load(checkpoint)",
        "on_fit_start",
        "on_train_start",
        *BATCH_3,
        *validated(1),
        "on_batch_checkpoint",
        "on_train_batches_end",
        *EPOCH_END,
        *FIT_END,
    ]


def test_validation_once_an_epoch(bare, tiny, recorder, batches) -> None:
    """The epoch's own validation lies between the end of its batches and its end hooks."""
    seen = recorder()
    trainer = bare(seen, max_epochs=2, iteration_length=2)
    trainer.fit(tiny(), batches(1), batches(2))
    step = [
        "on_before_dataloader",
        "on_after_dataloader(batch)",
        "on_train_batch_start(batch, 0)",
        "on_before_train_batch",
        "on_before_zero_grad(optimizer)",
        "on_before_backward(loss)",
        "on_after_backward",
        "on_before_optimizer_step(optimizer)",
        "on_after_train_batch",
        "on_after_optimizer_step(optimizer)",
        "on_train_batch_end({loss}, batch, 0)",
        "on_batch_checkpoint",
        "on_train_batches_end",
    ]
    assert seen.entries == [
        *INIT,
        *PREPARED,
        "on_train_start",
        "on_iteration_start",
        *EPOCH_START,
        *step,
        *validated(0),
        *EPOCH_END,
        *EPOCH_START,
        *step,
        *validated(1),
        *EPOCH_END,
        "on_iteration_end",
        "on_iteration_checkpoint",
        *FIT_END,
    ]


@pytest.mark.parametrize("fn", ["validate", "test"])
def test_an_evaluation_of_its_own(fn, bare, tiny, recorder, loader) -> None:
    """validate and test fire their phase inside on_evaluation_run, with the loader's number."""
    seen = recorder()
    getattr(bare(seen), fn)(tiny(), [loader(1), loader(1)], verbose=False)
    phase, loss = {"validate": ("validation", "val_loss"), "test": ("test", "test_loss")}[fn]
    assert seen.entries == [
        *INIT,
        f"setup({fn})",
        "on_configure_model",
        "on_after_configure_model",
        "on_before_load(None)",
        "on_after_load(None)",
        f"on_evaluation_run_start({fn})",
        f"on_{phase}_start",
        "on_epoch_start",
        f"on_{phase}_epoch_start",
        f"on_{phase}_batch_start(batch, 0, 0)",
        f"on_{phase}_batch_end(None, batch, 0, 0)",
        f"on_{phase}_batch_start(batch, 0, 1)",
        f"on_{phase}_batch_end(None, batch, 0, 1)",
        f"on_{phase}_epoch_end",
        "on_epoch_end",
        f"on_log({{epoch {loss}/dataloader_idx_0 {loss}/dataloader_idx_1}}, 0)",
        f"on_{phase}_end",
        f"on_evaluation_run_end({fn})",
        f"teardown({fn})",
    ]


def test_a_prediction(bare, defaulted, recorder, batches) -> None:
    """predict fires its phase, with the forward hooks of the default step."""
    seen = recorder()
    bare(seen).predict(defaulted(), batches(1))
    assert seen.entries == [
        *INIT,
        "setup(predict)",
        "on_configure_model",
        "on_after_configure_model",
        "on_before_load(None)",
        "on_after_load(None)",
        "on_predict_start",
        "on_epoch_start",
        "on_predict_epoch_start",
        "on_predict_batch_start(batch, 0)",
        "on_predict_before_forward",
        "on_predict_after_forward(batch)",
        "on_predict_batch_end(batch, batch, 0)",
        "on_predict_epoch_end",
        "on_epoch_end",
        "on_predict_end",
        "teardown(predict)",
    ]


def inside_fit(seen) -> list[str]:
    """Return the records between the epoch's start and the end of its batches."""
    start = seen.entries.index("on_train_epoch_start") + 1
    ends = ("on_train_epoch_end", "on_exception(ModuleError)")
    end = next(place for place, entry in enumerate(seen.entries) if entry in ends)
    return seen.entries[start:end]


def test_the_default_step(bare, defaulted, recorder, batches) -> None:
    """The default steps fire the forward and loss hooks around the module's forward and loss."""
    seen = recorder()
    bare(seen).fit(defaulted(), batches(1), batches(1))
    assert inside_fit(seen) == [
        "on_before_dataloader",
        "on_after_dataloader(batch)",
        "on_train_batch_start(batch, 0)",
        "on_before_train_batch",
        "on_before_zero_grad(optimizer)",
        "on_before_forward",
        "on_after_forward(batch)",
        "on_before_loss",
        "on_after_loss(loss)",
        "on_before_backward(loss)",
        "on_after_backward",
        "on_before_optimizer_step(optimizer)",
        "on_after_train_batch",
        "on_after_optimizer_step(optimizer)",
        "on_train_batch_end({loss}, batch, 0)",
        "on_batch_checkpoint",
        "on_train_batches_end",
        "state_dict",
        "on_validation_run_start",
        "on_validation_start",
        "on_epoch_start",
        "on_validation_epoch_start",
        "on_validation_batch_start(batch, 0)",
        "on_validation_before_forward",
        "on_validation_after_forward(batch)",
        "on_validation_after_loss(loss)",
        "on_validation_batch_end(batch, batch, 0)",
        "on_validation_epoch_end",
        "on_epoch_end",
        "on_log({epoch val_loss}, 0)",
        "on_validation_end",
        "on_validation_run_end",
    ]


def test_manual_optimization(bare, tiny, recorder, batches) -> None:
    """The hooks are called where the module's own training_step does what they announce."""

    class Manual(tiny):
        automatic_optimization = False

        def training_step(self, batch, batch_idx):
            for optimizer in self.optimizers():
                loss = self.layer(batch).pow(2).mean()
                optimizer.zero_grad()
                self.manual_backward(loss)
                optimizer.step()

        def configure_optimizers(self):
            return [torch.optim.SGD([p], lr=0.1) for p in self.layer.parameters()]

    seen = recorder()
    trainer = bare(seen)
    trainer.fit(Manual(), batches(1))
    one = [
        "on_before_zero_grad(optimizer)",
        "on_before_backward(loss)",
        "on_after_backward",
        "on_before_optimizer_step(optimizer)",
        "on_after_train_batch",
        "on_after_optimizer_step(optimizer)",
    ]
    assert inside_fit(seen) == [
        "on_before_dataloader",
        "on_after_dataloader(batch)",
        "on_train_batch_start(batch, 0)",
        "on_before_train_batch",
        *one,
        *one,
        "on_train_batch_end({}, batch, 0)",
        "on_batch_checkpoint",
        "on_train_batches_end",
    ]
    assert trainer.global_step == 2


@pytest.mark.filterwarnings("ignore:.*training_step returned None")
def test_a_batch_skipped_by_its_step(bare, tiny, recorder, batches) -> None:
    """A training_step that returns None leaves out backward and step, and the batch still ends."""

    class Skips(tiny):
        def training_step(self, batch, batch_idx):
            return None

    seen = recorder()
    trainer = bare(seen)
    with pytest.raises(ModuleError, match="return loss"):  # once the epoch has ended so
        trainer.fit(Skips(), batches(1))
    assert inside_fit(seen) == [
        "on_before_dataloader",
        "on_after_dataloader(batch)",
        "on_train_batch_start(batch, 0)",
        "on_before_train_batch",
        "on_before_zero_grad(optimizer)",
        "on_train_batch_end({}, batch, 0)",
        "on_batch_checkpoint",
    ]
    assert trainer.global_step == 0


def test_a_batch_skipped_by_a_callback(bare, tiny, recorder, batches) -> None:
    """trainer.skip_batch() leaves one batch out; a window that it closes steps with the others."""
    seen = recorder()

    def skip(trainer, module, batch, batch_idx):
        if batch_idx == 1:
            trainer.skip_batch()

    trainer = bare(seen.on("on_train_batch_start", skip), accumulate_grad_batches=2)
    trainer.fit(tiny(), batches(2))
    assert inside_fit(seen) == [
        *BATCH_0,
        "on_before_dataloader",
        "on_after_dataloader(batch)",
        "on_train_batch_start(batch, 1)",
        "on_before_optimizer_step(optimizer)",
        "on_after_train_batch",
        "on_after_optimizer_step(optimizer)",
        "on_train_batch_end({}, batch, 1)",
        "on_batch_checkpoint",
        "on_train_batches_end",
    ]


def test_an_optimizer_that_evaluates_the_loss(bare, tiny, recorder, batches) -> None:
    """LBFGS clears and computes gradients at each evaluation, in one window with one step."""

    class Second(tiny):
        def configure_optimizers(self):
            return torch.optim.LBFGS(self.parameters(), max_iter=2)

    seen = recorder()
    bare(seen).fit(Second(), batches(1))
    evaluation = [
        "on_before_zero_grad(optimizer)",
        "on_before_backward(loss)",
        "on_after_backward",
        "on_before_optimizer_step(optimizer)",
        "on_after_train_batch",
    ]
    assert inside_fit(seen) == [
        "on_before_dataloader",
        "on_after_dataloader(batch)",
        "on_train_batch_start(batch, 0)",
        "on_before_train_batch",
        *evaluation,
        *evaluation,
        "on_after_optimizer_step(optimizer)",
        "on_train_batch_end({loss}, batch, 0)",
        "on_batch_checkpoint",
        "on_train_batches_end",
    ]


@pytest.mark.parametrize("how", [KeyboardInterrupt, ValueError])
def test_an_exception(how, bare, tiny, recorder, batches) -> None:
    """on_keyboard_interrupt comes before on_exception, teardown last; nothing else fires."""
    seen = recorder()

    def fail(*args):
        raise how("now")

    with pytest.raises(how):
        bare(seen.on("on_train_batch_start", fail)).fit(tiny(), batches(1))
    interrupt = ["on_keyboard_interrupt"] if how is KeyboardInterrupt else []
    after = seen.entries.index("on_train_batch_start(batch, 0)") + 1
    assert seen.entries[after:] == [*interrupt, f"on_exception({how.__name__})", "teardown(fit)"]


def module_that_records(base: type[Module], entries: list[str]) -> Module:
    """Return a module with every hook, which it takes without the first two arguments."""

    def listener(hook):
        return lambda self, *args: entries.append(f"MODULE: {hook}({len(args)})")

    hooks = {hook: listener(hook) for hook, spec in HOOKS.items() if spec.takes_module}
    return type("Recording", (base,), hooks)()


def test_bands_and_the_module(bare, defaulted, recorder, batches, tmp_path) -> None:
    """At every hook: transforming callbacks, observers, the module, control, sinks, savers.

    But of a checkpoint that is restored the module hears first.
    """
    entries: list[str] = []
    bands = [band for band in reversed(Band) if band is not Band.MODULE]
    callbacks = [recorder(entries, band, band.name) for band in bands]
    trainer = bare(*callbacks, num_sanity_val_steps=1, iteration_length=1)
    module = module_that_records(defaulted, entries)
    trainer.fit(module, batches(1), batches(1))
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    trainer.test(module, batches(1), verbose=False, ckpt_path=tmp_path / "x.ckpt")
    trainer.predict(module, batches(1))
    trainer.close()
    fired = [entry for entry in entries if "_init_" not in entry and "state_dict" not in entry]
    order = [band.name for band in Band]
    # the module's own comes before its weights are restored, and the others' afterwards
    restored = [entry.split(": ")[0] for entry in fired if "on_load_checkpoint" in entry]
    assert restored == ["MODULE", *(name for name in order if name != "MODULE")]
    fired = [entry for entry in fired if "on_load_checkpoint" not in entry]
    assert len(fired) % len(order) == 0
    for start in range(0, len(fired), len(order)):
        group = [entry.split(": ") for entry in fired[start : start + len(order)]]
        assert [name for name, _ in group] == order
        assert len({rest.partition("(")[0] for _, rest in group}) == 1


def test_the_module_takes_the_rest_of_the_arguments(bare, defaulted, batches) -> None:
    """A module's hook gets a callback's arguments, without the trainer and the module."""
    entries: list[str] = []
    bare().fit(module_that_records(defaulted, entries), batches(1), batches(1))
    counts = {hook: len(spec.arguments) - 2 for hook, spec in HOOKS.items() if spec.takes_module}
    optional = [hook for hook, spec in HOOKS.items() if "dataloader_idx" in spec.arguments]
    for entry in entries:
        hook, _, count = entry.removeprefix("MODULE: ").rstrip(")").partition("(")
        assert int(count) == counts[hook] - (hook in optional)
    assert "MODULE: on_train_batch_end(3)" in entries


KINDS = {
    "trainer": Trainer,
    "module": Module,
    "stage": str,
    "path": str | None,
    "checkpoint": dict | None,
    "batch": Tensor,
    "batch_idx": int,
    "dataloader_idx": int,
    "optimizer": Optimizer,
    "outputs": object,
    "loss": Tensor,
    "metrics": dict,
    "step": int,
    "error": StopTraining,
    "exception": Exception | KeyboardInterrupt,
}


def every_call(bare, tiny, defaulted, recorder, loader, tmp_path) -> list[tuple[str, tuple]]:
    """Return the calls of a recorder over runs of all stages."""
    seen = recorder()
    trainer = bare(seen, num_sanity_val_steps=1, iteration_length=1)
    loaders = [loader(1), loader(1)]
    trainer.fit(defaulted(), loader(1), loaders)
    path = tmp_path / "x.ckpt"
    trainer.save_checkpoint(path)
    trainer.validate(dataloaders=loaders, verbose=False, ckpt_path=path)
    trainer.test(dataloaders=loaders, verbose=False)
    trainer.predict(dataloaders=loaders)

    def raising(error):
        def react(*args):
            seen.at.clear()
            raise error

        return react

    seen.on("on_train_batch_start", raising(StopTraining("enough")))
    trainer.fit(tiny(), loader(1))
    seen.on("on_train_batch_start", raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(tiny(), loader(1))
    trainer.close()
    return seen.calls


def test_every_hook_of_the_catalogue_fires(
    bare, tiny, defaulted, recorder, loader, tmp_path
) -> None:
    """Some run fires each hook, with the arguments that the catalogue names; none is exempt."""
    calls = every_call(bare, tiny, defaulted, recorder, loader, tmp_path)
    assert {hook for hook, _ in calls} == set(HOOKS)
    for hook, args in calls:
        names = HOOKS[hook].arguments
        if len(args) == len(names) - 1 and names[-1] == "dataloader_idx":
            names = names[:-1]
        assert len(args) == len(names), hook
        for name, value in zip(names, args, strict=True):
            assert isinstance(value, KINDS[name]), f"{hook}: {name} was {value!r}"


def test_several_loaders_are_told_by_number(
    bare, tiny, defaulted, recorder, loader, tmp_path
) -> None:
    """Each hook that takes dataloader_idx is given it where there are several loaders."""
    calls = every_call(bare, tiny, defaulted, recorder, loader, tmp_path)
    takes = {hook for hook, spec in HOOKS.items() if "dataloader_idx" in spec.arguments}
    for hook in takes:
        numbers = {args[-1] for name, args in calls if name == hook}
        assert numbers == {0, 1}, hook
