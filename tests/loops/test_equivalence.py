"""Training gives the weights of the same loop written by hand in PyTorch, bit for bit."""

from __future__ import annotations

import pytest
import torch
from quiet_trainers import QUIET_OPTIONS
from torch import nn

from trainer_hooks import Module, Run
from trainer_hooks.errors import OptimizationError, TrainerHooksWarning, UsageError

EPOCHS = 3


class DropoutRegression(Module):
    """Two layers with dropout, so that random numbers count, too."""

    def __init__(self, make_optimizer=None, make_scheduler=None, **scheduling) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 1))
        self.make_optimizer = make_optimizer or adam
        self.make_scheduler = make_scheduler
        self.scheduling = scheduling

    def loss_of(self, batch):
        return (self.net(batch) - batch.sum(1, keepdim=True)).pow(2).mean()

    def training_step(self, batch, batch_idx):
        return self.loss_of(batch)

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.loss_of(batch))

    def configure_optimizers(self):
        optimizer = self.make_optimizer(self.parameters())
        if self.make_scheduler is None:
            return optimizer
        scheduler = {"scheduler": self.make_scheduler(optimizer), **self.scheduling}
        return {"optimizer": optimizer, "lr_scheduler": scheduler}


def adam(parameters):
    return torch.optim.AdamW(parameters, lr=0.05)


def fit(trainer, module, *loaders) -> None:
    torch.manual_seed(4)
    trainer.fit(module, *loaders)


def assert_same(module, expected) -> None:
    """The parameters have equal bits, and training moved them."""
    untrained = type(expected)()
    for name, parameter in module.state_dict().items():
        assert torch.equal(parameter, expected.state_dict()[name]), name
        assert not torch.equal(parameter.float(), untrained.state_dict()[name])


@pytest.fixture
def data(batches):
    return batches(5, size=4)


def test_plain(bare, data) -> None:
    """Forward, backward, step."""
    module, expected = DropoutRegression(), DropoutRegression()
    fit(bare(max_epochs=EPOCHS), module, data)
    optimizer = adam(expected.parameters())
    torch.manual_seed(4)
    for _ in range(EPOCHS):
        for batch in data:
            optimizer.zero_grad()
            expected.loss_of(batch).backward()
            optimizer.step()
    assert_same(module, expected)


def test_validation_leaves_no_trace(bare, data) -> None:
    """Sanity check and validations change neither weights nor random numbers of training."""
    module, expected = DropoutRegression(), DropoutRegression()
    fit(bare(max_epochs=EPOCHS), expected, data)
    fit(bare(max_epochs=EPOCHS, num_sanity_val_steps=-1, val_check_interval=2), module, data, data)
    assert_same(module, expected)


def train_in_windows(module, data, accumulate, change_gradients=list) -> None:
    """Train by hand; the gradients of a window are changed before its step."""
    optimizer = adam(module.parameters())
    torch.manual_seed(4)
    for _ in range(EPOCHS):
        for index, batch in enumerate(data):
            if index % accumulate == 0:
                optimizer.zero_grad()
            (module.loss_of(batch) / accumulate).backward()
            if (index + 1) % accumulate == 0 or index == len(data) - 1:
                change_gradients(module.parameters())
                optimizer.step()


