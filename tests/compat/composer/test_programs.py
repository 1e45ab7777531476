"""Programs in the style of Composer's documentation and examples.

What is expected is what its source (0.32.1) does; where that is not plain, the test says where.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch.optim.lr_scheduler import StepLR
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

from trainer_hooks.compat.composer import (
    Callback,
    ComposerModel,
    DataSpec,
    Evaluator,
    State,
    Time,
    TimeUnit,
    Trainer,
)
from trainer_hooks.compat.composer.callbacks import CheckpointSaver, EarlyStopper, LRMonitor
from trainer_hooks.compat.composer.loggers import InMemoryLogger, LoggerDestination
from trainer_hooks.compat.composer.models import ComposerClassifier
from trainer_hooks.compat.composer.optim import (
    CosineAnnealingWithWarmupScheduler,
    LinearWithWarmupScheduler,
    MultiStepScheduler,
)

pytestmark = pytest.mark.slow  # the import of the framework alone is


def values(logger, name):
    return [value for _, value in logger.data[name]]


def rates(trainer_of, **options):
    """The learning rate with which each batch was trained."""
    found = []

    class Rates(Callback):
        def after_train_batch(self, state, logger):
            found.append(state.optimizers[0].param_groups[0]["lr"])

    trainer_of(Rates(), **options).fit()
    return found


def test_a_logger_of_ones_own(make) -> None:
    """A destination that overrides three methods is given what is logged, with the batch."""

    class Lines(LoggerDestination):
        def __init__(self):
            self.lines = []

        def log_hyperparameters(self, hyperparameters):
            self.lines.append(hyperparameters)

        def log_metrics(self, metrics, step=None):
            self.lines.append((step, metrics))

        def batch_end(self, state, logger):
            self.lines.append("end")

    class Ones(Callback):
        def batch_end(self, state, logger):
            logger.log_metrics({"one": 1.0})

        def fit_start(self, state, logger):
            logger.log_hyperparameters({"width": 4})

    lines = Lines()
    make(Ones(), loggers=[lines], train_subset_num_batches=2).fit()
    assert {"width": 4} in lines.lines
    ones = [(1, {"one": 1.0}), (2, {"one": 1.0})]
    assert [line for line in lines.lines if line in ("end", *ones)] == [
        ones[0], "end", ones[1], "end",
    ]  # fmt: skip


def test_the_names_that_the_trainer_logs(make, loader) -> None:
    """Losses, times and the microbatch's size have Composer's names and places."""
    kept = InMemoryLogger()
    make(loggers=[kept], device_train_microbatch_size=2, train_subset_num_batches=2).fit()
    assert values(kept, "time/epoch") == [0, 1]
    assert values(kept, "time/batch") == [0, 1, 2]
    assert values(kept, "time/sample") == [0, 4, 8]
    assert values(kept, "trainer/device_train_microbatch_size") == [2, 2]
    assert len(values(kept, "loss/train/total")) == 2
    series = kept.get_timeseries("loss/train/total")
    assert list(series["batch"]) == [0, 1]  # logged before the batch is counted


def test_microbatches_are_the_whole_batch(net, loader) -> None:
    """A batch in microbatches gives the loss and the weights of the whole, in one step."""
    found = []
    for size in (None, 1, 3):
        model, kept = copy.deepcopy(net), InMemoryLogger()
        trainer = Trainer(
            model=model, train_dataloader=loader(), max_duration="1ep", device="cpu",
            optimizers=torch.optim.SGD(model.parameters(), lr=0.1), loggers=[kept],
            device_train_microbatch_size=size, progress_bar=False,
        )  # fmt: skip
        trainer.fit()
        trainer.close()
        assert trainer.state.timestamp.batch == 4
        found.append((values(kept, "loss/train/total"), model.layer.weight))
    for losses, weight in found[1:]:
        assert losses == pytest.approx(found[0][0])
        torch.testing.assert_close(weight, found[0][1])


def test_it_trains_as_a_loop_by_hand(make, net, loader) -> None:
    """The final weights are, bit for bit, those of a plain loop of torch."""
    twin = copy.deepcopy(net)
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.1)
    for _ in range(2):
        for batch in loader():
            optimizer.zero_grad()
            twin.loss(twin(batch), batch).backward()
            optimizer.step()
    make(max_duration="2ep").fit()
    assert torch.equal(net.layer.weight, twin.layer.weight)


class Counting(Callback):
    """Counts what it sees, and keeps it in checkpoints."""

    def __init__(self):
        self.batches = 0
        self.loaded = 0
        self.epochs = []

    def epoch_start(self, state: State, logger):
        self.epochs.append(int(state.timestamp.epoch))

    def batch_end(self, state, logger):
        self.batches += 1

    def state_dict(self):
        return {"batches": self.batches}

    def load_state_dict(self, state):
        self.batches, self.loaded = state["batches"], self.loaded + 1


def test_a_callback_comes_back_with_load_path(make, net, tmp_path) -> None:
    """A training that is cut inside an epoch goes on from its checkpoint to the same weights."""
    start = copy.deepcopy(net.state_dict())
    whole = Counting()
    make(whole, max_duration="3ep").fit()
    expected = net.layer.weight.clone()
    net.load_state_dict(start)
    saves = {"save_folder": "saved", "save_interval": "2ba"}
    make(Counting(), max_duration="6ba", **saves).fit()
    torch.nn.init.zeros_(net.layer.weight)
    again = Counting()
    trainer = make(again, max_duration="3ep", load_path="saved/ep1-ba6-rank0.pt", **saves)
    # the constructor has loaded it, as Composer's does
    now = trainer.state.timestamp
    assert (again.batches, now.epoch, now.batch, now.batch_in_epoch) == (6, 1, 6, 2)
    assert net.layer.weight.any()
    trainer.fit()
    assert torch.equal(net.layer.weight, expected)
    assert (again.batches, again.epochs) == (12, [2])  # EPOCH_START only where one begins
    assert trainer.state.timestamp.sample == 48


def test_autoresume_follows_the_newest(make, net, tmp_path) -> None:
    """The same line starts a training, goes on with it, and finds that it is done."""

    def run(duration):  # fmt: skip
        counting = Counting()
        trainer = make(
            counting, max_duration=duration, save_folder="{run_name}/checkpoints",
            autoresume=True, run_name="mine",
        )  # fmt: skip
        trainer.fit()
        trainer.close()
        return counting, trainer

    first, trainer = run("1ep")
    assert trainer.saved_checkpoints[0].endswith("mine/checkpoints/ep1-ba4-rank0.pt")
    second, trainer = run("2ep")
    assert (first.batches, second.batches, second.epochs) == (4, 8, [1])
    assert trainer.state.load_path.endswith("latest-rank0.pt")
    with pytest.raises(ValueError, match="is trained already"):
        run("2ep")


def test_weights_alone(make, net) -> None:
    """`load_weights_only` takes the weights, and trains from the beginning."""
    make(save_folder="saved").fit()
    weight = net.layer.weight.clone()
    torch.nn.init.zeros_(net.layer.weight)
    trainer = make(Counting(), load_path="saved/ep1-ba4-rank0.pt", load_weights_only=True)
    assert torch.equal(net.layer.weight, weight)
    assert trainer.state.timestamp.batch == 0
    trainer.fit()
    assert trainer.state.timestamp.batch == 4


def test_a_checkpoint_by_hand(make) -> None:
    """`trainer.save_checkpoint(...)` fills its template in and returns the path."""
    trainer = make()
    trainer.fit()
    path = trainer.save_checkpoint("ep{epoch}-ba{batch}.pt")
    assert path == "ep1-ba4.pt"
    assert make(load_path=path).state.timestamp.batch == 4


class Classifier(ComposerModel):
    """A model with metrics of torchmetrics, as in the guide on ComposerModel."""

    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 3)
        self.accuracy = MulticlassAccuracy(num_classes=3, average="micro")
        self.f1 = MulticlassF1Score(num_classes=3)

    def forward(self, batch):
        return self.net(batch[0])

    def loss(self, outputs, batch):
        return torch.nn.functional.cross_entropy(outputs, batch[1])

    def get_metrics(self, is_train=False):
        return (
            {"Accuracy": self.accuracy} if is_train else {"Accuracy": self.accuracy, "F1": self.f1}
        )

    def update_metric(self, batch, outputs, metric):
        metric.update(outputs, batch[1])


def test_metrics_of_torchmetrics(make, loader) -> None:
    """Metrics are copied for each loader, computed there, logged, and on the state."""
    model, kept = Classifier(), InMemoryLogger()
    both = [
        Evaluator(label="all", dataloader=loader(8)),
        Evaluator(label="some", dataloader=loader(8), metric_names=["f1"]),
    ]
    trainer = make(model=model, eval_dataloader=both, loggers=[kept])
    trainer.fit()
    logged = {name for name in kept.data if name.startswith("metrics/")}
    assert logged == {
        "metrics/train/Accuracy", "metrics/all/Accuracy", "metrics/all/F1", "metrics/some/F1",
    }  # fmt: skip
    outputs = torch.cat(trainer.predict(loader(8)))
    targets = torch.cat([batch[1] for batch in loader(8)])
    expected = (outputs.argmax(1) == targets).float().mean()
    assert float(values(kept, "metrics/all/Accuracy")[-1]) == pytest.approx(float(expected))
    assert set(trainer.state.eval_metrics) == {"all", "some"}
    assert set(trainer.state.eval_metrics["some"]) == {"F1"}
    assert trainer.state.eval_metric_values["F1"] == values(kept, "metrics/some/F1")[-1]
    # of each batch, and once more at the epoch's end
    assert len(values(kept, "metrics/train/Accuracy")) == 5
    assert list(trainer.state.train_metrics) == ["Accuracy"]


def test_composer_classifier(make, loader) -> None:
    """A plain network is trained and evaluated with the metrics of its kind."""
    kept = InMemoryLogger()
    model = ComposerClassifier(torch.nn.Linear(4, 3), num_classes=3)
    make(model=model, eval_dataloader=loader(8), loggers=[kept]).fit()
    assert {"metrics/eval/CrossEntropy", "metrics/eval/MulticlassAccuracy"} <= set(kept.data)
    with pytest.raises(TypeError, match="nobody says how many classes"):
        ComposerClassifier(torch.nn.Linear(4, 3))


def test_early_stopping_on_a_metric(make, loader) -> None:
    """`EarlyStopper` finds the metric of an evaluator by name and label."""

    class Worse(Classifier):
        def update_metric(self, batch, outputs, metric):
            metric.update(outputs, outputs.argmin(1))

    stopper = EarlyStopper("Accuracy", "eval", patience=1)
    trainer = make(stopper, model=Worse(), eval_dataloader=loader(4), max_duration="9ep")
    trainer.fit()
    assert trainer.state.timestamp.epoch < 9


def test_a_scheduler_by_batches(make) -> None:
    """A function of the state sets the rate of the next batch.

    Schedulers step before the timestamp does (`_train_loop`), so the second batch has the first's.
    """
    factors = lambda state: 0.5 ** int(state.timestamp.batch)  # noqa: E731 - as in the guide
    assert rates(make, schedulers=factors) == [0.1, 0.1, 0.05, 0.025]


def test_a_scheduler_by_times(make) -> None:
    """Schedulers of Composer go by times in any unit."""
    found = rates(make, schedulers=MultiStepScheduler(["2ba", "3ba"], 0.5), max_duration="6ba")
    assert found == [0.1, 0.1, 0.1, 0.05, 0.025, 0.025]


def test_schedulers_with_a_warmup(make) -> None:
    """The rate rises from nothing, and falls to the end of the training."""
    found = rates(make, schedulers=[LinearWithWarmupScheduler("2ba")], max_duration="2ep")
    assert found == pytest.approx([0, 0, 0.05, 0.1, 0.1 * 5 / 6, 0.1 * 4 / 6, 0.05, 0.1 * 2 / 6])
    found = rates(make, schedulers=CosineAnnealingWithWarmupScheduler("0.25dur"))
    assert found == pytest.approx([0, 0, 0.1, 0.075])


def test_a_scheduler_of_torch_steps_each_epoch(make) -> None:
    """A scheduler of torch's is stepped after each epoch; the epoch's last `BATCH_END` is before.

    So in `_train_loop`: it steps after the batches, and before `EPOCH_END`.
    """
    seen = []

    class Look(Callback):
        def batch_end(self, state, logger):
            seen.append(state.schedulers[0].get_last_lr()[0])

        def epoch_end(self, state, logger):
            seen.append(state.schedulers[0].get_last_lr()[0])

    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    make(
        Look(), model=model, optimizers=optimizer, schedulers=StepLR(optimizer, 1, gamma=0.5),
        max_duration="2ep", train_subset_num_batches=2,
    ).fit()  # fmt: skip
    assert seen == [1.0, 1.0, 0.5, 0.5, 0.5, 0.25]


def test_it_steps_each_batch_if_told(make) -> None:
    """`step_schedulers_every_batch=True` lets a scheduler of torch's count batches."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = StepLR(optimizer, 1, gamma=0.5)
    found = rates(
        make, model=model, optimizers=optimizer, schedulers=scheduler,
        step_schedulers_every_batch=True,
    )  # fmt: skip
    assert found == [1.0, 0.5, 0.25, 0.125]


