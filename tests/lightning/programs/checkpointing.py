"""Checkpoints: what is in them, and what a resume does."""

from __future__ import annotations

import torch
from shared import cut_run

from programs import differs, error


def keys_of_a_file(x):
    """The keys of Lightning that a checkpoint has, and its counters."""

    class Net(x.Net):
        def __init__(self, width=3):
            super().__init__()
            self.save_hyperparameters()

        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), 0.1)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]

    trainer, module = x.trainer(max_epochs=2), Net()
    trainer.fit(module, x.loader(3))
    trainer.save_checkpoint(x.folder / "a.ckpt")
    found = torch.load(x.folder / "a.ckpt", weights_only=False)
    known = (
        "epoch", "global_step", "state_dict", "loops", "callbacks", "optimizer_states",
        "lr_schedulers", "hparams_name", "hyper_parameters",
    )  # fmt: skip
    return {
        "there": [name for name in known if name in found],
        "epoch": found["epoch"], "step": found["global_step"],
        "weights": dict(found["state_dict"]), "hparams": dict(found["hyper_parameters"]),
        "optimizers": len(found["optimizer_states"]),
        "scheduler": found["lr_schedulers"][0]["last_epoch"],
        "name": found["hparams_name"],
    }  # fmt: skip


@differs("The class of some errors", resumed=(error("KeyError"), error("CheckpointError")))
def weights_alone(x):
    """`save_checkpoint(weights_only=True)`."""
    trainer, module = x.trainer(), x.Net()
    trainer.fit(module, x.loader(3))
    trainer.save_checkpoint(x.folder / "a.ckpt", weights_only=True)
    found = torch.load(x.folder / "a.ckpt", weights_only=True)
    full = ("loops", "optimizer_states", "lr_schedulers", "callbacks")
    return {
        "full": [name for name in full if name in found], "weights": dict(found["state_dict"]),
        "resumed": x.error(
            lambda: x.trainer().fit(x.Net(), x.loader(1), ckpt_path=x.folder / "a.ckpt")
        ),
    }  # fmt: skip


def resume_at_the_end_of_an_epoch(x):
    """Counters, hooks and weights of a run that goes on."""
    path = cut_run(x)
    hooks = x.hooks("on_train_start", "on_train_epoch_start", "on_train_batch_start")
    trainer, module = x.trainer(hooks, max_epochs=3), x.Net()
    trainer.fit(module, x.loader(3), x.loader(1), ckpt_path=path)
    return {
        "calls": hooks.calls, "counters": x.counters(trainer), "weights": x.weights(module),
        "path": str(trainer.ckpt_path).rpartition("/")[2],
    }  # fmt: skip


@differs("Sanity check on a resume", checked=(1, 0))
def resume_and_the_sanity_check(x):
    """Whether a resume begins with a sanity check."""
    path = cut_run(x)
    hooks = x.hooks("on_sanity_check_start")
    x.trainer(hooks, max_epochs=2, num_sanity_val_steps=1).fit(
        x.Net(), x.loader(3), x.loader(1), ckpt_path=path
    )
    return {"checked": len(hooks.calls)}