@pytest.mark.parametrize("accumulate", [2, 3])
def test_accumulation(accumulate, bare, data) -> None:
    """Windows of batches make a step, the epoch's last and shorter one too, equally divided."""
    module, expected = DropoutRegression(), DropoutRegression()
    trainer = bare(max_epochs=EPOCHS, accumulate_grad_batches=accumulate)
    fit(trainer, module, data)
    train_in_windows(expected, data, accumulate)
    assert_same(module, expected)
    assert trainer.global_step == EPOCHS * -(-len(data) // accumulate)


@pytest.mark.parametrize("algorithm", ["norm", "value"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_clipping(algorithm, accumulate, bare, data) -> None:
    """Gradients of a window are clipped by norm or by value, once they are complete."""
    module, expected = DropoutRegression(), DropoutRegression()
    clip = {"norm": nn.utils.clip_grad_norm_, "value": nn.utils.clip_grad_value_}[algorithm]
    options = {"gradient_clip_val": 0.1, "gradient_clip_algorithm": algorithm}
    fit(bare(max_epochs=EPOCHS, accumulate_grad_batches=accumulate, **options), module, data)
    train_in_windows(expected, data, accumulate, lambda parameters: clip(parameters, 0.1))
    assert_same(module, expected)


def test_clipping_by_the_modules_own_rule(bare, data) -> None:
    """A module that overrides configure_gradient_clipping decides, with no option set."""

    class Own(DropoutRegression):
        def configure_gradient_clipping(self, optimizer, **options):
            self.clip_gradients(optimizer, 0.1, "value")

    module, expected = Own(), DropoutRegression()
    fit(bare(max_epochs=EPOCHS), module, data)
    options = {"gradient_clip_val": 0.1, "gradient_clip_algorithm": "value"}
    fit(bare(max_epochs=EPOCHS, **options), expected, data)
    assert_same(module, expected)


@pytest.mark.parametrize("algorithm", ["norm", "value"])
def test_clipping_without_a_limit_takes_that_of_the_trainer(algorithm, bare, data) -> None:
    """`self.clip_gradients(optimizer)` in an override clips by the Trainer's options."""

    class Own(DropoutRegression):
        def configure_gradient_clipping(self, optimizer, **options):
            self.clip_gradients(optimizer)

    module, expected, unclipped = Own(), DropoutRegression(), DropoutRegression()
    options = {"gradient_clip_val": 0.1, "gradient_clip_algorithm": algorithm}
    for each in (module, expected):
        fit(bare(max_epochs=EPOCHS, **options), each, data)
    assert_same(module, expected)
    fit(bare(max_epochs=EPOCHS), unclipped, data)
    with pytest.raises(AssertionError):
        assert_same(module, unclipped)


@pytest.mark.parametrize("frequency", [1, 2])
@pytest.mark.parametrize("interval", ["step", "epoch"])
def test_schedulers(interval, frequency, bare, data) -> None:
    """A scheduler steps after each so many steps or epochs, and no later than by hand."""

    def decay(optimizer):
        return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)

    module = DropoutRegression(make_scheduler=decay, interval=interval, frequency=frequency)
    expected = DropoutRegression()
    fit(bare(max_epochs=EPOCHS, accumulate_grad_batches=2), module, data)
    optimizer = adam(expected.parameters())
    scheduler = decay(optimizer)
    torch.manual_seed(4)
    steps = 0
    for epoch in range(EPOCHS):
        for index, batch in enumerate(data):
            if index % 2 == 0:
                optimizer.zero_grad()
            (expected.loss_of(batch) / 2).backward()
            if index % 2 == 1 or index == len(data) - 1:
                optimizer.step()
                steps += 1
                if interval == "step" and steps % frequency == 0:
                    scheduler.step()
        if interval == "epoch" and (epoch + 1) % frequency == 0:
            scheduler.step()
    assert_same(module, expected)


def test_a_scheduler_that_watches_a_metric(bare, data) -> None:
    """ReduceLROnPlateau is given the epoch's validation loss."""

    def plateau(optimizer):
        # every value is a plateau after the first
        return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=10.0)

    seen = []

    class Watches(DropoutRegression):
        def lr_scheduler_step(self, scheduler, metric):
            seen.append(metric.item())
            super().lr_scheduler_step(scheduler, metric)

    module, expected = Watches(make_scheduler=plateau, monitor="val_loss"), DropoutRegression()
    fit(bare(max_epochs=EPOCHS), module, data, data)
    optimizer = adam(expected.parameters())
    scheduler = plateau(optimizer)
    torch.manual_seed(4)
    losses = []
    for _ in range(EPOCHS):
        for batch in data:
            optimizer.zero_grad()
            expected.loss_of(batch).backward()
            optimizer.step()
        expected.eval()
        with torch.no_grad():
            losses.append(torch.stack([expected.loss_of(b) for b in data]).double().mean().item())
        expected.train()
        scheduler.step(losses[-1])
    assert seen == pytest.approx(losses, rel=1e-6)
    assert optimizer.param_groups[0]["lr"] < 0.05
    assert_same(module, expected)


def test_an_optimizer_that_evaluates_the_loss(bare, data) -> None:
    """LBFGS is given a closure that clears, computes and returns the loss."""

    def lbfgs(parameters):
        return torch.optim.LBFGS(parameters, lr=0.1, max_iter=4)

    module, expected = DropoutRegression(lbfgs), DropoutRegression()
    trainer = bare(max_epochs=EPOCHS)
    fit(trainer, module, data)
    optimizer = lbfgs(expected.parameters())
    torch.manual_seed(4)
    for _ in range(EPOCHS):
        for batch in data:

            def closure(batch=batch):
                optimizer.zero_grad()
                loss = expected.loss_of(batch)
                loss.backward()
                return loss

            optimizer.step(closure)
    assert_same(module, expected)
    assert trainer.global_step == EPOCHS * len(data)


def test_an_optimizer_that_evaluates_the_loss_takes_no_windows(bare, data) -> None:
    """It would need a window's batches again and again, so the combination is refused."""
    module = DropoutRegression(torch.optim.LBFGS)
    with pytest.raises(OptimizationError, match=r"accumulate_grad_batches=2.*LBFGS"):
        bare(accumulate_grad_batches=2).fit(module, data)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_module_that_steps_itself(accumulate, bare, data) -> None:
    """A module that overrides optimizer_step and calls the closure trains as one that does not."""

    class Own(DropoutRegression):
        def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure=None):
            optimizer_closure()
            optimizer.step()

    module, expected = Own(), DropoutRegression()
    options = {"max_epochs": EPOCHS, "accumulate_grad_batches": accumulate}
    own, usual = bare(**options), bare(**options)
    fit(own, module, data)
    fit(usual, expected, data)
    assert_same(module, expected)
    assert own.global_step == usual.global_step


