"""Loaders with worker processes are resumed exactly too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

pytestmark = pytest.mark.slow


def augment(inputs):
    return inputs + torch.randn(3)


class Shared(IterableDataset):
    """Each worker gives every second sample."""

    def __init__(self, samples) -> None:
        self.samples = samples

    def __iter__(self):
        worker = get_worker_info()
        return (self.samples[i] for i in range(worker.id, len(self.samples), worker.num_workers))


def shuffled(kit, **kwargs):
    return DataLoader(kit.Samples(), batch_size=4, shuffle=True, num_workers=2, **kwargs)


def plain(kit):
    val = DataLoader(kit.Samples(7), batch_size=4, num_workers=1)
    return kit.Setup(kit.Net(), shuffled(kit), val)


def with_generator(kit):
    generator = torch.Generator().manual_seed(1)
    return kit.Setup(kit.Net(), shuffled(kit, generator=generator))


def persistent(kit):
    val = DataLoader(
        kit.Samples(7), batch_size=4, shuffle=True, num_workers=1, persistent_workers=True
    )
    return kit.Setup(kit.Net(), shuffled(kit, persistent_workers=True), val)


def persistent_with_generator(kit):
    generator = torch.Generator().manual_seed(1)
    loader = shuffled(kit, persistent_workers=True, generator=generator)
    return kit.Setup(kit.Net(), loader)


def augmented(kit):
    data = kit.Samples(augment=augment)
    return kit.Setup(kit.Net(), DataLoader(data, batch_size=4, shuffle=True, num_workers=2))


def stream(kit):
    return kit.Setup(kit.Net(), DataLoader(Shared(kit.Samples(20)), batch_size=4, num_workers=2))


SCENARIOS = [plain, with_generator, persistent, persistent_with_generator, augmented, stream]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_cut_changes_nothing_with_worker_processes(scenario, lab, kit):
    """Shuffled by workers or the main process, augmented in workers or not, a cut does not show."""
    names = {"batch-03", "batch-05", "epoch-00", "batch-07", "epoch-01", "batch-14"}
    assert lab.check(lambda: scenario(kit), cuts=names.__contains__) >= 5


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
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert done.stdout == "interrupted after 3\n", done.stderr
    assert done.stderr.count("stopping after this batch") == 1
    assert [file.name for file in (tmp_path / "saved").iterdir()] == [
        "exception-epoch=0-step=3.ckpt"
    ]