def test_a_scheduler_is_resumed(make, net) -> None:
    """A rate that falls goes on where the training was cut, also between a step and its epoch."""

    def scheduled(**options):  # fmt: skip
        optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
        return rates(
            make, optimizers=optimizer, schedulers=StepLR(optimizer, 1, gamma=0.5), **options
        )

    whole = scheduled(max_duration="3ep")
    saves = {"save_folder": "saved", "save_interval": "4ba"}
    begun = scheduled(max_duration="4ba", **saves)
    rest = scheduled(max_duration="3ep", load_path="saved/ep0-ba4-rank0.pt", **saves)
    assert begun + rest == whole


def test_several_losses(make, net) -> None:
    """A tuple or a dict of losses is learned from as their sum, and each is logged."""

    class Two(type(net)):
        def loss(self, outputs, batch):
            loss = super().loss(outputs, batch)
            return {"a": loss, "b": 2 * loss}

    kept = InMemoryLogger()
    make(model=Two(), loggers=[kept]).fit()
    totals = values(kept, "loss/train/total")
    assert totals == pytest.approx([3 * value for value in values(kept, "loss/train/a")])
    assert len(values(kept, "loss/train/b")) == 4


def test_a_batch_of_a_callbacks_own(make, loader) -> None:
    """What a callback puts on `state.batch` before the forward is what the model is given."""
    shapes = []

    class Half(Callback):
        def after_dataloader(self, state, logger):
            inputs, targets = state.batch
            state.batch = (inputs[:2], targets[:2])

        def before_forward(self, state, logger):
            state.batch_set_item(0, state.batch_get_item(0) * 0)

        def after_forward(self, state, logger):
            shapes.append((tuple(state.outputs.shape), bool(state.batch[0].any())))

    make(Half(), train_subset_num_batches=1).fit()
    assert shapes == [((2, 3), False)]


