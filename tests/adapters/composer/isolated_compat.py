"""One program in Composer, in `trainer_hooks.compat.composer` and hosted, value by value."""

from __future__ import annotations

import importlib
import random
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import trainer_hooks
from trainer_hooks.adapters import to_composer
from trainer_hooks.callbacks import EarlyStopping

pytest.importorskip("composer", reason="needs tests/adapters/composer/requirements.txt")

from composer.core import Event
from torchmetrics.classification import MulticlassAccuracy

from trainer_hooks.adapters.composer import adapt_module

pytestmark = [pytest.mark.exhaustive, pytest.mark.filterwarnings("ignore")]

IMPORTS = ("tests/adapters/composer/stand_ins", "composer")

THERE, HERE = "composer", "trainer_hooks.compat.composer"
MEASURED = (
    "throughput/", "time/remaining_estimate", "time/train", "time/total", "time/val", "cpu_",
    "disk_", "network_",
)  # fmt: skip
"""The beginnings of names whose values a clock or the machine makes."""


class Package:
    """The modules of Composer, or of what takes its place."""

    def __init__(self, name):
        self.is_home = name == THERE
        for module in ("callbacks", "core", "loggers", "models", "utils"):
            setattr(self, module, importlib.import_module(f"{name}.{module}"))
        self.Trainer = importlib.import_module(name).Trainer


def loader(samples=14, seed=0):
    """A loader of images in batches of 4, of which the last has 2."""
    numbers = torch.Generator().manual_seed(seed)
    images = torch.rand(samples, 3, 4, 4, generator=numbers)
    return DataLoader(TensorDataset(images, torch.arange(samples) % 3), batch_size=4)


LOSSES = {
    "plain": lambda loss: loss,
    "per sample": None,
    "tuple": lambda loss: (loss, 0.5 * loss),
    "dict": lambda loss: {"first": loss, "second": 0.5 * loss},
    "dict with total": lambda loss: {"total": loss, "first": loss.detach(), "second": 0.5 * loss},
}


def make_model(package, kind="plain"):
    """A classifier whose loss is of a kind of `LOSSES`, with a metric in both stages."""

    class Net(package.models.ComposerModel):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 3))
            self.metrics = [MulticlassAccuracy(num_classes=3, average="micro") for _ in range(2)]

        def forward(self, batch):
            return self.layers(batch[0])

        def loss(self, outputs, batch):
            reduction = "none" if kind == "per sample" else "mean"
            loss = torch.nn.functional.cross_entropy(outputs, batch[1], reduction=reduction)
            return loss if kind == "per sample" else LOSSES[kind](loss)

        def get_metrics(self, is_train):
            return {"Accuracy": self.metrics[is_train]}

        def update_metric(self, batch, outputs, metric):
            metric.update(outputs, batch[1])

    return Net()


def fit(package, callbacks, kind="plain", loggers=(), is_closed=True, **options):
    """Train two epochs with an evaluation in the middle of each and at its end."""
    model = make_model(package, kind)
    trainer = package.Trainer(
        model=model, train_dataloader=loader(), run_name="run", device="cpu",
        optimizers=torch.optim.SGD(model.parameters(), 0.1), callbacks=list(callbacks),
        loggers=list(loggers), progress_bar=False, auto_log_hparams=False,
        **{"eval_dataloader": loader(6, 1), "max_duration": "2ep", **options},
    )  # fmt: skip
    trainer.fit()
    if is_closed:
        trainer.close()
    return trainer


def plain(value):
    """Return a value as data that can be compared."""
    if isinstance(value, torch.Tensor):
        numbers = value.detach().double()
        return [list(value.shape), round(float(numbers.sum()), 5), round(float(numbers.norm()), 4)]
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value


def fit_hosted(callbacks, kind="plain", size=None, **options):
    """Train Composer's model with its callbacks in a Trainer of trainer_hooks, as `fit` does."""
    model = make_model(Package(THERE), kind)
    given = {
        "accelerator": "cpu", "max_epochs": 2, "logger": False, "plugins": False,
        "enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False,
        "num_sanity_val_steps": 0, "log_every_n_steps": 1, "microbatch_size": size,
    }  # fmt: skip
    trainer = trainer_hooks.Trainer(callbacks=callbacks, **{**given, **options})
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    trainer.fit(adapt_module(model, optimizer), loader(), loader(6, 1))
    trainer.close()
    return model


