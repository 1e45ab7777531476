"""One process that stands for one rank of many: `_ranks_worker.py RANK WORLD [RESULT]`.

torch's fake process group takes each collective for done. What comes as pickled objects, which it
leaves unmade, is taken to be the same from every rank, but for the digests of a save: a rank's
tensors are taken to differ from rank 0's. So the training is of no use, and what it asks of the
others is what it would ask.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import tempfile
import threading
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

if TYPE_CHECKING:
    from collections.abc import Callable

PER_MACHINE = 8
STEPS = 10

Seen = dict[str, Counter[str]]
"""By the phase of the run: how many collectives, and bytes that this rank gives and gets."""


class CountedStore:
    """A key-value store that counts the requests of the main thread.

    The watchdog's thread polls by the clock: its requests would count differently in each run.
    """

    def __init__(self, notes: Notes) -> None:
        self._store, self._notes = dist.HashStore(), notes

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._store, name)

        def counted(*args: Any) -> Any:
            if threading.current_thread() is threading.main_thread():
                self._notes.note("requests", 0, 0)
            return call(*args)

        return counted


class Notes:
    """Counts what a rank asks of the others, by the phase that it is in."""

    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.world = rank, world
        self.phase = "start"
        self.seen: Seen = {}

    def note(self, kind: str, gives: int, gets: int) -> None:
        found = self.seen.setdefault(self.phase, Counter())
        found.update({kind: 1, "gives": gives, "gets": gets})

    def tensor(self, name: str, copies: Callable[[int], int]) -> None:
        """Count a collective of tensors; of its result a rank holds some copies of what it gave."""
        original = getattr(dist, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            tensor = next(one for one in (*args, *args[0]) if isinstance(one, torch.Tensor))
            self.note("tensors", tensor.nbytes, tensor.nbytes * copies(self.world))
            return original(*args, **kwargs)

        setattr(dist, name, counted)

    def objects(self, owner: Any, name: str, answer: Callable[[Any], tuple[Any, int]]) -> None:
        """Count a collective of pickled objects, of which this process makes the result."""

        def counted(_: Any, obj: Any, *args: Any) -> Any:
            size = len(pickle.dumps(obj))
            found, copies = answer(obj)
            self.note("objects", size, size * copies)
            return found

        setattr(owner, name, counted)


def pretend(notes: Notes) -> None:
    """Make this process one rank of many, and count what it asks of the others."""
    from trainer_hooks.runtime import process_group

    rank, world = notes.rank, notes.world
    here = min(world, PER_MACHINE)
    places = {
        "RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank % here, "LOCAL_WORLD_SIZE": here,
        "GROUP_RANK": rank // here, "GROUP_WORLD_SIZE": world // here,
    }  # fmt: skip
    os.environ.update({name: str(place) for name, place in places.items()})
    os.environ.update({"TORCHELASTIC_RUN_ID": "ranks", "MASTER_ADDR": "none", "MASTER_PORT": "1"})
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    process_group._attempt_store = lambda _: CountedStore(notes)  # noqa: SLF001 - the fake one keeps nothing
    dist.new_group = lambda *_, **__: dist.group.WORLD
    for name, copies in (("all_reduce", lambda _: 1), ("broadcast", lambda _: 1)):
        notes.tensor(name, copies)
    notes.tensor("all_gather", lambda world: world)
    group, is_zero = process_group.ProcessGroup, rank == 0
    notes.objects(group, "gather", lambda obj: ([obj] * world, world))
    notes.objects(
        group,
        "gather_to_zero",
        lambda obj: ([obj] * world if is_zero else [], world if is_zero else 0),
    )
    notes.objects(group, "broadcast", lambda obj: (with_other_values(obj), 1))
    make = DistributedDataParallel.__init__

    def make_counted(ddp: Any, *args: Any, **kwargs: Any) -> None:
        make(ddp, *args, **kwargs)

        def hook(_: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
            notes.note("gradients", bucket.buffer().nbytes, bucket.buffer().nbytes)
            done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
            done.set_result(bucket.buffer())
            return done

        hook.__annotations__.clear()  # torch compares them, and here they are texts
        ddp.register_comm_hook(None, hook)

    DistributedDataParallel.__init__ = make_counted  # type: ignore[method-assign]


def with_other_values(obj: Any) -> Any:
    """Return what rank 0 broadcasts before a save if each value of each tensor differs there."""
    if not (isinstance(obj, dict) and "parts" in obj):
        return obj
    parts = {name: found and (found[0], b"") for name, found in obj["parts"].items()}
    return {**obj, "parts": parts}


def train(notes: Notes, folder: Path) -> None:
    """Train for two epochs of one step a batch, and note in which phase what is asked."""
    from trainer_hooks import Callback, Module, Trainer

    class Net(Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(64, 64)

        def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
            loss = self.layer(batch).square().mean()
            self.log_dict({f"metric_{n}": loss for n in range(10)}, on_epoch=True, sync_dist=True)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    class Phases(Callback):
        def on_train_batch_start(self, *_: Any) -> None:
            epoch, number = divmod(self.trainer.progress.batches_completed, STEPS)
            # the first batches find out what is asked for; what they cost is said apart
            notes.phase = "step" if epoch == 1 and 2 <= number < STEPS - 1 else "other steps"

        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            notes.phase = "metrics of an epoch"

        def on_train_end(self, trainer: Any, module: Any) -> None:
            notes.phase = "end"

        def setup(self, trainer: Any, module: Any, stage: str) -> None:
            self.trainer = trainer

    trainer = Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        callbacks=[Phases()],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    module, batches = Net(), [torch.ones(4, 64)] * STEPS
    trainer.fit(module, batches)
    notes.phase = "save"
    trainer.save_checkpoint(folder / "a.ckpt")


def main(rank: int, world: int) -> Seen:
    """Return what this rank asks of the others."""
    warnings.simplefilter("ignore")
    notes = Notes(rank, world)
    pretend(notes)
    with tempfile.TemporaryDirectory() as folder:
        train(notes, Path(folder))
    return notes.seen


if __name__ == "__main__":
    found = main(int(sys.argv[1]), int(sys.argv[2]))
    if len(sys.argv) > 3:
        Path(sys.argv[3]).write_text(json.dumps(found))
    else:
        for phase, counts in found.items():
            print(phase, dict(counts))
