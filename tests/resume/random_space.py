"""What a random configuration can be, and which options go together."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import random_schedulers
from random_guests import GUESTS

from trainer_hooks import Trainer

if TYPE_CHECKING:
    from collections.abc import Callable

Options = dict[str, Any]

# What an option can be; what is simplest comes first, and is drawn as often as all others together.
SPACE: dict[str, tuple[Any, ...]] = {
    "cut": ("error", "file", "stop", "signal", "signal in validation", "hook"),
    "second_cut": (False, True),
    "data": (
        "map",
        "list",
        "sized stream",
        "stream",
        "buffered stream",
        "iterable",
        "own sized",
        "stateful map",  # of torchdata's StatefulDataLoader, whose data set may have a state
        "stateful map with state",
        "stateful stream",
        "stateful stream with state",
    ),
    "samples": (20, 15, 16, 30, 13),
    "augment": ("none", "torch", "numpy", "python", "all", "own generators"),
    "is_deep": (False, True),
    "order": (
        "as they are",
        "shuffle",
        "shuffle by a generator",
        "with replacement",
        "weighted",
        "batches",
        "distributed",
        "own: at once",
        "own: numpy at once",
        "own: as it goes",
        "own: own torch generator",
        "own: own numpy generator",
        "own: own python generator",
        "own: by epoch",
        "own batches: as it goes",
        "own batches: own torch generator",
        "own batches: by epoch",
        "own batches: shuffles its list",
        "own batches: counts its passes",
    ),
    "collate": ("of torch", "with a state", "columns"),
    "drop_last": (False, True),
    "workers": (0, 0, 0, 0, 1, 2),
    "persistent": (False, True),
    "prefetch": (None, 1),
    "val": ("plain", "none", "shuffle", "shuffle by a generator", "augmented", "two"),
    "val_workers": (0, 0, 0, 0, 1),
    "evaluators": (None, "of the trainer", "1ep", "2ep", "3ba", "2st or 1ep"),
    "batch_norm": (False, True),
    "dropout": (False, True),
    "module_generator": (False, True),
    "changes_mode": ("no", "eval", "freeze"),
    "logs": ("plain", "everywhere"),
    "metric_objects": (False, True),
    "optimization": ("automatic", "manual", "manual window", "two optimizers"),
    "optimizer": ("SGD", "Adam", "AdamW", "NAdam", "LBFGS"),
    "scheduler": (
        "none",
        "by step",
        "by epoch",
        "plateau",
        "one cycle",
        "plateau by step",
        *random_schedulers.KINDS,
    ),
    "precision": ("32-true", "64-true", "bf16-mixed", "16-mixed"),
    "accumulate_grad_batches": (1, 2, 3),
    "microbatch_size": (None, 2, 3),
    "gradient_clip_val": (None, 0.5),
    "skips": ("none", "no loss", "batch", "gradients"),
    "counts": ((), ("on_train_batch_end",), ("on_train_epoch_end", "on_train_epoch_start")),
    "counts_validation": (False, True),
    "callback_generator": (False, True),
    "journal": (False, True),
    "asks": (False, True),
    "saver": ("none", "steps", "monitored", "epochs"),
    "stopper": ("none", "patient", "stops"),
    "average": ("none", "ema", "weights", "swa", "validated ema"),
    "prunes": (False, True),
    "val_check_interval": (1.0, 0.4, 2, "3ba", "2st", "2ba or 1ep", "9sp"),
    "check_val_every_n_epoch": (1, 2, None),
    "ends": ("3 epochs", "2 epochs", "7 steps", "9ba", "31sp", "2ep", "2iter"),
    "iteration_length": (None, 2),
    "limit_train_batches": (1.0, 3, 0.7),
    "limit_val_batches": (1.0, 1),
    "num_sanity_val_steps": (0, 1),
    "log_every_n_steps": (1, 2),
    "renews": (0, 1, 2),
    "ends_epochs": (False, True),
    "memory": ("none", "in place", "assigned", "grows"),  # a buffer that no state_dict holds
    "layers": ("plain", "lazy", "compiled"),
    "adds_layers": ("no", "in setup", "at the start"),
    "wraps_hooks": ("no", "in the class", "on the object"),
    # of chains alone: the cuts, savers, loggers, and a callback of another framework
    "chain": ((),),  # drawn by itself: see `random_chains.draw_chain`
    "save_every": (1, 2, 3, "epoch", "2 epochs"),
    "save_top_k": (1, -1, 2, 0),
    "save_last": (None, True, "link"),
    "async_save": (False, True),
    "versions": (True, False),
    "second_saver": ("none", "epochs", "top", "last", "exception", "on exception"),
    "folder": ("named", "of the run"),
    "by_hand": (False, True),  # whether a script saves once more after an error or Ctrl-C
    "logger": ("none", "csv", "tensorboard", "both"),
    "guest": ("none", "none", "none", "none", "none", "none", "none", *GUESTS),
    # drawn by nobody: `--own-loop` lets a loop by Run take the place of fit
    "loop": ("trainer", "run"),
    "accelerator": ("cpu", "cuda"),  # by `--accelerator`
}


NOT_DRAWN = ("loop", "accelerator")

CHAINED = tuple(SPACE)[tuple(SPACE).index("chain") + 1 : -len(NOT_DRAWN)]
"""The options that only chains have."""

STATEFUL_MAP = ("stateful map", "stateful map with state")
WITHOUT_LENGTH = ("stream", "buffered stream", "iterable", "stateful stream")
WITHOUT_LENGTH += ("stateful stream with state",)
MANUAL = ("accumulate_grad_batches", "microbatch_size", "gradient_clip_val", "skips")
OF_VALIDATION = (
    "val_workers",
    "evaluators",
    "val_check_interval",
    "check_val_every_n_epoch",
    "limit_val_batches",
    "num_sanity_val_steps",
    "counts_validation",
)

DECIDED_BY_THE_TRAINER = (
    "optimization",
    "microbatch_size",
    "evaluators",
    "renews",
    "num_sanity_val_steps",
)
"""The options that a loop by Run has no part in."""

# What cannot go together, as a condition, and the options that are made simplest then. A later rule
# may rest on an earlier one.
RULES: tuple[tuple[Callable[[Options], bool], tuple[str, ...]], ...] = (
    (lambda o: o["data"] not in ("map", *STATEFUL_MAP), ("order", "drop_last", "is_deep")),
    (lambda o: o["data"] in ("list", "iterable", "own sized"), ("workers",)),
    (lambda o: o["data"] == "list", ("augment",)),
    (lambda o: o["data"] != "map", ("collate",)),
    # each worker has a copy of its own, whose state no checkpoint holds
    (lambda o: o["workers"] > 0 and o["collate"] == "with a state", ("collate",)),
    (lambda o: o["workers"] == 0, ("persistent", "prefetch")),
    (lambda o: o["augment"] == "none", ("is_deep",)),
    (lambda o: o["data"] in WITHOUT_LENGTH and o["average"] == "swa", ("average",)),
    (lambda o: _is_share(o, "val_check_interval"), ("val_check_interval",)),
    (lambda o: _is_share(o, "limit_train_batches"), ("limit_train_batches",)),
    (lambda o: o["optimization"] != "automatic", MANUAL),
    (lambda o: o["optimization"] != "automatic" and o["optimizer"] == "LBFGS", ("optimizer",)),
    (lambda o: o["optimization"] != "automatic" and o["average"] == "swa", ("average",)),
    # a part of one sample is too small for it
    (lambda o: o["batch_norm"], ("microbatch_size",)),
    # a last batch of one sample, which BatchNorm refuses
    (lambda o: o["batch_norm"] and o["samples"] == 13, ("samples",)),
    # so may be the last batch of a worker's share, if an epoch has other samples than the first
    (lambda o: o["batch_norm"] and o["workers"] and "stream" in o["data"], ("renews",)),
    (lambda o: o["optimizer"] == "LBFGS", MANUAL),
    (lambda o: o["optimizer"] == "LBFGS" and o["precision"] == "16-mixed", ("precision",)),
    (lambda o: o["optimizer"] == "LBFGS" and o["scheduler"] == "one cycle", ("scheduler",)),
    (lambda o: o["val"] == "none", OF_VALIDATION),
    (lambda o: o["val"] == "none" and o["cut"] == "signal in validation", ("cut",)),
    (lambda o: o["val"] == "none" and o["average"] == "validated ema", ("average",)),
    (lambda o: isinstance(o["val_check_interval"], str), ("check_val_every_n_epoch",)),
    (
        lambda o: o["check_val_every_n_epoch"] is None and o["val_check_interval"] in (0.4, 1.0),
        ("check_val_every_n_epoch",),
    ),
    (lambda o: o["average"] == "swa" and not o["ends"].endswith("epochs"), ("ends",)),
    (lambda o: not o["chain"], CHAINED),
    (lambda o: o["loop"] == "run", DECIDED_BY_THE_TRAINER),
    (
        lambda o: o["loop"] == "run" and isinstance(o["val_check_interval"], str),
        ("val_check_interval",),
    ),
    (lambda o: o["loop"] == "run" and o["optimizer"] == "LBFGS", ("optimizer",)),
    (lambda o: o["loop"] == "run" and o["average"] == "swa", ("average",)),
    (lambda o: o["loop"] == "run" and o["average"] == "validated ema", ("average",)),
    # a chain has cuts and savers of its own
    (lambda o: bool(o["chain"]), ("cut", "second_cut", "saver")),
    # an average cannot follow parameters that pruning replaces
    (lambda o: o["guest"].endswith("average") or o["average"] != "none", ("prunes",)),
    # pruning takes weights that have a size
    (lambda o: o["prunes"] and o["layers"] == "lazy", ("layers",)),
    # averages of other frameworks copy the weights before the first batch
    (lambda o: o["guest"].endswith("average") and o["layers"] == "lazy", ("layers",)),
    # torch refuses to freeze a weight without a size
    (lambda o: o["layers"] == "lazy" and o["changes_mode"] == "freeze", ("layers",)),
    # an average begins with the layers that there are before
    (
        lambda o: (
            (o["average"] not in ("none", "swa") or o["guest"].endswith("average"))
            and o["adds_layers"] == "at the start"
        ),
        ("adds_layers",),
    ),
    # nor does that of another framework, whose files lack what other callbacks add in setup
    (
        lambda o: o["guest"].endswith("average") and o["adds_layers"] == "in setup",
        ("adds_layers",),
    ),
    # torchdata's loader keeps the state of a sampler that has a state_dict, and refuses others
    (lambda o: "stateful" in o["data"] and "its" in o["order"], ("order",)),
    # two callbacks that put their average into the module are refused
    (lambda o: o["guest"] == "lightning: average", ("average",)),
    # the file of a save that fails is not there, and is not saved later
    (lambda o: _fails_in_save(o) and "exception" in o["second_saver"], ("second_saver",)),
)


def trainer_class(options: Options) -> type[Trainer]:
    """Return the class whose `fit` trains: the Trainer, or one that writes a loop by Run."""
    if options["loop"] != "run":
        return Trainer
    # a stage of a chain is a program of its own, which pytest's path is not set for
    sys.path.append(str(Path(__file__).parents[1] / "support"))
    from own_loops import TrainerByRun

    return TrainerByRun


def _is_share(o: Options, name: str) -> bool:
    return o["data"] in WITHOUT_LENGTH and isinstance(o[name], float)


def _fails_in_save(o: Options) -> bool:
    in_save = ("on_save_checkpoint", "on_checkpoint_saved")
    return any(how == "error" and place in in_save for how, place, _ in o["chain"])


def fitting(options: Options) -> Options:
    """Return options without those that cannot go together, each put back to what is simplest."""
    fit = dict(options)
    for is_broken, names in RULES:
        if is_broken(fit):
            fit.update({name: SPACE[name][0] for name in names})
    return fit