# --- the state ---


@pytest.mark.parametrize("size", [None, 4, 3, 1])
@pytest.mark.parametrize("kind", LOSSES)
def test_the_state_is_the_same_at_each_event(kind, size, monkeypatch, tmp_path):
    """The batch, outputs and losses in two fits, an evaluation and a prediction."""

    def run(name):
        package, seen = Package(name), []

        class See(package.core.Callback):
            def run_event(self, event, state, logger):
                seen.append((
                    event.value, int(state.timestamp.batch), plain(state.batch),
                    plain(state.outputs), plain(state.loss), plain(state.total_loss_dict),
                ))  # fmt: skip

        trainer = fit(
            package, [See()], kind, is_closed=False, device_train_microbatch_size=size,
            eval_interval="3ba",
        )  # fmt: skip
        trainer.eval()
        trainer.predict(loader(6, 2))
        trainer.fit(duration="1ep")
        trainer.close()
        return seen, plain(trainer.state.model.layers[1].weight)

    monkeypatch.chdir(tmp_path)
    (there, weights), (here, weights_here) = run(THERE), run(HERE)
    assert weights_here == weights
    assert [row[:2] for row in here] == [row[:2] for row in there]
    differing = [(row, home) for row, home in zip(here, there, strict=True) if row != home]
    assert not differing, (Counter(row[0] for row, _ in differing), differing[0])
    never = {"iteration_end", "iteration_checkpoint"}  # a private attribute of Composer's ends them
    assert {row[0] for row in here} == {event.value for event in Event} - never


@pytest.mark.parametrize("size", [None, 4, 3, 1])
@pytest.mark.parametrize("kind", LOSSES)
def test_a_hosted_callback_sees_the_same_state(kind, size, monkeypatch, tmp_path):
    """The same in a Trainer of trainer_hooks, for two callbacks that share a state."""
    package = Package(THERE)

    class See(package.core.Callback):
        def __init__(self):
            self.seen = []

        def run_event(self, event, state, logger):
            if event.value not in ("init", "before_load", "after_load"):
                self.seen.append((
                    event.value, int(state.timestamp.batch), plain(state.batch),
                    plain(state.outputs), plain(state.loss), plain(dict(state.total_loss_dict)),
                ))  # fmt: skip

    monkeypatch.chdir(tmp_path)
    there, first, second = See(), See(), See()
    trainer = fit(package, [there], kind, device_train_microbatch_size=size)
    model = fit_hosted([first, second], kind, size)
    assert first.seen == there.seen
    assert second.seen == there.seen
    # the microbatch's share is multiplied there and divided by here
    assert torch.allclose(model.layers[1].weight, trainer.state.model.layers[1].weight, atol=1e-6)


@pytest.mark.parametrize("size", [None, 3])
def test_the_losses_are_there_for_a_callback_of_few_events(size, monkeypatch, tmp_path):
    """One that has no event at the start of a batch reads the losses of the last batch, too."""
    package = Package(THERE)

    class Few(package.core.Callback):
        def __init__(self):
            self.seen = []

        def batch_end(self, state, logger):
            self.seen.append(plain(dict(state.total_loss_dict)))

        def epoch_end(self, state, logger):
            self.seen.append((plain(state.loss), plain(dict(state.total_loss_dict))))

    class Last(Few):
        batch_end = package.core.Callback.batch_end

    monkeypatch.chdir(tmp_path)
    for kind in (Few, Last):
        there, here = kind(), kind()
        fit(package, [there], "dict", device_train_microbatch_size=size)
        fit_hosted([here], "dict", size)
        assert here.seen == there.seen


