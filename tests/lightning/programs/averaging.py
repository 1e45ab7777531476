"""Averages of weights, accumulation by epoch, finetuning, pruning."""

from __future__ import annotations

import torch

from programs import differs, error

ERRORS = "The class of some errors"


def gradient_accumulation_scheduler(x):
    """Batches in a step, by epoch."""
    scheduler = x.callbacks.GradientAccumulationScheduler({0: 1, 1: 2, 3: 4})
    steps = []

    class Net(x.Net):
        def on_train_epoch_end(self):
            steps.append([self.global_step, self.trainer.accumulate_grad_batches])

    module = Net()
    x.trainer(scheduler, max_epochs=4).fit(module, x.loader(4))
    return {"steps": steps, "weights": x.weights(module)}


@differs(
    ERRORS,
    empty=(error("TypeError"), error("OptionError")),
    with_the_option=(error("ValueError"), error("UsageError")),
)
def gradient_accumulation_scheduler_options(x):
    """What it cannot be given."""
    make = x.callbacks.GradientAccumulationScheduler
    return {
        "empty": x.error(lambda: make({})),
        "zero": x.error(lambda: make({0: 0})),
        "negative": x.error(lambda: make({-1: 2})),
        "with_the_option": x.error(
            lambda: x.trainer(make({1: 2}), accumulate_grad_batches=2).fit(x.Net(), x.loader(2))
        ),
    }


def weight_averaging(x):
    """The average of the weights is swapped in for validation and at the end."""
    module = x.Net()
    average = x.callbacks.WeightAveraging(use_buffers=True)
    trainer = x.trainer(average, max_epochs=2)
    trainer.fit(module, x.loader(3), x.loader(2))
    return {"averaged": x.weights(module), "metrics": x.metrics(trainer)}


def weight_averaging_by_hook(x):
    """`should_update` decides by step or by epoch."""

    class Own(x.callbacks.WeightAveraging):
        def should_update(self, step_idx=None, epoch_idx=None):
            return epoch_idx is not None

    module = x.Net()
    x.trainer(Own(), max_epochs=3).fit(module, x.loader(3))
    return {"weights": x.weights(module)}


def ema_weight_averaging(x):
    """The exponential average."""
    module = x.Net()
    average = x.callbacks.EMAWeightAveraging(
        decay=0.8, update_every_n_steps=2, update_starting_at_step=1
    )
    x.trainer(average, max_epochs=2).fit(module, x.loader(3))
    return {"weights": x.weights(module)}


def stochastic_weight_averaging(x):
    """Averages from an epoch on, with its own learning rate."""
    module = x.Net()
    swa = x.callbacks.StochasticWeightAveraging(swa_lrs=0.05, swa_epoch_start=2, annealing_epochs=2)
    rates = []

    class See(x.Callback):
        def on_train_epoch_end(self, trainer, module):
            rates.append(trainer.optimizers[0].param_groups[0]["lr"])

    x.trainer(swa, See(), max_epochs=5).fit(module, x.loader(3))
    return {"weights": x.weights(module), "rates": rates}


@differs(
    "An unknown `annealing_strategy` of `StochasticWeightAveraging`",
    anneal=("none", error("OptionError")),
)
def stochastic_weight_averaging_options(x):
    """What it cannot be given."""
    make = x.callbacks.StochasticWeightAveraging
    return {
        "rate": x.error(lambda: make(swa_lrs=-1.0)),
        "start": x.error(lambda: make(swa_lrs=0.1, swa_epoch_start=0)),
        "share": x.error(lambda: make(swa_lrs=0.1, swa_epoch_start=1.5)),
        "anneal": x.error(lambda: make(swa_lrs=0.1, annealing_strategy="odd")),
    }