@differs("A resume inside an epoch", same=(False, True))
def resume_inside_an_epoch(x):
    """A run that is cut after two of four batches, and goes on."""

    class Saver(x.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            if trainer.global_step == 2:
                trainer.save_checkpoint(x.folder / "inside.ckpt")

    uncut = x.Net()
    torch.manual_seed(5)
    x.trainer(Saver(), max_epochs=2).fit(uncut, x.loader(4, shuffle=True))
    module, trainer = x.Net(), x.trainer(max_epochs=2)
    trainer.fit(module, x.loader(4, shuffle=True), ckpt_path=x.folder / "inside.ckpt")
    return {
        "same": x.weights(uncut) == x.weights(module), "counters": x.counters(trainer),
    }  # fmt: skip


@differs(
    "A resume with more `max_steps`, at an epoch's end that `max_steps` made early",
    at_the_end=(
        [[0, 3, 0], [1, 0, 0], [1, 1, 1], [1, 2, 2]],
        [[1, 0, 0], [1, 1, 1], [1, 2, 2], [1, 3, 3]],
    ),
    inside=(
        [[0, 3, 0], [1, 0, 0], [1, 1, 1], [1, 2, 2]],
        [[0, 3, 3], [1, 0, 0], [1, 1, 1], [1, 2, 2]],
    ),
)
def resume_with_more_steps(x):
    """The epochs, numbers and data of the batches after a run that `max_steps` ended early.

    It is resumed from a checkpoint of its end, from one of its last batch, and by a second fit.
    """

    class Net(x.Net):
        def __init__(self):
            super().__init__()
            self.seen = []

        def training_step(self, batch, batch_idx):
            # each sample of `x.loader` is a tenth more than the one before
            number = round(float(batch[0, 0]) * 10)
            self.seen.append([self.current_epoch, batch_idx, number])
            return super().training_step(batch, batch_idx)

    def resumed(**options):
        saver = x.callbacks.ModelCheckpoint(x.folder / str(len(options)), **options)
        checkpoints = {"enable_checkpointing": True}
        limits = {"max_epochs": -1, "max_steps": 3}
        x.trainer(saver, **limits, **checkpoints).fit(Net(), x.loader(4, size=1))
        module = Net()
        trainer = x.trainer(max_epochs=-1, max_steps=7)
        trainer.fit(module, x.loader(4, size=1), ckpt_path=saver.best_model_path)
        return module.seen

    module, trainer = Net(), x.trainer(max_epochs=-1, max_steps=3)
    trainer.fit(module, x.loader(4, size=1))
    trainer.fit_loop.epoch_loop.max_steps = 7
    trainer.fit(module, x.loader(4, size=1))
    return {
        "at_the_end": resumed(),
        "inside": resumed(every_n_train_steps=3),
        "second_fit": module.seen,
    }


def resume_restores_optimizers(x):
    """Momentum and schedulers go on."""

    class Net(x.Net):
        def configure_optimizers(self):
            optimizer = torch.optim.Adam(self.parameters(), 0.05)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]

    path = cut_run(x, module=Net())
    module, trainer = Net(), x.trainer(max_epochs=3)
    trainer.fit(module, x.loader(3), x.loader(1), ckpt_path=path)
    return {"weights": x.weights(module), "rate": trainer.optimizers[0].param_groups[0]["lr"]}


@differs(
    "Callbacks and counters on a resume",
    restored=("before configure_optimizers", "after configure_optimizers"),
    step=(0, 3),
)
def resume_order_of_hooks(x):
    """When a resume calls what restores, and when state is there."""
    calls: list[str] = []
    steps: list[int] = []

    class Keeper(x.Callback):
        def state_dict(self):
            return {"a": 1}

        def load_state_dict(self, state_dict):
            calls.append(f"load_state_dict {state_dict}")

        def on_load_checkpoint(self, trainer, module, checkpoint):
            calls.append("callback on_load_checkpoint")

        def setup(self, trainer, module, stage):
            calls.append("setup")

        def on_fit_start(self, trainer, module):
            calls.append("on_fit_start")
            steps.append(trainer.global_step)

        def on_train_start(self, trainer, module):
            calls.append(f"on_train_start {trainer.global_step} {trainer.current_epoch}")

    class Net(x.Net):
        def on_load_checkpoint(self, checkpoint):
            calls.append("module on_load_checkpoint")

        def configure_optimizers(self):
            calls.append("configure_optimizers")
            return super().configure_optimizers()

    path = cut_run(x, Keeper())
    calls.clear()
    x.trainer(Keeper(), max_epochs=2).fit(Net(), x.loader(3), ckpt_path=path)
    made = calls.index("configure_optimizers")
    is_late = made < calls.index("callback on_load_checkpoint")
    calls.remove("configure_optimizers")
    return {
        "calls": calls,
        "restored": f"{'after' if is_late else 'before'} configure_optimizers",
        "step": steps[-1],
    }


def callback_state(x):
    """State under `state_key`, for two callbacks of one class."""
    seen = []

    class Counter(x.Callback):
        def __init__(self, what):
            self.what, self.count = what, 0

        @property
        def state_key(self):
            return f"Counter[what={self.what}]"

        def on_train_batch_end(self, *args):
            self.count += 1 if self.what == "batches" else 10

        def state_dict(self):
            return {"count": self.count}

        def load_state_dict(self, state_dict):
            seen.append([self.what, state_dict["count"]])
            self.count = state_dict["count"]

    first = [Counter("batches"), Counter("tens")]
    path = cut_run(x, *first)
    keys = sorted(torch.load(path, weights_only=False)["callbacks"])
    second = [Counter("tens"), Counter("batches")]
    x.trainer(*second, max_epochs=2).fit(x.Net(), x.loader(3), ckpt_path=path)
    return {"keys": keys, "seen": sorted(seen), "counts": [one.count for one in second]}