class Gan(Module):
    automatic_optimization = False

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.maker = nn.Linear(2, 2)
        self.judge = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))

    def judge_loss(self, batch):
        fake = self.maker(torch.randn_like(batch)).detach()
        return self.judge(fake).sigmoid().mean() - self.judge(batch).sigmoid().mean()

    def maker_loss(self, batch):
        return -self.judge(self.maker(torch.randn_like(batch))).sigmoid().mean()

    def training_step(self, batch, batch_idx):
        maker, judge = self.optimizers()
        with self.toggled_optimizer(judge):
            judge.zero_grad()
            self.manual_backward(self.judge_loss(batch))
            self.clip_gradients(judge, 0.5, "norm")
            judge.step()
        with self.toggled_optimizer(maker):
            maker.zero_grad()
            self.manual_backward(self.maker_loss(batch))
            maker.step()
        if self.trainer.is_last_batch:
            self.lr_schedulers().step()

    def configure_optimizers(self):
        maker = torch.optim.Adam(self.maker.parameters(), lr=0.05)
        judge = torch.optim.Adam(self.judge.parameters(), lr=0.05)
        return [maker, judge], [torch.optim.lr_scheduler.StepLR(maker, 1, 0.5)]


def test_manual_optimization(bare, data) -> None:
    """A GAN with two optimizers, clipping and a scheduler that it steps by itself."""
    module, expected = Gan(), Gan()
    trainer = bare(max_epochs=EPOCHS)
    fit(trainer, module, data)
    (maker, judge), (scheduler,) = expected.configure_optimizers()
    torch.manual_seed(4)
    for _ in range(EPOCHS):
        for batch in data:
            judge.zero_grad()
            expected.judge_loss(batch).backward()
            nn.utils.clip_grad_norm_(expected.judge.parameters(), 0.5)
            judge.step()
            maker.zero_grad()
            expected.maker_loss(batch).backward()
            maker.step()
        scheduler.step()
    assert_same(module, expected)
    assert trainer.global_step == 2 * EPOCHS * len(data)
    assert all(parameter.requires_grad for parameter in module.parameters())


def test_a_skipped_loss_in_a_closure_is_no_step(bare, data) -> None:
    """A module that steps by itself steps with nothing where the loss is skipped: not at all."""

    class StepsItself(DropoutRegression):
        def training_step(self, batch, batch_idx):
            return None if batch_idx == 1 else super().training_step(batch, batch_idx)

        def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure):
            optimizer.step(optimizer_closure)

    trainer = bare(max_epochs=1)
    with pytest.warns(TrainerHooksWarning, match="batch 1: such a batch is skipped"):
        fit(trainer, StepsItself(), data)
    assert trainer.global_step == len(data) - 1


def test_brain_float(bare, data) -> None:
    """bf16-mixed is autocast around the step, and nothing else."""
    module, expected, full = DropoutRegression(), DropoutRegression(), DropoutRegression()
    fit(bare(max_epochs=EPOCHS, precision="bf16-mixed"), module, data)
    fit(bare(max_epochs=EPOCHS), full, data)
    optimizer = adam(expected.parameters())
    torch.manual_seed(4)
    for _ in range(EPOCHS):
        for batch in data:
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = expected.loss_of(batch)
            loss.backward()
            optimizer.step()
    assert_same(module, expected)
    assert not torch.equal(module.net[0].weight, full.net[0].weight)


def test_double(bare, data) -> None:
    """64-true doubles parameters and batches."""
    module, expected = DropoutRegression(), DropoutRegression().double()
    fit(bare(max_epochs=EPOCHS, precision="64-true"), module, data)
    optimizer = adam(expected.parameters())
    torch.manual_seed(4)
    for _ in range(EPOCHS):
        for batch in data:
            optimizer.zero_grad()
            expected.loss_of(batch.double()).backward()
            optimizer.step()
    assert module.dtype == torch.float64
    assert_same(module, expected)
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize("own_step", [False, True])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_half(own_step, accumulate, bare, data) -> None:
    """16-mixed scales the loss, and unscales a window's gradients before they are clipped."""

    class Own(DropoutRegression):
        if own_step:

            def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure=None):
                optimizer.step(closure=optimizer_closure)

    module, expected = Own(), DropoutRegression()
    options = {"accumulate_grad_batches": accumulate, "gradient_clip_val": 0.5}
    fit(bare(max_epochs=EPOCHS, precision="16-mixed", **options), module, data)
    optimizer = adam(expected.parameters())
    scaler = torch.amp.GradScaler("cpu")
    torch.manual_seed(4)
    for _ in range(EPOCHS):
        for index, batch in enumerate(data):
            if index % accumulate == 0:
                optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = expected.loss_of(batch)
            scaler.scale(loss / accumulate).backward()
            if (index + 1) % accumulate == 0 or index == len(data) - 1:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(expected.parameters(), 0.5)
                scaler.step(optimizer)
                scaler.update()
    assert_same(module, expected)