def backbone_finetuning(x):
    """The backbone is frozen until an epoch."""
    seen = []

    class Net(x.Net):
        def __init__(self):
            super().__init__()
            self.backbone = torch.nn.Linear(2, 2)
            torch.nn.init.eye_(self.backbone.weight)
            torch.nn.init.zeros_(self.backbone.bias)

        def forward(self, batch):
            return self.layer(self.backbone(batch))

        def configure_optimizers(self):
            return torch.optim.SGD([p for p in self.parameters() if p.requires_grad], lr=0.1)

        def on_train_epoch_start(self):
            needs = self.backbone.weight.requires_grad
            rates = [group["lr"] for group in self.trainer.optimizers[0].param_groups]
            seen.append([self.current_epoch, needs, [round(rate, 8) for rate in rates]])

    module = Net()
    tuning = x.callbacks.BackboneFinetuning(
        unfreeze_backbone_at_epoch=2, backbone_initial_ratio_lr=0.1
    )
    x.trainer(tuning, max_epochs=4).fit(module, x.loader(3))
    return {"seen": seen, "weights": x.weights(module)}


def base_finetuning(x):
    """A finetuning of one's own."""

    class Own(x.callbacks.BaseFinetuning):
        def freeze_before_training(self, pl_module):
            self.freeze(pl_module.layer)

        def finetune_function(self, pl_module, epoch, optimizer):
            if epoch == 1:
                self.unfreeze_and_add_param_group(pl_module.layer, optimizer, lr=0.05)

    class Net(x.Net):
        def __init__(self):
            super().__init__()
            self.head = torch.nn.Linear(1, 1)
            torch.nn.init.ones_(self.head.weight)
            torch.nn.init.zeros_(self.head.bias)

        def forward(self, batch):
            return self.head(self.layer(batch))

        def configure_optimizers(self):
            return torch.optim.SGD(self.head.parameters(), lr=0.1)

    module = Net()
    trainer = x.trainer(Own(), max_epochs=3)
    trainer.fit(module, x.loader(3))
    return {
        "weights": x.weights(module), "groups": len(trainer.optimizers[0].param_groups),
    }  # fmt: skip


def model_pruning(x):
    """Weights are pruned after each epoch."""
    module = x.Net()
    pruning = x.callbacks.ModelPruning(
        "l1_unstructured", parameters_to_prune=[(module.layer, "weight")], amount=1
    )
    x.trainer(pruning, max_epochs=1).fit(module, x.loader(2))
    return {"zeros": int((module.layer.weight == 0).sum())}


def batch_norm(x):
    """Running statistics after training and validation."""

    class Net(x.Net):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(2)

        def forward(self, batch):
            return self.layer(self.norm(batch))

    module = Net()
    x.trainer(max_epochs=2, num_sanity_val_steps=1).fit(module, x.loader(3), x.loader(2))
    return {"weights": x.weights(module)}


@differs(
    "`ModelPruning(use_lottery_ticket_hypothesis=True)` that prunes again", reset=(False, True)
)
def pruned_twice(x):
    """Weights that are pruned after each of two epochs, and reset or not."""
    found = {}
    for name, is_reset in (("reset", True), ("kept", False)):
        torch.manual_seed(3)
        module = x.Net()
        module.layer = torch.nn.Linear(2, 8)
        pruning = x.callbacks.ModelPruning(
            "l1_unstructured", parameters_to_prune=[(module.layer, "weight")], amount=4,
            use_lottery_ticket_hypothesis=is_reset, make_pruning_permanent=False,
        )  # fmt: skip
        first = module.layer.weight.detach().clone()
        x.trainer(pruning, max_epochs=2).fit(module, x.loader(2))
        found[name] = bool((module.layer.weight_orig == first).all())
        found[f"zeros {name}"] = int((module.layer.weight_mask == 0).sum())
    return found


@differs("The weights that `ModelPruning` ranks as it prunes again", mask=([0, 1, 0], [1, 0, 0]))
def pruned_by_the_newest_weights(x):
    """The last step makes another weight the smallest of those that remain."""

    class Net(x.Net):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 1, bias=False)
            self.layer.weight.data = torch.tensor([[0.7, 1.0, 0.1]])

        def training_step(self, batch, batch_idx):
            return self.layer(torch.tensor([0.0, 0.2, 0.0])).sum()  # each step takes 0.2 off

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1.0)

    module = Net()
    pruning = x.callbacks.ModelPruning(
        "l1_unstructured", parameters_to_prune=[(module.layer, "weight")], amount=1,
        use_lottery_ticket_hypothesis=False, make_pruning_permanent=False,
    )  # fmt: skip
    x.trainer(pruning, max_epochs=2).fit(module, x.loader(1))
    return {"mask": module.layer.weight_mask[0].int().tolist()}
