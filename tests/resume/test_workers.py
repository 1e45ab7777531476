"""Loaders with worker processes are resumed exactly too."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from launchers import heed_ctrl_c
from quiet_trainers import QUIET_OPTIONS
from samples import one_in
from small_modules import LinearModule
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from trainer_hooks import Trainer

pytestmark = pytest.mark.slow


def augment(inputs):
    noise = torch.randn(3) + float(np.random.normal()) + random.gauss(0.0, 1.0)
    return inputs + noise


def seed_by_torch(worker_id: int) -> None:
    """Seed as many do: NumPy by torch's seed."""
    np.random.seed((torch.initial_seed() + worker_id) % 2**32)


class Kept:
    """Augments by a generator of its own, one of each kind."""

    def __init__(self) -> None:
        self.numpy = np.random.default_rng(4)
        self.others = {"python": random.Random(5), "old": np.random.RandomState(6)}
        self.torch = torch.Generator().manual_seed(7)

    def __call__(self, inputs):
        noise = self.numpy.normal() + self.others["python"].random() + self.others["old"].normal()
        return inputs + noise + torch.randn(3, generator=self.torch)


class Shared(IterableDataset):
    """Each worker gives every second sample."""

    def __init__(self, samples) -> None:
        self.samples = samples

    def __iter__(self):
        worker = get_worker_info()
        return (self.samples[i] for i in range(worker.id, len(self.samples), worker.num_workers))


class SizedShared(Shared):
    def __len__(self) -> int:
        return len(self.samples)


class Wandering:
    """A sampler that draws without replacement as it goes, from the global random numbers."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __iter__(self):
        left = list(range(self.count))
        while left:
            yield left.pop(int(torch.randint(len(left), ())))


class EagerBatches:
    """A batch sampler that draws its order as soon as it is asked for an iterator."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return -(-self.count // 4)

    def __iter__(self):
        order = [row.tolist() for row in torch.randperm(self.count).split(4)]
        return iter(sorted(order, key=lambda rows: np.random.random()))


class Own(DataLoader):
    """A loader of a class that torch does not know."""


def loader(kit, *, kind=DataLoader, data=None, **kwargs):
    data = kit.Samples() if data is None else data
    is_stream = isinstance(data, IterableDataset)
    kwargs = {"shuffle": not is_stream and "sampler" not in kwargs, "num_workers": 2, **kwargs}
    return kind(data, batch_size=4, **kwargs)


def augmented_data(kit, count: int = 18):
    return kit.Samples(count, augment=augment)