def save_and_load_hooks(x):
    """`on_save_checkpoint` adds to the file, `on_load_checkpoint` reads it."""
    seen = []

    class Net(x.Net):
        def on_save_checkpoint(self, checkpoint):
            checkpoint["module's"] = [1, 2]

        def on_load_checkpoint(self, checkpoint):
            seen.append(checkpoint["module's"])

    class Adds(x.Callback):
        def on_save_checkpoint(self, trainer, module, checkpoint):
            checkpoint["callback's"] = "text"

        def on_load_checkpoint(self, trainer, module, checkpoint):
            seen.append(checkpoint["callback's"])

    path = cut_run(x, Adds(), module=Net())
    x.trainer(Adds(), max_epochs=2).fit(Net(), x.loader(3), ckpt_path=path)
    Net.load_from_checkpoint(path)
    return {"seen": seen}


@differs(
    "A fit with nothing left to train",
    calls=([], ["on_train_start()", "on_train_end()"]),
    fewer=(error("MisconfigurationException"), "none"),
)
def resume_a_run_that_is_done(x):
    """A resume with the same `max_epochs` trains nothing."""
    path = cut_run(x, epochs=2)
    hooks = x.hooks("on_train_start", "on_train_epoch_start", "on_train_end")
    trainer, module = x.trainer(hooks, max_epochs=2), x.Net()
    trainer.fit(module, x.loader(3), ckpt_path=path)
    return {
        "calls": hooks.calls, "counters": x.counters(trainer), "weights": x.weights(module),
        "fewer": x.error(
            lambda: x.trainer(max_epochs=1).fit(x.Net(), x.loader(3), ckpt_path=path)
        ),
    }  # fmt: skip


@differs("A second `fit` with another module", epochs=(1, 2))
def another_module_in_a_second_fit(x):
    """The same trainer, two modules."""
    hooks = x.hooks("on_train_epoch_start")
    trainer = x.trainer(hooks)
    trainer.fit(x.Net(), x.loader(1))
    trainer.fit(x.Net(), x.loader(1))
    return {"epochs": len(hooks.calls)}


@differs(
    "Callback states where `test`, `validate` or `predict` loads a `ckpt_path` after a fit",
    after_the_fit=(3, 6),
)
def tested_with_the_callbacks_of_a_checkpoint(x):
    """The state that a callback has in a test of an older checkpoint, after the fit and without."""

    class Counts(x.Callback):
        count = 0

        def on_train_batch_end(self, *args):
            self.count += 1

        def on_test_start(self, *args):
            seen.append(self.count)

        def state_dict(self):
            return {"count": self.count}

        def load_state_dict(self, state_dict):
            self.count = state_dict["count"]

    class Net(x.Net):
        def test_step(self, batch, batch_idx):
            pass

    seen = []
    saver = x.callbacks.ModelCheckpoint(x.folder / "saved", save_top_k=-1, filename="{epoch}")
    trainer = x.trainer(Counts(), saver, enable_checkpointing=True, max_epochs=2)
    trainer.fit(Net(), x.loader(3))
    for one in (trainer, x.trainer(Counts())):
        one.test(Net(), x.loader(1), ckpt_path=x.folder / "saved" / "epoch=0.ckpt", verbose=False)
    return {"after_the_fit": seen[0], "without": seen[1]}


@differs(
    "`BackboneFinetuning` in a run that resumes after the unfreezing",
    trains=([False, False, True, True], [True, True, True, True]),
)
def backbone_resumed_after_its_unfreezing(x):
    """Which parts of the backbone train in a run that resumes after the unfreezing."""

    class Net(x.Net):
        def __init__(self):
            super().__init__()
            self.backbone = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))

        def forward(self, batch):
            return self.layer(self.backbone(batch))

        def configure_optimizers(self):
            return torch.optim.SGD([p for p in self.parameters() if p.requires_grad], lr=0.1)

        def on_train_epoch_start(self):
            self.trains = [p.requires_grad for p in self.backbone.parameters()]

    def tuning():
        return x.callbacks.BackboneFinetuning(1, backbone_initial_ratio_lr=0.1)

    path = cut_run(x, tuning(), epochs=2, module=Net())
    module = Net()
    x.trainer(tuning(), max_epochs=3).fit(module, x.loader(3), ckpt_path=path)
    return {"trains": module.trains}


@differs(
    "`trainer.state.stage` as a saver saves after a validation",
    stages=(["validate", "validate"], ["train", "train"]),
)
def stage_of_a_save(x):
    """A module notes the stage of each checkpoint, as those do that skip a repeated validation."""
    stages = []

    class Net(x.Net):
        def validation_step(self, batch, batch_idx):
            self.log("val", float(self.current_epoch))

        def on_save_checkpoint(self, checkpoint):
            stages.append(str(self.trainer.state.stage.value))

    saver = x.callbacks.ModelCheckpoint(str(x.folder), monitor="val", save_top_k=-1)
    trainer = x.trainer(saver, val_check_interval=2, enable_checkpointing=True)
    trainer.fit(Net(), x.loader(4), x.loader(1))
    return {"stages": stages}