@pytest.mark.parametrize("size", [None, 4, 3])
def test_a_batch_of_a_callback_is_trained_on(size, monkeypatch, tmp_path):
    """Set at whichever event before the forward, it is trained on, in microbatches, too.

    At `before_train_batch` it is not in Composer, which has split the batch by then, and shows it
    afterwards all the same.
    """

    def run(name, at):
        package, after = Package(name), []

        class Double(package.core.Callback):
            def run_event(self, event, state, logger):
                if event.value == at:
                    state.batch = (2 * state.batch[0], state.batch[1])
                if event.value in ("after_train_batch", "batch_end"):
                    after.append(plain(state.batch))

        trainer = fit(package, [Double()], device_train_microbatch_size=size)
        return plain(trainer.state.model.layers[1].weight), after

    monkeypatch.chdir(tmp_path)
    doubled = run(THERE, "batch_start")
    assert run(HERE, "after_dataloader") == run(THERE, "after_dataloader") == doubled
    assert run(HERE, "batch_start") == doubled
    assert run(HERE, "before_forward") == run(THERE, "before_forward")
    assert run(HERE, "before_train_batch") == doubled
    untouched, shown = run(THERE, "before_train_batch")
    assert (untouched != doubled[0], shown) == (True, doubled[1])


def test_a_batch_of_another_size_is_refused_where_it_is_split(monkeypatch, tmp_path):
    """The microbatches of a batch that a callback sets late are as many and as large as before."""
    package = Package(HERE)

    class Shorten(package.core.Callback):
        def before_train_batch(self, state, logger):
            state.batch = [part[:3] for part in state.batch]

    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        RuntimeError, match=r"to 3 samples: the batch was split already, .* \[2, 2\]"
    ):
        fit(package, [Shorten()], device_train_microbatch_size=2)


# --- logged values ---


def make_destination(package):
    """A destination that keeps all that it is told, by kind and name."""

    class Keep(package.loggers.LoggerDestination):
        def __init__(self):
            self.rows, self.hyperparameters = {}, {}

        def keep(self, kind, name, step, *value):
            measured = kind == "metric" and name.startswith(MEASURED)
            self.rows.setdefault((kind, name), []).append((step, "measured" if measured else value))

        def log_metrics(self, metrics, step=None):
            for name, value in metrics.items():
                self.keep("metric", name, step, round(float(value), 5))

        def log_table(self, columns, rows, name="Table", step=None):
            self.keep("table", name, step, columns, rows)

        def log_images(self, images, name="Images", channels_last=False, step=None, masks=None, *_):
            shown = {label: mask.tolist() for label, mask in (masks or {}).items()}
            self.keep("images", name, step, type(images).__name__, images.tolist(), shown)

        def log_hyperparameters(self, hyperparameters):
            self.hyperparameters.update(hyperparameters)

    return Keep()