def seeded(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def plain(kit):
    val = DataLoader(augmented_data(kit, 7), batch_size=4, num_workers=1)
    return loader(kit), val


def with_generator(kit):
    return loader(kit, generator=seeded()), None


def with_a_sampler_that_draws_as_it_goes(kit):
    return loader(kit, sampler=Wandering(18)), None


def persistent(kit):
    val = DataLoader(
        augmented_data(kit, 7), batch_size=4, shuffle=True, num_workers=1, persistent_workers=True
    )
    return loader(kit, persistent_workers=True), val


def persistent_with_generator(kit):
    return loader(kit, persistent_workers=True, generator=seeded()), None


def persistent_with_a_sampler_that_draws_as_it_goes(kit):
    data = augmented_data(kit)
    return loader(kit, data=data, sampler=Wandering(18), persistent_workers=True), None


def eager(kit, *, kind=DataLoader, count: int = 18):
    """Return a loader whose sampler torch begins twice as it starts the workers."""
    data = augmented_data(kit, count)
    return kind(data, batch_sampler=EagerBatches(count), num_workers=1, persistent_workers=True)


def persistent_with_a_sampler_that_draws_at_once(kit):
    return eager(kit), eager(kit, count=7)


def persistent_with_samplers_of_ones_own_combined(kit):
    return [eager(kit), eager(kit, kind=Own, count=9)], None


def augmented(kit):
    return loader(kit, data=augmented_data(kit)), None


def augmented_by_kept_generators(kit):
    return loader(kit, data=kit.Samples(augment=Kept())), None


def augmented_persistent(kit):
    return loader(kit, data=augmented_data(kit), persistent_workers=True), None


def augmented_persistent_seeded_by_the_user(kit):
    options = {"persistent_workers": True, "worker_init_fn": seed_by_torch}
    return loader(kit, data=augmented_data(kit), generator=seeded(), **options), None


def augmented_persistent_by_kept_generators(kit):
    return loader(kit, data=kit.Samples(augment=Kept()), persistent_workers=True), None


def augmented_in_a_loader_of_another_class(kit):
    return loader(kit, kind=Own, data=augmented_data(kit), persistent_workers=True), None


def stream(kit):
    return loader(kit, data=Shared(augmented_data(kit, 20))), None


def stream_with_length(kit):
    return loader(kit, data=SizedShared(augmented_data(kit, 20)), persistent_workers=True), None


def combined(kit):
    loaders = [
        loader(kit, data=augmented_data(kit), persistent_workers=True),
        loader(kit, data=augmented_data(kit, 9), persistent_workers=True),
    ]
    return loaders, None


SCENARIOS = [
    plain,
    with_generator,
    with_a_sampler_that_draws_as_it_goes,
    persistent,
    persistent_with_generator,
    persistent_with_a_sampler_that_draws_as_it_goes,
    persistent_with_a_sampler_that_draws_at_once,
    persistent_with_samplers_of_ones_own_combined,
    augmented,
    augmented_by_kept_generators,
    augmented_persistent,
    augmented_persistent_seeded_by_the_user,
    augmented_persistent_by_kept_generators,
    augmented_in_a_loader_of_another_class,
    stream,
    stream_with_length,
    combined,
]


def setup(kit, scenario):
    train, val = scenario(kit)
    module = kit.PairNet() if isinstance(train, list) else kit.Net()
    return kit.Setup(module, train, val, {"max_epochs": 2})


@pytest.mark.parametrize("scenario", one_in(12, SCENARIOS), ids=lambda scenario: scenario.__name__)
def test_a_cut_changes_nothing_with_worker_processes(scenario, lab, kit):
    """Whatever draws random numbers, in workers or for them, a cut at any batch does not show."""
    assert lab.check(lambda: setup(kit, scenario), drawn=3) >= 12


class LegacyDraws(Dataset):
    """Samples that a worker draws from NumPy's global generator."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([np.random.random(), 1.0], dtype=torch.float32)


class Recorder(LinearModule):
    """Keeps the first column of its batches."""

    def __init__(self) -> None:
        super().__init__()
        self.draws: list[float] = []

    def training_step(self, batch, batch_idx):
        self.draws.extend(batch[:, 0].tolist())
        return super().training_step(batch, batch_idx)


@pytest.mark.parametrize("is_persistent", [False, True])
def test_each_epoch_has_other_draws_of_numpy(is_persistent):
    """A worker seeds NumPy for each epoch, and for no two epochs alike."""
    module = Recorder()
    loader = DataLoader(LegacyDraws(), 2, num_workers=1, persistent_workers=is_persistent)
    Trainer(max_epochs=3, **QUIET_OPTIONS).fit(module, loader)
    assert len(set(module.draws)) == 12


def test_ctrl_c_reaches_workers_without_ending_them(tmp_path):
    """A Ctrl-C of the whole process group lets the batch be finished and saved, workers and all."""
    code = """
        import os, signal, torch
        from torch.utils.data import DataLoader, TensorDataset
        from trainer_hooks import Callback, Module, Trainer
        from trainer_hooks.callbacks import ModelCheckpoint

        class Net(Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(1, 1)
            def training_step(self, batch, batch_idx):
                return self.layer(batch[0]).mean()
            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.1)

        class CtrlC(Callback):
            def on_train_batch_start(self, trainer, module, batch, batch_idx):
                if batch_idx == 2:
                    os.killpg(os.getpgid(0), signal.SIGINT)

        loader = DataLoader(TensorDataset(torch.ones(9, 1)), num_workers=2)
        saver = ModelCheckpoint("saved", save_on_exception=True, save_top_k=0)
        trainer = Trainer(
            max_epochs=1, logger=False, plugins=False, enable_progress_bar=False,
            enable_model_summary=False, callbacks=[CtrlC(), saver], accelerator="cpu",
        )
        try:
            trainer.fit(Net(), loader)
        except KeyboardInterrupt:
            print("interrupted after", trainer.progress.batches_completed)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        start_new_session=True,
        preexec_fn=heed_ctrl_c,
    )
    assert done.stdout == "interrupted after 3\n", done.stderr
    assert done.stderr.count("stopping after this batch") == 1
    assert [file.name for file in (tmp_path / "saved").iterdir()] == [
        "exception-epoch=0-step=3.ckpt"
    ]
