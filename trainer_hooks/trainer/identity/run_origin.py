"""The origin of a run and the identity of its process, as a checkpoint's summary holds them."""

from __future__ import annotations

import hashlib
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from trainer_hooks._lazy import class_if_loaded
from trainer_hooks._system import process_start, shell_line
from trainer_hooks.trainer.options.config import TrainerConfig

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainer_hooks.callbacks.reporting.run_config import RunConfigCallback

_DIGITS = 16
_LONGEST_COMMAND = 300
_OF_TRAINING = frozenset(
    {
        *("accumulate_grad_batches", "gradient_clip_algorithm", "gradient_clip_val", "precision"),
        *("limit_train_batches", "microbatch_size", "overfit_batches", "sync_batchnorm"),
        *("reload_dataloaders_every_n_epochs", "use_distributed_sampler"),
    }
)
"""The options of the Trainer that change the weights which a training leads to."""
_OF_LOADERS = frozenset(
    {
        *("data_dir", "num_workers", "persistent_workers", "pin_memory", "prefetch_factor"),
        *("root", "val_batch_size", "test_batch_size", "workers"),
    }
)
"""Hyperparameters of data modules that a restart on another machine may change."""
_FLAGS = frozenset(
    {
        *("bar", "no_bar", "no_progress", "no_progress_bar", "progress", "progress_bar"),
        *("quiet", "silent", "verbose"),
    }
)
"""Options of scripts that may come without a value."""
_OTHER_NAMES = frozenset({"epochs", "n_epochs", "num_epochs", "num_train_epochs", "num_steps"})
"""Names that scripts give to limits of length."""
_CHECKPOINT_NAMES = frozenset(
    {
        *("checkpoint", "checkpoint_path", "ckpt", "ckpt_path"),
        *("resume", "resume_from", "resume_from_checkpoint"),
    }
)
"""Names that scripts give to `ckpt_path`; as a flag they come without a value."""
_CHECKPOINT_WORDS = frozenset({"auto", "best", "false", "last", "true"})
"""Values of those options that name no checkpoint of another run."""


def compute_run_origin(
    hparams: Mapping[str, Any] | None,
    callbacks: Iterable[Any] = (),
    data_hparams: Iterable[Mapping[str, Any]] = (),
    places: Iterable[str] = (),
) -> str:
    """Return a digest that a restart of this run shares, and other trainings do not.

    It covers the hyperparameters of the module and the data module, folders and versions that the
    user gave, and the command line without the program's folder and
    without what changes no training, such as the number of epochs. In a notebook the command line
    is the server's, and is left out. If the run was made from a config, what the config says of the
    training replaces the command line.

    Args:
        hparams: the module's hyperparameters, as checkpoints hold them.
        callbacks: the run's callbacks, which may include its config.
        data_hparams: the hyperparameters of its data modules, of which those of loaders are left
            out, such as the number of workers.
        places: folders, names and versions that the user gave.
    """
    config = run_config(callbacks)
    told = run_command(callbacks) if config is None else [_plain(training_values(config.identity))]
    data = (
        {name: value for name, value in each.items() if name not in _OF_LOADERS}
        for each in data_hparams
    )
    more = [*(_plain(each) for each in data if each), *places]
    text = "\0".join([*told, _plain(dict(hparams or {})), *more])
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:_DIGITS]


def run_config(callbacks: Iterable[Any]) -> RunConfigCallback | None:
    """Return the callback that keeps the config of a run, if it was made from one."""
    kind = class_if_loaded("trainer_hooks.callbacks.reporting.run_config", "RunConfigCallback")
    configs = (callback for callback in callbacks if isinstance(callback, kind))
    return cast("RunConfigCallback | None", next(configs, None))


