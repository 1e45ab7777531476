"""Callbacks of other frameworks in a run of two processes, each a case of its own.

`cases.py FOLDER CASE...` is one process of two; `test_cases.py` starts both.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
import warnings
from pathlib import Path

warnings.simplefilter("ignore")

import torch  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

import trainer_hooks  # noqa: E402

RANK = int(os.environ["RANK"])


class Net(trainer_hooks.Module):
    """A small net whose steps are counted."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, batch):
        return self.layer(batch[0])

    def loss(self, outputs, batch):
        return (outputs - batch[1]).square().mean()

    def validation_step(self, batch, batch_idx):
        loss = self.loss(self(batch), batch)
        self.log("eval_loss", loss, sync_dist=True)
        self.log("eval_loss_epoch", loss, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


def loader():
    numbers = torch.Generator().manual_seed(0)
    rows = TensorDataset(torch.rand(16, 4, generator=numbers), torch.ones(16, 1))
    return DataLoader(rows, batch_size=2)


def trainer(folder, *callbacks, **options):
    quiet = {
        "accelerator": "cpu", "strategy": "ddp", "devices": 2, "max_epochs": 3, "logger": False,
        "plugins": False, "enable_progress_bar": False, "enable_model_summary": False,
        "enable_checkpointing": None, "num_sanity_val_steps": 0, "default_root_dir": folder,
        "enable_run_manifest": False,
    }  # fmt: skip
    return trainer_hooks.Trainer(callbacks=list(callbacks), **{**quiet, **options})


def fitted(folder, *callbacks, **options):
    torch.manual_seed(1)
    made, module = trainer(folder, *callbacks, **options), Net()
    made.fit(module, loader(), loader())
    return {"steps": made.global_step, "epochs": made.current_epoch, "why": made.stop_reason}


def transformers_callback(folder):
    """Of a stop and a saver of transformers: rank 1 alone asks for the stop."""
    import transformers as hf

    seen = []

    class Asking(hf.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            zero = state.is_world_process_zero, state.is_local_process_zero
            seen.append([*zero, args.process_index, args.world_size])
            if state.global_step == 2 and RANK == 0:
                control.should_save = True
            if state.global_step == 6 and RANK == 1:
                control.should_training_stop = True

    found = fitted(folder, Asking(), trainer_hooks.callbacks.ModelCheckpoint(folder, save_top_k=0))
    saved = sorted(path.name for path in Path(folder).glob("*.ckpt"))
    return {**found, "seen": seen[0], "saved": saved}


def ignite_handlers(folder):
    """A stop of rank 1, and a saver of Ignite."""
    import ignite.distributed as idist
    from ignite.engine import Events
    from ignite.handlers import Checkpoint, DiskSaver

    from trainer_hooks.adapters.ignite import adapt

    seen = []

    def stop(engine):
        seen.append([idist.get_rank(), idist.get_world_size()])
        if engine.state.iteration == 6 and RANK == 1:
            engine.terminate()

    layer = torch.nn.Linear(2, 2)
    saver = Checkpoint({"layer": layer}, DiskSaver(Path(folder, "saved"), require_empty=False))
    found = fitted(
        folder, adapt(stop, event=Events.ITERATION_COMPLETED),
        adapt(saver, event=Events.ITERATION_COMPLETED(every=3)),
    )  # fmt: skip
    saved = sorted(path.name for path in Path(folder, "saved").glob("*"))
    return {**found, "seen": seen[0], "saved": saved}


def accelerated_callbacks(folder):
    """A stop of rank 1, and a saver of pytorch-accelerated."""
    from pytorch_accelerated import callbacks

    seen = []

    class Stopping(callbacks.TrainerCallback):
        def on_train_step_end(self, trainer, step, **kwargs):
            config, accelerator = trainer.run_config, trainer._accelerator
            seen.append(
                [
                    config.is_world_process_zero, config.is_distributed, config.num_processes,
                    accelerator.is_main_process, accelerator.process_index,
                ]
            )  # fmt: skip
            if step == 0:
                rows = torch.tensor([[RANK, 7.0], [-1.0, -1.0], [RANK, 8.0]][: RANK + 2])
                gathered.append(trainer.gather(rows, padding_value=-1).tolist())
                gathered.append(trainer.gather(torch.tensor(RANK)).tolist())
            if step == 2 and RANK == 1:
                raise callbacks.StopTrainingError("enough")

    gathered = []
    saver = callbacks.SaveBestModelCallback(str(Path(folder, "best.pt")))
    found = fitted(folder, Stopping(), saver)
    return {
        **found, "seen": seen[0], "saved": Path(folder, "best.pt").exists(), "gathered": gathered,
    }  # fmt: skip


def composer_callbacks(folder):
    """A stop of rank 1, and a saver of Composer."""
    import composer
    from composer.callbacks import CheckpointSaver
    from composer.utils import dist

    seen = []

    class Stopping(composer.Callback):
        def batch_end(self, state, logger):
            seen.append([dist.get_global_rank(), dist.get_world_size(), dist.get_local_rank()])
            if state.timestamp.batch == 6 and RANK == 1:
                state.stop_training()

    saver = CheckpointSaver(str(Path(folder, "saved")), save_interval="2ba", overwrite=True)
    found = fitted(folder, Stopping(), saver)
    saved = sorted(path.name for path in Path(folder, "saved").glob("*"))
    return {**found, "seen": seen[0], "saved": saved}


def composer_evaluations(folder):
    """The events of a validation of two loaders, with the label of each end."""
    import composer

    calls = []

    class Listens(composer.Callback):
        def eval_start(self, state, logger):
            calls.append("eval_start")

        def eval_batch_end(self, state, logger):
            calls.append("eval_batch_end")

        def eval_end(self, state, logger):
            batches = state.eval_timestamp.batch.value
            calls.append(["eval_end", state.dataloader_label, batches])

    class Two(Net):
        def validation_step(self, batch, batch_idx, dataloader_idx=0):
            self.log("loss", self.loss(self(batch), batch), sync_dist=True)

    made = trainer(folder, Listens(), max_epochs=1, limit_val_batches=2)
    made.fit(Two(), loader(), [loader(), loader()])
    return calls


def composer_model(folder):
    """A ComposerModel with metrics, which the processes share."""
    from composer.models import ComposerModel
    from torchmetrics import MeanMetric

    from trainer_hooks.adapters.composer import adapt_module

    class Model(ComposerModel):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, batch):
            return self.layer(batch[0])

        def loss(self, outputs, batch):
            return (outputs - batch[1]).square().mean()

        def get_metrics(self, is_train):
            return {"mean": MeanMetric()}

        def update_metric(self, batch, outputs, metric):
            metric.update(outputs)

    torch.manual_seed(1)
    model = Model()
    made = trainer(folder)
    module = adapt_module(model, torch.optim.SGD(model.parameters(), 0.01))
    made.fit(module, loader(), loader())
    return {
        "steps": made.global_step, "weights": model.layer.weight.flatten().tolist(),
        "mean": made.callback_metrics["metrics/eval/mean"].item(),
        "label": list(made.validate(module, loader(), verbose=False)[0]),
    }  # fmt: skip


def main(folder: str, *names: str) -> None:
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    for name in names:
        place = Path(folder, name)
        place.mkdir(exist_ok=True)
        try:
            found = globals()[name](str(place))
        except Exception:
            found = {"raised": traceback.format_exc()}
        Path(place, f"rank{RANK}.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