def make_callbacks(package):
    """Each built-in monitor, and a callback that logs something of each kind."""
    callbacks = package.callbacks

    class Logs(package.core.Callback):
        def run_event(self, event, state, logger):
            if event.value not in ("before_load", "after_load"):
                logger.log_metrics({f"mine/{event.value}": 1.0})

        def fit_start(self, state, logger):
            logger.log_table(["a"], [[1]], name="table")

    class Rows(Logs):
        def run_event(self, event, state, logger):
            super().run_event(event, state, logger)
            if event.value == "epoch_end":
                logger.log_table(["a"], [[1]], name="table")
                logger.log_images(torch.ones(2, 3, 4, 4), "ones")
                logger.log_hyperparameters({"epoch": int(state.timestamp.epoch)})
                logger.log_metrics({"chosen": 2.0}, step=77)

    return [
        Rows(), callbacks.LRMonitor(), callbacks.SpeedMonitor(window_size=2, time_unit="seconds"),
        callbacks.OptimizerMonitor(batch_log_interval=2), callbacks.RuntimeEstimator(),
        callbacks.ImageVisualizer(interval=3, num_images=2), callbacks.SystemMetricsMonitor(),
        callbacks.ActivationMonitor(interval="2ba"),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """What the destinations of both hold after one program: rows, memory, lines, scalars."""
    found = {}
    for name in (THERE, HERE):
        package, folder = Package(name), tmp_path_factory.mktemp("logged")
        memory, keep = package.loggers.InMemoryLogger(), make_destination(package)
        file = package.loggers.FileLogger(
            str(folder / "log.txt"), capture_stdout=False, capture_stderr=False
        )
        board = package.loggers.TensorboardLogger(str(folder / "board"))
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            trainer = fit(
                package, make_callbacks(package), loggers=[memory, keep, file, board],
                is_closed=False, device_train_microbatch_size=2, eval_interval="3ba", seed=3,
            )  # fmt: skip
            trainer.eval(loader(6, 2))
            trainer.close()
        found[name] = {"memory": memory, "keep": keep, "folder": Path(folder)}
    return found


def without_version(names):
    """Leave out the version and commit of Composer, which is not there."""
    return {k: v for k, v in names.items() if "composer_" not in k}


def test_the_same_rows_reach_a_destination(logged):
    """Names, steps, values, tables, images and hyperparameters, from whichever callback."""
    there, here = logged[THERE]["keep"], logged[HERE]["keep"]
    assert set(here.rows) == set(there.rows)
    differing = {key: (here.rows[key], there.rows[key]) for key in there.rows
                 if here.rows[key] != there.rows[key]}  # fmt: skip
    assert not differing
    assert here.hyperparameters == without_version(there.hyperparameters)


def test_the_same_is_kept_in_memory(logged):
    """The timestamps and values of each name."""

    def kept(memory):
        return {
            name: [
                (now.epoch.value, now.batch.value, now.batch_in_epoch.value, now.sample.value,
                 "measured" if name.startswith(MEASURED) else round(float(value), 5))
                for now, value in values
            ]
            for name, values in memory.data.items()
        }  # fmt: skip

    there, here = logged[THERE]["memory"], logged[HERE]["memory"]
    assert kept(here) == kept(there)
    assert here.hyperparameters == without_version(there.hyperparameters)
    assert here.tables == there.tables


def test_the_same_lines_are_written(logged):
    """`FileLogger` writes each line as often."""

    def lines(folder):
        text = (folder / "log.txt").read_text().splitlines()
        names = [line.partition("]: ")[2].split(":")[0] for line in text]
        return Counter(
            line.rpartition(":")[0] if name.startswith(MEASURED) else line
            for line, name in zip(text, names, strict=True)
        )

    assert lines(logged[HERE]["folder"]) == without_version(lines(logged[THERE]["folder"]))


def test_the_same_scalars_are_in_tensorboard(logged):
    """Tags, steps and values, but those of its table of hyperparameters."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def scalars(folder):
        found = {}
        for path in (folder / "board").rglob("events.*"):
            events = EventAccumulator(str(path.parent)).Reload()
            for tag in events.Tags()["scalars"]:
                if tag.startswith("hparams/") or tag == "hp_metric":
                    continue
                # sorted, since two files of one second are read in either order
                rows = sorted((one.step, round(one.value, 5)) for one in events.Scalars(tag))
                measured = tag.startswith(MEASURED)
                found[tag] = [step for step, _ in rows] if measured else rows
        return found

    assert scalars(logged[HERE]["folder"]) == scalars(logged[THERE]["folder"])


@pytest.mark.parametrize("is_logger", [False, True])
def test_the_same_rows_reach_a_hosted_destination(is_logger, monkeypatch, tmp_path):
    """Also with Composer's callbacks and destinations in a Trainer of trainer_hooks.

    That trainer does not count for the loggers, and logs the training metrics of a batch once.
    """
    package = Package(THERE)

    def rows(keep):
        trainers = ("time/epoch", "time/batch", "time/sample", "trainer/", "train_loss", "epoch")
        return {
            (kind, name): values if name != "metrics/train/Accuracy" else dict(values)
            for (kind, name), values in keep.rows.items()
            if not name.startswith(trainers)
        }

    def kept(memory):
        return {
            name: [(now.epoch.value, now.batch.value) for now, _ in values]
            for name, values in memory.data.items()
            if ("metric", name) in rows(keep) and name != "metrics/train/Accuracy"
        }

    monkeypatch.chdir(tmp_path)
    (keep, home), (memory, memory_there) = (
        (make_destination(package), make_destination(package)),
        (package.loggers.InMemoryLogger(), package.loggers.InMemoryLogger()),
    )
    fit(package, make_callbacks(package), loggers=[memory_there, home])
    destinations, callbacks = [memory, keep], make_callbacks(package)
    if is_logger:
        fit_hosted(callbacks, logger=destinations)
    else:
        fit_hosted([*callbacks, *destinations])
    there = rows(home)
    there["metric", "metrics/train/Accuracy"].pop(8)  # of the end of the last epoch
    assert rows(keep) == there
    assert kept(memory) == kept(memory_there)


@pytest.mark.parametrize("is_one_hot", [False, True])
def test_the_same_masks_reach_a_destination(is_one_hot, monkeypatch, tmp_path):
    """`ImageVisualizer` in the mode for segmentation, with ignored pixels."""

    def run(name):
        package = Package(name)

        class Net(package.models.ComposerModel):
            def __init__(self):
                super().__init__()
                torch.manual_seed(1)
                self.layer = torch.nn.Conv2d(3, 2, 1)

            def forward(self, batch):
                return self.layer(batch[0])

            def loss(self, outputs, batch):
                return outputs.square().mean()

        images = torch.rand(6, 3, 4, 4, generator=torch.Generator().manual_seed(0))
        classes = (images[:, 0] * 4).long() % 2
        targets = (
            torch.stack([classes, 1 - classes], 1)
            if is_one_hot
            else classes - (images[:, 1] > 0.5).long()
        )
        model, keep = Net(), make_destination(package)
        batches = DataLoader(TensorDataset(images, targets), batch_size=4)
        visualizer = package.callbacks.ImageVisualizer("1ba", "segmentation", num_images=3)
        trainer = package.Trainer(
            model=model, train_dataloader=batches, eval_dataloader=batches, max_duration="2ep",
            optimizers=torch.optim.SGD(model.parameters(), 0.1), callbacks=[visualizer],
            loggers=[keep], device="cpu", progress_bar=False,
        )  # fmt: skip
        trainer.fit()
        trainer.close()
        return {key: rows for key, rows in keep.rows.items() if key[0] == "images"}

    monkeypatch.chdir(tmp_path)
    there = run(THERE)
    assert set(there) == {("images", "Images/Train"), ("images", "Images/Eval")}
    assert run(HERE) == there


# --- random numbers ---


class Noisy(TensorDataset):
    """Images to which each access adds noise."""

    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        return image + torch.rand_like(image), label


def random_state():
    """Return short texts for the random states of torch, Python and NumPy."""
    numbers = torch.get_rng_state().numpy().tobytes(), random.getstate(), np.random.get_state()[1]
    return [
        zlib.crc32(part if isinstance(part, bytes) else repr(part).encode()) for part in numbers
    ]


def fit_drawing(name, evaluators=1, draws_in=(), ends=("2ep",), **options):
    """Train with dropout, shuffling and noise; return the random state at each event, and weights.

    Args:
        name: the package.
        evaluators: how many evaluators there are; their loaders draw as well.
        draws_in: events at which a callback draws.
        ends: how long the first fit lasts, and how much longer each further one.
        options: more options of the Trainer.
    """
    package, seen = Package(name), []

    class See(package.core.Callback):
        def run_event(self, event, state, logger):
            # between these a loader is opened, in another order there and here
            if event.value not in ("before_dataloader", "eval_start", "eval_end"):
                seen.append((event.value, int(state.timestamp.batch), random_state()))
            if event.value in draws_in:
                torch.rand(3), random.random(), np.random.rand()

    def noisy():
        numbers = torch.Generator().manual_seed(0)
        images = torch.rand(14, 3, 4, 4, generator=numbers)
        return DataLoader(Noisy(images, torch.arange(14) % 3), batch_size=4, shuffle=True)

    model = make_model(package)
    model.layers.insert(1, torch.nn.Dropout(0.5))
    loaders = [
        package.core.Evaluator(label=f"e{index}", dataloader=noisy(), metric_names=["Accuracy"])
        for index in range(evaluators)
    ]
    trainer = package.Trainer(
        model=model, train_dataloader=noisy(), eval_dataloader=loaders or None, device="cpu",
        optimizers=torch.optim.SGD(model.parameters(), 0.1), callbacks=[See()], seed=3,
        progress_bar=False, auto_log_hparams=False, run_name="run", max_duration=ends[0], **options,
    )  # fmt: skip
    seen.append(("made", 0, random_state()))
    trainer.fit()
    for longer in ends[1:]:
        trainer.eval()
        trainer.fit(duration=longer)
    trainer.close()
    return seen, model.layers[2].weight.tolist()


@pytest.mark.parametrize(
    "options",
    [
        {}, {"evaluators": 0}, {"evaluators": 2}, {"eval_interval": "3ba"}, {"eval_interval": 0},
        {"draws_in": ("init", "after_load", "fit_start", "epoch_start", "eval_after_all")},
        {"ends": ("1ep", "1ep", "1ep")}, {"ends": ("6ba",)}, {"train_subset_num_batches": 2},
    ],
)  # fmt: skip
def test_the_same_random_numbers_are_drawn(options, monkeypatch, tmp_path):
    """Composer seeds once more when its Trainer is made, and loads batches as a fit begins."""
    monkeypatch.chdir(tmp_path)
    there, weights = fit_drawing(THERE, **options)
    here, weights_here = fit_drawing(HERE, **options)
    assert here == there
    assert weights_here == weights


@pytest.mark.parametrize("ends_at", ["ep0-ba4", "ep0-ba2", "ep1-ba6"])
def test_a_resume_draws_the_numbers_of_a_whole_run(ends_at, monkeypatch, tmp_path):
    """Nothing is loaded beforehand that the checkpoint does not know of."""
    monkeypatch.chdir(tmp_path)
    whole, weights = fit_drawing(THERE)
    names = {"save_folder": "saved", "save_filename": "ep{epoch}-ba{batch}.pt"}
    saved = {**names, "save_interval": "2ba", "save_overwrite": True}
    assert fit_drawing(HERE, **saved)[1] == weights
    resumed, weights_resumed = fit_drawing(HERE, load_path=f"saved/{ends_at}.pt")
    batch = int(ends_at.partition("ba")[2])
    after = [row for row in whole if row[0] == "batch_start" and row[1] >= batch]
    assert [row for row in resumed if row[0] == "batch_start"] == after
    assert weights_resumed == weights


# --- resuming ---


def test_a_state_is_loaded_once(monkeypatch, tmp_path):
    """`load_state_dict` is called as the trainer is made, and not again by an evaluation or fit."""

    def run(name, folder):
        package, events = Package(name), []

        class Runs(package.core.Callback):
            def state_dict(self):
                return {"history": [1, 2]}

            def load_state_dict(self, state):
                events.append(["loaded", state["history"]])

            def run_event(self, event, state, logger):
                events.append([event.value])

        saver = {"save_filename": "e{epoch}.pt", "save_folder": str(folder), "save_overwrite": True}
        fit(package, [Runs()], max_duration="1ep", **saver)
        del events[:]
        trainer = fit(package, [Runs()], max_duration="2ep", load_path=str(folder / "e1.pt"),
                      is_closed=False)  # fmt: skip
        trainer.fit(duration="1ep")
        trainer.close()
        return [
            event if event[0] == "loaded" else event[0]
            for event in events
            if event[0] in ("loaded", "init", "before_load", "after_load", "fit_start", "fit_end")
        ]

    monkeypatch.chdir(tmp_path)
    there = run(THERE, tmp_path / "there")
    assert there.count(["loaded", [1, 2]]) == 1
    assert run(HERE, tmp_path / "here") == there


def test_an_evaluation_before_the_fit_loads_no_state_either(monkeypatch, tmp_path):
    """A trainer that evaluates a checkpoint first and then trains has loaded a state once."""
    package, loaded = Package(HERE), []

    class Runs(package.core.Callback):
        def state_dict(self):
            return {"runs": 1}

        def load_state_dict(self, state):
            loaded.append(state)

    monkeypatch.chdir(tmp_path)
    fit(package, [Runs()], max_duration="1ep", save_folder="saved", save_filename="e{epoch}.pt")
    model = make_model(package)
    callback = Runs()
    trainer = package.Trainer(
        model=model, train_dataloader=loader(), eval_dataloader=loader(6, 1), max_duration="2ep",
        optimizers=torch.optim.SGD(model.parameters(), 0.1), callbacks=[callback], device="cpu",
        progress_bar=False, load_path="saved/e1.pt",
    )  # fmt: skip
    trainer.eval()
    trainer.fit()
    assert loaded == [{"runs": 1}]
    callback.load_state_dict({"runs": 2})  # the class's own method again
    assert loaded[1:] == [{"runs": 2}]
    trainer.close()


def test_a_hosted_state_is_loaded_once(monkeypatch, tmp_path):
    """A callback of Composer in a Trainer of trainer_hooks, and one of ours in Composer's."""
    package, loaded = Package(THERE), []

    class Runs(package.core.Callback):
        def state_dict(self):
            return {"runs": 1}

        def load_state_dict(self, state):
            loaded.append(state)

    class Ours(trainer_hooks.Callback):
        def state_dict(self):
            return {"ours": 1}

        def load_state_dict(self, state_dict):
            loaded.append(state_dict)

    class Save(trainer_hooks.Callback):
        def on_fit_end(self, trainer, module):
            trainer.save_checkpoint("saved.ckpt")

    monkeypatch.chdir(tmp_path)
    fit_hosted([Runs(), Save()], max_epochs=1)
    trainer = trainer_hooks.Trainer(
        callbacks=[Runs()], accelerator="cpu", max_epochs=2, logger=False, plugins=False,
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
    )  # fmt: skip
    model = make_model(package)
    module = adapt_module(model, torch.optim.SGD(model.parameters(), 0.1))
    trainer.fit(module, loader(), loader(6, 1), ckpt_path="saved.ckpt")
    trainer.close()
    assert loaded == [{"runs": 1}]
    saver = {"save_filename": "e{epoch}.pt", "save_folder": "lent", "save_overwrite": True}
    fit(package, [to_composer(Ours())], max_duration="1ep", **saver)
    fit(package, [to_composer(Ours())], load_path="lent/e1.pt")
    assert loaded[1:] == [{"ours": 1}]


# --- ours in Composer's Trainer ---


def test_a_monitor_has_the_name_that_composer_logs(monkeypatch, tmp_path):
    """The metrics of the training and of each evaluator are apart, under Composer's names."""
    package, seen = Package(THERE), []

    class Look(trainer_hooks.Callback):
        def on_validation_end(self, trainer, module):
            seen.append({name: round(float(v), 5) for name, v in trainer.callback_metrics.items()})

    evaluators = [
        package.core.Evaluator(label=label, dataloader=loader(6, seed))
        for label, seed in (("first", 1), ("second", 2))
    ]
    keep = make_destination(package)
    stopper = EarlyStopping("metrics/first/Accuracy", mode="max", patience=10)
    monkeypatch.chdir(tmp_path)
    fit(package, [to_composer(Look()), to_composer(stopper)], loggers=[keep],
        eval_dataloader=evaluators)  # fmt: skip
    logged = {
        f"metrics/{label}/Accuracy": [value for _, (value,) in
                                      keep.rows["metric", f"metrics/{label}/Accuracy"]]
        for label in ("first", "second", "train")
    }  # fmt: skip
    assert [row["metrics/first/Accuracy"] for row in seen[::2]] == logged["metrics/first/Accuracy"]
    assert [row["metrics/second/Accuracy"] for row in seen[1::2]] == logged[
        "metrics/second/Accuracy"
    ]
    assert seen[-1]["metrics/train/Accuracy"] == logged["metrics/train/Accuracy"][-1]
    assert float(stopper.best_score) == pytest.approx(
        max(logged["metrics/first/Accuracy"]), abs=1e-4
    )