def run_command(callbacks: Iterable[Any] = ()) -> list[str]:
    """Return the words of the command line that may change the training, the program's name first.

    There are none in a notebook, or where a config replaces them.
    """
    from trainer_hooks.callbacks.reporting.run_facts import command  # without secrets

    if "ipykernel" in sys.modules or run_config(callbacks) is not None:
        return []
    program, *arguments = command(sys.argv or [""])
    words = [Path(program).name]
    previous = ""  # the option before, if its value may follow and is to be left out
    for word in arguments:
        name, separator, value = word.partition("=")
        if _is_beside_training(name, value) and (separator or name.startswith("-")):
            previous = "" if separator else name
        elif not (previous and _is_value(word, previous)):
            words.append(word)
            previous = ""
        else:
            previous = ""
    return words


def shown_command(callbacks: Iterable[Any] = ()) -> str:
    """Return the beginning of `run_command` as printable text, short enough for a seal."""
    text = shell_line(run_command(callbacks))[:_LONGEST_COMMAND]
    return "".join(each if " " <= each <= "~" else "?" for each in text)


def training_values(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a config that change the training."""
    beside = ("ckpt_path", "config", "output", "overrides", "verbose", "weights_only")
    values = {name: value for name, value in config.items() if name not in beside}
    trainer = values.pop("trainer", None)
    if isinstance(trainer, Mapping):
        options = {name: trainer[name] for name in trainer if name in _OF_TRAINING}
        if options:
            values["trainer"] = options
    return values


def _is_beside_training(option: str, value: str) -> bool:
    """Return whether an option of a command line changes no training.

    Such are limits of length, bars, loggers, and a word that lets the run find its own checkpoint.

    Args:
        option: the option.
        value: its value after `=`; empty if it has none there.
    """
    if _is_for_checkpoint(option):
        return not value or value.lower() in _CHECKPOINT_WORDS
    path = option.lstrip("-").replace("-", "_").removesuffix("+").split(".")
    name = path[1] if path[0] == "trainer" and len(path) > 1 else path[0]
    return len(path) == 1 + (path[0] == "trainer") and name in _beside_training()


def _is_for_checkpoint(option: str) -> bool:
    return option.lstrip("-").replace("-", "_") in _CHECKPOINT_NAMES


def _is_value(word: str, option: str) -> bool:
    """Return whether the word after an option is its value, and is to be left out with it."""
    if _is_for_checkpoint(option):
        return word.lower() in _CHECKPOINT_WORDS
    is_flag = option.lstrip("-").replace("-", "_") in _FLAGS
    if is_flag:
        return word.lower() in ("true", "false")
    return not word.startswith("-") or word[1:2].isdigit()


@cache
def _beside_training() -> frozenset[str]:
    options = {item.name for item in fields(TrainerConfig)}
    return frozenset(options - _OF_TRAINING | _FLAGS | _OTHER_NAMES)


def process_identity() -> str:
    """Return a text that identifies this process among all, on this machine and elsewhere."""
    return _identity_of(os.getpid())


@cache
def _identity_of(pid: int) -> str:  # by pid: a forked process has a copy of this cache
    # with the start time, since the system reuses process ids
    return f"{_machine()} {pid} {process_start(pid)}"


def is_live_elsewhere(identity: str) -> bool:
    """Return whether a `process_identity` is that of another live process of this machine."""
    machine, _, rest = identity.partition(" ")
    pid, _, started = rest.partition(" ")
    # a process that has started this one, as a notebook or a script does, waits for it
    is_own = pid.isdigit() and int(pid) in (os.getpid(), os.getppid())
    if machine != _machine() or not pid.isdigit() or is_own:
        return False
    # None where no such process is: that equals no text
    return process_start(int(pid)) == started


def _machine() -> str:
    """Return a digest of this machine's name; the name itself stays out of files."""
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:_DIGITS]


def _plain(value: Any) -> str:
    """Return a text that is equal in every process for equal values."""
    if isinstance(value, Mapping):
        # sorted, and not json or pickle: sets have another order in each process
        return str(sorted((repr(key), _plain(item)) for key, item in value.items()))
    if isinstance(value, set | frozenset):
        return str(sorted(map(_plain, value)))
    if isinstance(value, list | tuple):
        return str([_plain(item) for item in value])
    return repr(value)
