"""Data modules, loaders, and the way of a batch from a loader to the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of

if TYPE_CHECKING:
    from trainer_hooks.data.combined import CombinedLoader
    from trainer_hooks.data.counting import checked_counter, count_samples, count_tokens, measure
    from trainer_hooks.data.evaluator import Evaluator, evaluators_in
    from trainer_hooks.data.generators import (
        KeptGenerator,
        generator_states,
        generators_in,
        restore_generators,
    )
    from trainer_hooks.data.hooks import DataHooks, defines
    from trainer_hooks.data.indices import IndexNotes, noting_indices
    from trainer_hooks.data.loaders import (
        as_eval_loaders,
        as_train_loader,
        set_epoch,
        without_shuffling,
    )
    from trainer_hooks.data.nesting import in_form_of, loaders_in
    from trainer_hooks.data.sharing import shared
    from trainer_hooks.data.showing import shown
    from trainer_hooks.data.sizes import (
        limited,
        no_batch,
        number_of_batches,
        samples_of,
        shortage,
    )
    from trainer_hooks.data.splitting import samples_in, split_batch
    from trainer_hooks.data.stream import TrainStream
    from trainer_hooks.data.transfer import BatchTransfer
    from trainer_hooks.data.workers import iterator_of

__all__ = [
    "BatchTransfer",
    "CombinedLoader",
    "DataHooks",
    "Evaluator",
    "IndexNotes",
    "KeptGenerator",
    "TrainStream",
    "as_eval_loaders",
    "as_train_loader",
    "checked_counter",
    "count_samples",
    "count_tokens",
    "defines",
    "evaluators_in",
    "generator_states",
    "generators_in",
    "in_form_of",
    "iterator_of",
    "limited",
    "loaders_in",
    "measure",
    "no_batch",
    "noting_indices",
    "number_of_batches",
    "restore_generators",
    "samples_in",
    "samples_of",
    "set_epoch",
    "shared",
    "shortage",
    "shown",
    "split_batch",
    "without_shuffling",
]

if not TYPE_CHECKING:  # so that a name that is not there is an error to type checkers
    __getattr__ = loader_of(
        __name__,
        {
            "BatchTransfer": "transfer",
            "CombinedLoader": "combined",
            "DataHooks": "hooks",
            "Evaluator": "evaluator",
            "IndexNotes": "indices",
            "KeptGenerator": "generators",
            "TrainStream": "stream",
            "as_eval_loaders": "loaders",
            "as_train_loader": "loaders",
            "checked_counter": "counting",
            "count_samples": "counting",
            "count_tokens": "counting",
            "defines": "hooks",
            "evaluators_in": "evaluator",
            "generator_states": "generators",
            "generators_in": "generators",
            "iterator_of": "workers",
            "limited": "sizes",
            "measure": "counting",
            "in_form_of": "nesting",
            "loaders_in": "nesting",
            "no_batch": "sizes",
            "noting_indices": "indices",
            "number_of_batches": "sizes",
            "restore_generators": "generators",
            "samples_in": "splitting",
            "samples_of": "sizes",
            "set_epoch": "loaders",
            "shared": "sharing",
            "shortage": "sizes",
            "shown": "showing",
            "split_batch": "splitting",
            "without_shuffling": "loaders",
        },
    )
