"""Modules: what they read of a run, steps and predictions."""

from __future__ import annotations

import importlib

import torch

from programs import differs, error


def read_in_a_module(x):
    """What a module can read of the run."""
    seen = []

    class Net(x.Net):
        def on_train_batch_start(self, batch, batch_idx):
            seen.append(
                [
                    self.current_epoch, self.global_step, self.global_rank, self.local_rank,
                    str(self.device), str(self.dtype), self.on_gpu, self.logger is None,
                    self.fabric_is_there, len(self.loggers), self.trainer.is_last_batch,
                    self.automatic_optimization, self.training,
                ]
            )  # fmt: skip

        fabric_is_there = False

    x.trainer(max_epochs=2).fit(Net(), x.loader(2))
    return {"seen": seen}


def read_outside_of_a_run(x):
    """The same without a Trainer."""
    module = x.Net()
    return {
        "trainer": x.error(lambda: module.trainer),
        "epoch": module.current_epoch,
        "step": module.global_step,
        "logger": module.logger,
        "rank": module.global_rank,
        "example": module.example_input_array,
        "log": x.error(lambda: module.log("a", 1.0)),
        "optimizers": x.error(lambda: module.optimizers()),
        "strict": module.strict_loading,
    }


def the_trainer_after_a_run(x):
    """What a module and a trainer know of each other when the run is over."""
    module, trainer = x.Net(), x.trainer()
    trainer.fit(module, x.loader(1))
    return {
        "trainer": module.trainer is trainer, "model": trainer.model is module,
        "module": trainer.lightning_module is module, "optimizers": len(trainer.optimizers),
        "training": module.training,
    }  # fmt: skip


def a_module_inside_a_module(x):
    """A part that is a module itself knows the trainer."""
    seen = []

    class Inner(x.Module):
        def forward(self, batch):
            seen.append([self.current_epoch, self.global_step])
            return batch

    class Outer(x.Net):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def training_step(self, batch, batch_idx):
            return self.cost(self.inner(batch))

    x.trainer(max_epochs=2).fit(Outer(), x.loader(2))
    return {"seen": seen}


def predict_step_by_default(x):
    """`predict_step` is the forward."""

    class Net(x.Net):
        def predict_step(self, batch, batch_idx, dataloader_idx=0):
            return super().predict_step(batch, batch_idx) * 2

    return {
        "forward": x.trainer().predict(x.Net(), x.loader(2)),
        "super": x.trainer().predict(Net(), x.loader(2)),
    }


def predictions(x):
    """What `predict` returns of one loader, of several, and of none."""
    trainer, module = x.trainer(), x.Net()
    loaders = [x.loader(2), x.loader(1)]
    return {
        "one": trainer.predict(module, x.loader(2)),
        "several": trainer.predict(module, loaders),
        "a list of one": trainer.predict(module, loaders[1:]),
        "not returned": trainer.predict(module, loaders, return_predictions=False),
        "default": trainer.predict(module, x.loader(1), return_predictions=None),
    }


def evaluation_steps_that_are_missing(x):
    """A verb whose step the module does not have."""

    class Bare(x.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch, batch_idx):
            return self.layer(batch).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    return {
        "fit": x.error(lambda: x.trainer().fit(Bare(), x.loader(1), x.loader(1))),
        "validate": x.error(lambda: x.trainer().validate(Bare(), x.loader(1), verbose=False)),
        "test": x.error(lambda: x.trainer().test(Bare(), x.loader(1), verbose=False)),
        "predict": x.error(lambda: x.trainer().predict(Bare(), x.loader(1))),
    }


def a_step_without_loaders(x):
    """A `validation_step` without validation loaders is not run."""
    hooks = x.hooks("on_validation_start", "on_train_epoch_end")
    x.trainer(hooks).fit(x.Net(), x.loader(1))
    return {"calls": hooks.calls}


def steps_with_fewer_arguments(x):
    """A step may leave out what it does not need."""
    seen = []

    class Net(x.Net):
        def training_step(self, batch):
            seen.append("training")
            return self.cost(batch)

        def validation_step(self, batch):
            seen.append("validation")

        def predict_step(self, batch):
            return 1

    trainer, module = x.trainer(), Net()
    trainer.fit(module, x.loader(1), x.loader(1))
    return {"seen": seen, "predicted": trainer.predict(module, x.loader(1))}


@differs(
    "A step with the argument `dataloader_iter`",
    error=("none", error("ModuleError")),
)
def a_step_with_an_iterator(x):
    """`training_step(self, dataloader_iter)` takes its batches itself."""

    class Net(x.Net):
        def training_step(self, dataloader_iter):
            return self.cost(next(dataloader_iter)[0])

    return {"error": x.error(lambda: x.trainer().fit(Net(), x.loader(3)))}


def copies(x):
    """Modules and trainers can be copied."""
    import copy
    import pickle

    twin = copy.deepcopy(x.Net())
    return {
        "pickled": x.error(lambda: pickle.dumps(x.trainer())),
        "weights": x.weights(twin),
    }


def off_values(x):
    """A step or loader that is None is off."""
    module = x.Net()
    module.validation_step = None
    hooks = x.hooks("on_validation_start", "on_train_epoch_end")
    x.trainer(hooks).fit(module, x.loader(1), x.loader(1))
    return {"calls": hooks.calls}


def verbs_in_a_row(x):
    """fit, validate, test, predict and fit again leave the counters as they are."""
    trainer, module = x.trainer(max_epochs=1), x.Net()
    seen = []
    trainer.fit(module, x.loader(3), x.loader(1))
    seen.append(x.counters(trainer))
    trainer.validate(module, x.loader(1), verbose=False)
    trainer.test(module, x.loader(2), verbose=False)
    trainer.predict(module, x.loader(2))
    seen.append(x.counters(trainer))
    trainer.fit_loop.max_epochs = 2
    trainer.fit(module, x.loader(3), x.loader(1))
    seen.append(x.counters(trainer))
    return {"seen": seen, "weights": x.weights(module), "training": module.training}


def rank_zero_only(x):
    """A function of the first process is called, and returns."""
    only = importlib.import_module(x.utilities).rank_zero_only
    return {"returned": only(lambda value: value + 1)(2)}


def inference_outputs_and_grad(x):
    """Predictions need no gradient, and training after a prediction has gradients."""
    trainer, module = x.trainer(), x.Net()
    predicted = trainer.predict(module, x.loader(1))
    trainer.fit(module, x.loader(2))
    return {"needs": predicted[0].requires_grad, "weights": x.weights(module)}


def compiled_forward_is_left(x):
    """A module with a hand-made `forward` of two inputs, batches that are pairs."""

    class Pairs(torch.utils.data.Dataset):
        def __len__(self):
            return 6

        def __getitem__(self, index):
            return torch.ones(2) * index / 10, torch.tensor([index / 5])

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            inputs, targets = batch
            loss = torch.nn.functional.mse_loss(self(inputs), targets)
            self.log("mse", loss, on_step=False, on_epoch=True)
            return loss

    module, trainer = Net(), x.trainer(max_epochs=2)
    trainer.fit(module, torch.utils.data.DataLoader(Pairs(), batch_size=4))
    return {"weights": x.weights(module), **x.metrics(trainer)}