def test_a_data_spec(make, loader) -> None:
    """A `DataSpec` changes batches, counts them, and says how they are split."""
    seen = []

    class Look(Callback):
        def before_forward(self, state, logger):
            seen.append(float(state.batch[0].sum()))

    spec = DataSpec(
        loader(4),
        batch_transforms=lambda batch: (torch.ones_like(batch[0]), batch[1]),
        microbatch_transforms=lambda batch: (batch[0] * 2, batch[1]),
        get_num_samples_in_batch=lambda batch: 7,
        get_num_tokens_in_batch=lambda batch: 70,
    )
    trainer = make(Look(), train_dataloader=spec, device_train_microbatch_size=2)
    trainer.fit()
    assert seen == [16.0, 16.0]
    now = trainer.state.timestamp
    assert (now.sample, now.token, now.token_in_epoch) == (7, 70, 0)
    assert trainer.state.get_elapsed_duration() == Time(1.0, TimeUnit.DURATION)
    (outputs,) = trainer.predict(spec)
    layer = trainer.state.model.layer
    torch.testing.assert_close(outputs, layer(torch.full((4, 4), 2.0)))


def test_fit_goes_on_for_a_duration(make, recorder) -> None:
    """`fit(duration=...)` adds to what is trained; `reset_time` counts from nothing."""
    trainer = make(recorder, max_duration=None)
    with pytest.raises(ValueError, match="nobody says how long"):
        trainer.fit()
    trainer.fit(duration="2ba")
    trainer.fit(duration="1ep")
    assert trainer.state.timestamp.batch == 6
    with pytest.raises(ValueError, match="is trained already"):
        trainer.fit()
    trainer.fit(reset_time=True, duration="1ep")
    assert (trainer.state.timestamp.epoch, trainer.state.timestamp.batch) == (1, 4)


