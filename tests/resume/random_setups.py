"""The run that the options of a random configuration make."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import random_data as data
import random_schedulers
import torch
from random_data import BATCH, Noise, Numbered, Order, OwnBatches, seeded
from random_guests import make_guest
from random_modules import AddsLayers, Asking, Counter, Ending, Journal, Net, Skipper, wrapping
from torch.optim.lr_scheduler import OneCycleLR, ReduceLROnPlateau, StepLR
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    Subset,
    WeightedRandomSampler,
)

from trainer_hooks import Callback, Evaluator, every
from trainer_hooks.callbacks import (
    EarlyStopping,
    EMAWeightAveraging,
    ModelCheckpoint,
    ModelPruning,
    OnExceptionCheckpoint,
    StochasticWeightAveraging,
    WeightAveraging,
)
from trainer_hooks.compat.accelerated.callbacks import ModelEmaCallback
from trainer_hooks.loggers import CSVLogger, TensorBoardLogger

if TYPE_CHECKING:
    from pathlib import Path

Options = dict[str, Any]

ENDS: dict[str, dict[str, Any]] = {
    "3 epochs": {"max_epochs": 3},
    "2 epochs": {"max_epochs": 2},
    "7 steps": {"max_epochs": -1, "max_steps": 7},
    **{text: {"max_duration": text} for text in ("9ba", "31sp", "2ep", "2iter")},
}
STREAMS = {"sized stream": data.SizedStream, "stream": data.Stream}
STREAMS["buffered stream"] = data.BufferedStream
STREAMS["stateful stream"] = data.Stream
STREAMS["stateful stream with state"] = data.PlacedStream
PASSED_ON = (
    "precision",
    "accumulate_grad_batches",
    "microbatch_size",
    "gradient_clip_val",
    "check_val_every_n_epoch",
    "iteration_length",
    "limit_train_batches",
    "limit_val_batches",
    "num_sanity_val_steps",
    "log_every_n_steps",
)


@dataclass
class Setup:
    """What a run is made of; made anew for each."""

    module: Net
    train: Any
    val: Any
    callbacks: list[Callback]
    options: dict[str, Any] = field(default_factory=dict)


# --- data ---


def train_loader(o: Options) -> Any:
    augment: Any = None if o["augment"] == "none" else Noise(o["augment"])
    kind = data.CountedSamples if o["data"] == "stateful map with state" else Numbered
    samples = kind(o["samples"], data.Compose(augment) if o["is_deep"] else augment)
    loader = DataLoader
    if o["data"].startswith("stateful"):
        from torchdata.stateful_dataloader import StatefulDataLoader as loader
    if o["data"] == "list":
        return list(DataLoader(samples, BATCH))
    if o["data"] in ("iterable", "own sized"):
        return (data.SizedIterable if o["data"] == "own sized" else data.OwnIterable)(samples)
    worked: dict[str, Any] = {}
    if o["workers"]:
        worked = {"num_workers": o["workers"], "persistent_workers": o["persistent"]}
        worked["prefetch_factor"] = o["prefetch"]
    if o["data"] in STREAMS:
        return loader(STREAMS[o["data"]](samples), BATCH, **worked)
    source: Any = samples
    if o["is_deep"] and o["data"] == "map":  # a Subset would hide the state of the samples
        source = Subset(samples, range(o["samples"]))
    if o["collate"] == "with a state":
        worked["collate_fn"] = data.Collate()
    elif o["collate"] == "columns":
        worked["collate_fn"] = data.columns
    return loader(source, **ordered(o, source), **worked)


def ordered(o: Options, source: Any) -> dict[str, Any]:
    """Return the arguments of a loader that say in which order it gives the samples."""
    order, count = o["order"], len(source)
    whole: dict[str, Any] = {"batch_size": BATCH, "drop_last": o["drop_last"]}
    kind, _, how = order.partition(": ")
    if kind == "own":
        return {"sampler": Order(count, how), **whole}
    if how == "shuffles its list":
        return {"batch_sampler": data.ShufflesList(count)}
    if how == "counts its passes":
        return {"batch_sampler": data.CountsPasses(count)}
    if kind == "own batches":
        return {"batch_sampler": OwnBatches(Order(count, how))}
    if order == "batches":
        return {"batch_sampler": BatchSampler(RandomSampler(source), BATCH, o["drop_last"])}
    if order == "with replacement":
        return {"sampler": RandomSampler(source, replacement=True, num_samples=count), **whole}
    if order == "weighted":
        return {"sampler": WeightedRandomSampler([1.0 + n for n in range(count)], count), **whole}
    if order == "distributed":
        return {"sampler": DistributedSampler(source, 2, 0), **whole}
    if order == "shuffle by a generator":
        whole["generator"] = seeded(5)
    return {"shuffle": order.startswith("shuffle"), **whole}


def val_loaders(o: Options) -> Any:
    kind = o["val"]
    if kind == "none":
        return None
    options: dict[str, Any] = {"batch_size": BATCH, "num_workers": o["val_workers"]}
    options["shuffle"] = kind != "plain"
    if kind == "shuffle by a generator":
        options["generator"] = seeded(7)
    first = DataLoader(Numbered(11, Noise("all") if kind == "augmented" else None), **options)
    loaders = [first, DataLoader(Numbered(6), 3)] if kind == "two" else [first]
    if o["evaluators"] is not None:
        given = o["evaluators"]
        interval = None if given == "of the trainer" else interval_of(given)
        named = [Evaluator("a", loaders[0], eval_interval=interval)]
        return named + [Evaluator("b", loader) for loader in loaders[1:]]
    return loaders if len(loaders) > 1 else first


def interval_of(given: Any) -> Any:
    """Return an interval; `"a or b"` is a filter of two."""
    if isinstance(given, str) and " or " in given:
        first, second = given.split(" or ")
        return every(first) | every(second)
    return given


# --- optimizers and callbacks ---


def make_optimizers(net: Net) -> Any:
    """Return what `configure_optimizers` returns."""
    o = net.options
    parameters = net.layers.parameters()
    if o["optimizer"] == "LBFGS":
        optimizer: Any = torch.optim.LBFGS(parameters, lr=0.1, max_iter=3, history_size=2)
    elif o["optimizer"] == "SGD":
        optimizer = torch.optim.SGD(parameters, lr=0.02, momentum=0.9)
    else:
        optimizer = getattr(torch.optim, o["optimizer"])(parameters, lr=0.02)
    optimizers = [optimizer]
    if o["optimization"] == "two optimizers":
        optimizers.append(torch.optim.Adam(net.judge.parameters(), lr=0.01))
    schedulers: list[Any] = []
    if o["scheduler"] == "by step":
        schedulers = [{"scheduler": StepLR(optimizer, 2, 0.8), "interval": "step"}]
    elif o["scheduler"] == "by epoch":
        schedulers = [StepLR(optimizer, 1, 0.5)]
    elif o["scheduler"] == "plateau":
        plateau = ReduceLROnPlateau(optimizer, patience=0, threshold=10.0)
        schedulers = [{"scheduler": plateau, "monitor": "loss", "strict": False}]
    elif o["scheduler"] == "plateau by step":
        plateau = ReduceLROnPlateau(optimizer, patience=1, factor=0.9)
        schedulers = [
            {"scheduler": plateau, "monitor": "loss", "strict": False, "interval": "step"}
        ]
    elif o["scheduler"] in random_schedulers.KINDS:
        made = random_schedulers.make(o["scheduler"], optimizer)
        schedulers = [{"scheduler": made, "interval": "step"}]
    elif o["scheduler"] == "one cycle":
        schedulers = [{"scheduler": OneCycleLR(optimizer, 0.1, total_steps=99), "interval": "step"}]
    return optimizers, schedulers


def callbacks_of(o: Options, folder: Path, module: Net) -> list[Callback]:
    """Return the callbacks that are drawn; what they save is in the folder."""
    keeps = not o["callback_generator"]
    events = [*o["counts"], *(["on_validation_batch_end"] if o["counts_validation"] else [])]
    found: list[Callback] = [Counter(event, keeps=keeps) for event in events]
    if o["adds_layers"] != "no":
        found.append(AddsLayers(o["adds_layers"]))
    if o["wraps_hooks"] != "no":
        found.append(wrapping(o["wraps_hooks"]))
    found += [Journal()] * o["journal"] + [Asking()] * o["asks"]
    found += [Ending()] * o["ends_epochs"]
    if o["skips"] in ("batch", "gradients"):
        found.append(Skipper(o["skips"]))
    monitor = "loss" if o["val"] in ("none", "two") or o["evaluators"] else "val_loss"
    where: dict[str, Any] = {"dirpath": folder, "enable_version_counter": False}
    savers: dict[str, dict[str, Any]] = {
        "steps": {"every_n_train_steps": 3, "save_top_k": -1},
        "monitored": {"monitor": monitor, "save_top_k": 2, "save_last": True},
        "epochs": {"every_n_epochs": 1, "save_last": "link"},
    }
    if o["saver"] != "none":
        found.append(ModelCheckpoint(**savers[o["saver"]], **where))
    if o["stopper"] != "none":
        delta = 100.0 if o["stopper"] == "stops" else 0.0
        found.append(EarlyStopping(monitor, min_delta=delta, patience=1, strict=False))
    if o["average"] == "swa":
        found.append(StochasticWeightAveraging(0.01, swa_epoch_start=1, annealing_epochs=2))
    elif o["average"] == "validated ema":
        first = "/a" if o["evaluators"] else "/dataloader_idx_0" if o["val"] == "two" else ""
        watched = f"ema_model_val_loss{first}"
        found.append(ModelEmaCallback(0.5, save_path=folder / "ema.pt", watch_metric=watched))
    elif o["average"] != "none":
        kinds = {"ema": EMAWeightAveraging, "weights": WeightAveraging}
        found.append(kinds[o["average"]]())
    if o["prunes"]:
        found.append(ModelPruning("l1_unstructured", parameter_names=["weight"], amount=0.3))
    if o["chain"]:
        found += chain_savers(o, folder, monitor)
    if o["guest"] != "none":
        # among the others, at a place that the name of the guest decides
        found.insert(len(o["guest"]) % (len(found) + 1), make_guest(o["guest"], monitor, module))
    return found


def chain_savers(o: Options, folder: Path, monitor: str) -> list[Callback]:
    """Return the savers of a run that is cut and resumed from what they have left."""
    every, k = o["save_every"], o["save_top_k"]
    epochs = {"epoch": 1, "2 epochs": 2}.get(every)
    where: dict[str, Any] = {"enable_version_counter": o["versions"]}
    where["dirpath"] = folder if o["folder"] == "named" else None
    savers: list[Callback] = [
        ModelCheckpoint(
            monitor=monitor if k == 2 else None,
            save_top_k=k,
            save_last=o["save_last"],
            async_save=o["async_save"],
            **({"every_n_epochs": epochs} if epochs else {"every_n_train_steps": every}),
            **where,
        )
    ]
    second: dict[str, dict[str, Any]] = {
        "epochs": {"every_n_epochs": 1, "filename": "second-{epoch}-{step}"},
        "top": {"monitor": monitor, "save_top_k": 2, "mode": "max", "filename": "top-{step}"},
        "last": {"every_n_train_steps": 4, "save_top_k": 0, "save_last": True},
        "exception": {"every_n_epochs": 1, "save_on_exception": True, "save_top_k": 0},
    }
    if o["second_saver"] in second:
        saver = ModelCheckpoint(**second[o["second_saver"]], **where)
        if o["second_saver"] == "last":
            saver.CHECKPOINT_NAME_LAST = "second-last"
        savers.append(saver)
    elif o["second_saver"] == "on exception":
        savers.append(OnExceptionCheckpoint(folder))
    return savers


def loggers_of(o: Options, folder: Path) -> Any:
    """Return the value of the Trainer's option `logger`."""
    loggers: list[Any] = []
    if o["logger"] in ("csv", "both"):
        loggers.append(CSVLogger(folder, flush_logs_every_n_steps=2 if o["versions"] else 100))
    if o["logger"] in ("tensorboard", "both"):
        loggers.append(TensorBoardLogger(folder))
    return loggers or False


def setup_of(options: Options, folder: Path) -> Setup:
    """Return what a run of the options is made of."""
    trainer_options = {name: options[name] for name in PASSED_ON} | ENDS[options["ends"]]
    trainer_options["val_check_interval"] = interval_of(options["val_check_interval"])
    if options["ends"] == "2iter" and options["iteration_length"] is None:
        trainer_options["iteration_length"] = 1
    module = Net(options, make_optimizers)
    setup = Setup(
        module,
        train_loader(options),
        val_loaders(options),
        callbacks_of(options, folder, module),
        trainer_options,
    )
    if options["renews"]:
        _let_module_make(setup, options)
    return setup


def _let_module_make(setup: Setup, o: Options) -> None:
    """Let the module make the loaders, with more samples in each second epoch."""
    setup.options["reload_dataloaders_every_n_epochs"] = o["renews"]
    setup.train = setup.val = None
    module = setup.module

    def train_dataloader() -> Any:
        is_larger = o["average"] != "swa" and module.trainer.current_epoch % 2
        return train_loader({**o, "samples": o["samples"] + BATCH * is_larger})

    module.train_dataloader = train_dataloader
    if o["val"] != "none":
        module.val_dataloader = lambda: val_loaders(o)