class Halves(Module):
    """Two layers with an optimizer each, both trained by one backward."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        torch.manual_seed(3)
        self.layers = nn.ModuleList(nn.Linear(2, 1) for _ in range(2))

    def loss_of(self, batch, batch_idx):
        # of the first layer the gradients overflow in one batch
        factors = (1e6 if batch_idx == 1 else 1.0), 1.0
        parts = zip(self.layers, factors, strict=True)
        return sum((layer(batch).float() * factor).square().mean() for layer, factor in parts)

    def training_step(self, batch, batch_idx):
        both = self.optimizers()
        for optimizer in both:
            optimizer.zero_grad()
        self.manual_backward(self.loss_of(batch, batch_idx))
        for optimizer in both:
            self.clip_gradients(optimizer, gradient_clip_val=0.1)
        for optimizer in both:
            optimizer.step()

    def configure_optimizers(self):
        return [torch.optim.SGD(layer.parameters(), lr=0.5) for layer in self.layers]


def halves_by_hand(data):
    """Train by a loop of torch's notes: the scale is updated when both optimizers have stepped."""
    expected = Halves()
    both, scaler = expected.configure_optimizers(), torch.amp.GradScaler("cpu")
    for _ in range(EPOCHS):
        for index, batch in enumerate(data):
            for optimizer in both:
                optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = expected.loss_of(batch, index)
            scaler.scale(loss).backward()
            for layer, optimizer in zip(expected.layers, both, strict=True):
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(layer.parameters(), 0.1)
            for optimizer in both:
                scaler.step(optimizer)
            scaler.update()
    return expected, scaler


def test_half_in_manual_optimization(bare, data) -> None:
    """True gradients are clipped, and an optimizer's overflow leaves the other's scale as it is."""
    module, trainer = Halves(), bare(max_epochs=EPOCHS, precision="16-mixed")
    fit(trainer, module, data)
    expected, scaler = halves_by_hand(data)
    assert_same(module, expected)
    assert trainer.precision_plugin.scaler.get_scale() == scaler.get_scale() < 2.0**16


def test_half_in_a_loop_of_ones_own(data) -> None:
    """So also by Run, which clips by its option."""
    module = Halves()
    both = module.configure_optimizers()
    options = {**QUIET_OPTIONS, "precision": "16-mixed", "gradient_clip_val": 0.1}
    run = Run(list(module.layers), both, **options, max_epochs=EPOCHS)
    with run:
        for _ in run.epochs():
            for index, batch in enumerate(run.batches(data)):
                run.backward(module.loss_of(batch, index))
                for optimizer in both:
                    run.step(optimizer)
    assert_same(module, halves_by_hand(data)[0])


def test_half_that_clips_between_two_backwards(bare, data) -> None:
    """Gradients with the loss scale cannot be added to those without; after clearing they may."""

    class Clips(Halves):
        is_cleared = True

        def training_step(self, batch, batch_idx):
            optimizer = self.optimizers()[0]
            for _ in range(2):
                if self.is_cleared:
                    optimizer.zero_grad()
                self.manual_backward(self.loss_of(batch, 0))
                self.clip_gradients(optimizer, gradient_clip_val=0.1)
            optimizer.step()

    fit(bare(precision="16-mixed", limit_train_batches=2), Clips(), data)
    module = Clips()
    module.is_cleared = False
    with pytest.raises(UsageError, match=r"clip_gradients, a backward, and clip_gradients again"):
        fit(bare(precision="16-mixed"), module, data)


def test_a_step_that_overflows(bare, data) -> None:
    """16-mixed leaves out a step whose gradients are not finite, and goes on with a lower scale."""

    class Overflows(DropoutRegression):
        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            return loss * float("inf") if batch_idx == 0 else loss

    module = Overflows()
    trainer = bare(precision="16-mixed", limit_train_batches=1)
    before = module.net[0].weight.detach().clone()
    fit(trainer, module, data)
    assert torch.equal(module.net[0].weight, before)
    assert trainer.precision_plugin.scaler.get_scale() == 2.0**15