def test_a_saver_of_ones_own(make, tmp_path) -> None:
    """A `CheckpointSaver` of the callbacks is the trainer's; an interval may be a function."""
    saver = CheckpointSaver("own", save_interval="2ba", num_checkpoints_to_keep=1)
    trainer = make(saver)
    trainer.fit()
    assert [path.rpartition("/")[2] for path in trainer.saved_checkpoints] == ["ep0-ba4-rank0.pt"]
    asked = []

    def due(state, event):
        asked.append(event.value)
        return int(state.timestamp.batch) == 3

    trainer = make(save_folder="asked", save_interval=due)
    trainer.fit()
    names = [path.rpartition("/")[2] for path in trainer.saved_checkpoints]
    assert names == ["ep0-ba3-rank0.pt", "ep1-ba4-rank0.pt"]  # and at the end
    assert asked == [*["batch_checkpoint"] * 4, "epoch_checkpoint"]


def test_callbacks_of_trainer_hooks_take_part(make, loader) -> None:
    """Callbacks and loggers of trainer_hooks may stand beside Composer's, and call the module."""
    from trainer_hooks.callbacks import LambdaCallback
    from trainer_hooks.loggers import InMemoryLogger as Native

    steps, outputs, native = [], [], Native()
    batch = loader(8, 8).dataset[5:]
    own = LambdaCallback(
        on_train_batch_end=lambda trainer, *_: steps.append(trainer.global_step),
        on_fit_end=lambda trainer, module: outputs.append(module(batch)),
    )
    trainer = make(own, LRMonitor(), loggers=[native])
    trainer.fit()
    assert torch.equal(outputs[0], trainer.state.model(batch))
    assert steps == [1, 2, 3, 4]
    assert [value for _, value in native.history("lr-SGD/group0")] == [0.1] * 4
    assert len(native.history("loss/train/total")) == 4


def test_the_built_in_callbacks_take_part(make, loader) -> None:
    """Composer's monitors log to the destinations under Composer's names."""
    from trainer_hooks.compat.composer import callbacks

    pytest.importorskip("psutil")
    kept = InMemoryLogger()
    some = [
        callbacks.SpeedMonitor(window_size=1),
        callbacks.OptimizerMonitor(batch_log_interval=1),
        callbacks.RuntimeEstimator(),
        callbacks.NaNMonitor(),
        callbacks.FreeOutputs(),
        callbacks.SystemMetricsMonitor(),
        callbacks.ActivationMonitor(interval="1ba", only_log_wandb=False),
    ]
    make(*some, eval_dataloader=loader(4), loggers=[kept], max_duration="2ep").fit()
    assert {
        "throughput/batches_per_sec", "l2_norm/grad/global", "time/remaining_estimate",
    } <= set(kept.data)  # fmt: skip
    layers = {name for name in kept.data if name.startswith("activations/")}
    assert layers
    # the ComposerModel's own names of its layers
    assert not any("/model." in name for name in layers)


def test_a_resume_has_the_data_of_an_uncut_run(make, loader) -> None:
    """Shuffled data and dropout, cut inside the second epoch: the same weights to the bit."""
    from torch.utils.data import DataLoader

    class Dropped(Classifier):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.net = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(4, 3))

    def train(**options):
        model = Dropped()
        shuffled = DataLoader(loader().dataset, batch_size=4, shuffle=True)
        make(
            model=model, train_dataloader=shuffled, seed=3, save_folder="saved",
            save_interval="3ba", save_overwrite=True, **options,
        ).fit()  # fmt: skip
        return model.net[1].weight

    whole = train(max_duration="3ep")
    train(max_duration="6ba")
    assert torch.equal(train(max_duration="3ep", load_path="saved/ep1-ba6-rank0.pt"), whole)


def test_two_callbacks_with_a_state_need_a_key_each(make) -> None:
    """Two of a class would share one state, as in Composer: that is refused, with a way out."""
    with pytest.raises(ValueError, match="state_key"):
        make(Counting(), Counting())
