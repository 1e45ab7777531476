"""Published callbacks for Hugging Face's Trainer, each run for real."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import torch
from common import Net, case, fit, tracked_by_aim, written


class Config:
    """A config as language models have."""

    def __init__(self):
        self.hidden = 4

    def to_dict(self):
        return dict(vars(self))


class Configured(Net):
    """A module with a config, which callbacks of language models look for."""

    def __init__(self, config=None):
        super().__init__(0.1)
        self.config = config or Config()

    def save_pretrained(self, folder):
        Path(folder).mkdir(parents=True, exist_ok=True)
        torch.save(self.state_dict(), Path(folder, "model.bin"))


# --- experiment trackers ---


@case("aim", "`AimCallback` of transformers")
def aim_callback():
    from aim.hugging_face import AimCallback

    names = tracked_by_aim()
    callback = AimCallback(repo=".", experiment="try", system_tracking_interval=None)
    fit(callback, module=Configured())
    assert names.count("loss") == 8


@case("comet-ml", "`CometCallback`, offline", by="transformers")
def comet():
    import comet_ml
    from transformers.integrations import CometCallback

    os.environ.update(COMET_START_ONLINE="0", COMET_OFFLINE_DIRECTORY=str(Path("comet").absolute()))
    fit(CometCallback())
    comet_ml.end()
    assert written("*.zip")


@case("dvclive", "`DVCLiveCallback`", by="transformers")
def dvclive():
    from dvclive import Live
    from transformers.integrations import DVCLiveCallback

    fit(DVCLiveCallback(live=Live(dir="live", save_dvc_exp=False, dvcyaml=None)))
    assert "loss" in written("metrics.json")[0].read_text()


@case("mlflow", "`MLflowCallback`", by="transformers")
def mlflow_callback():
    from transformers.integrations import MLflowCallback

    os.environ.update(MLFLOW_TRACKING_URI="sqlite:///mlflow.db", MLFLOW_EXPERIMENT_NAME="try")
    fit(MLflowCallback(), module=Configured())
    rows = sqlite3.connect("mlflow.db").execute("select key from metrics").fetchall()
    assert rows.count(("loss",)) == 8


@case("swanlab", "`SwanLabCallback` of transformers, offline")
def swanlab_callback():
    from swanlab.integration.transformers import SwanLabCallback

    fit(SwanLabCallback(project="try", mode="offline", logdir="swanlog"))
    assert [path for path in written("*") if "swanlog" in str(path)]


@case("tensorboard", "`TensorBoardCallback`", by="transformers")
def tensorboard_callback():
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from transformers.integrations import TensorBoardCallback

    os.environ["TENSORBOARD_LOGGING_DIR"] = "logs"
    fit(TensorBoardCallback())
    folders = {str(path.parent) for path in written("events.out*")}
    tags = set()
    for folder in folders:
        events = EventAccumulator(folder)
        events.Reload()
        tags |= set(events.Tags()["scalars"])
    assert any("loss" in tag for tag in tags), tags


@case("wandb", "`WandbCallback`, offline", by="transformers")
def wandb_callback():
    import wandb
    from transformers.integrations import WandbCallback

    os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true")
    fit(WandbCallback())
    wandb.finish()
    assert written("run-*.wandb")


@case("logfire-callback", "`LogfireCallback`")
def logfire_callback():
    import logfire
    from logfire_callback.callback import LogfireCallback

    told = []
    configure = logfire.configure
    logfire.configure = lambda **named: configure(send_to_logfire=False, console=False)
    logfire.info = lambda text, **named: told.append(text)
    fit(LogfireCallback())
    assert any("started" in text for text in told)


@case("messenger-logger-callback", "`MessengerLoggerCallback`")
def messenger():
    from messenger_logger.callback import MessengerLoggerCallback

    fit(MessengerLoggerCallback(project_name="try", heartbeat_interval=None))


# --- energy ---


@case("codecarbon", "`CodeCarbonCallback`", by="transformers")
def codecarbon():
    from transformers.integrations import CodeCarbonCallback

    callback = CodeCarbonCallback()
    fit(callback)
    assert callback.tracker.final_emissions_data.duration > 0


# --- large language models ---


@case("trl", "`RichProgressCallback`")
def trl_progress():
    from trl import RichProgressCallback

    fit(RichProgressCallback())


@case("trl", "`BEMACallback`")
def trl_bema():
    from trl import BEMACallback

    callback = BEMACallback(update_freq=1)
    module = Configured()
    fit(callback, module=module)
    gap = callback.running_model.head.weight.sub(module.head.weight).abs().max()
    assert 0 < gap < 1
    assert written("model.bin")


@case(
    "trl", "`SyncRefModelCallback`", fails="initialize your accelerator",
    why="it asks the state of accelerate that transformers' own trainer sets up",
)  # fmt: skip
def trl_sync():
    from accelerate import Accelerator
    from transformers import TrainingArguments
    from trl.trainer.callbacks import SyncRefModelCallback

    from trainer_hooks.adapters.transformers import adapt

    Accelerator(cpu=True)
    args = TrainingArguments(output_dir=".", report_to=[], use_cpu=True)
    args.ref_model_sync_steps, args.ref_model_mixup_alpha = 2, 1.0
    module, reference = Net(), Net()
    fit(adapt(SyncRefModelCallback(reference, None), args), module=module)
    assert torch.equal(module.head.weight, reference.head.weight)


@case("peft", "`AdamssAsaCallback`")
def peft_asa():
    from peft.tuners.adamss.asa_callback import AdamssAsaCallback

    steps = []

    class Allocating(Net):
        @property
        def base_model(self):
            return self

        def update_and_allocate(self, step):
            steps.append(step)

    fit(AdamssAsaCallback(), module=Allocating())
    assert steps


@case("sentence-transformers", "`SpladeRegularizerWeightSchedulerCallback`")
def splade():
    from sentence_transformers.sparse_encoder.callbacks.splade_callbacks import (
        SpladeRegularizerWeightSchedulerCallback,
    )
    from sentence_transformers.sparse_encoder.losses import SpladeLoss

    loss = SpladeLoss.__new__(SpladeLoss)
    torch.nn.Module.__init__(loss)
    loss.document_regularizer_weight, loss.query_regularizer_weight = 3e-5, 5e-5
    fit(SpladeRegularizerWeightSchedulerCallback(loss, warmup_ratio=0.5))
    assert loss.document_regularizer_weight == 3e-5


@case("setfit", "`SetFitNotebookProgressCallback`, a `NotebookProgressCallback`")
def setfit_progress():
    from setfit.notebook import SetFitNotebookProgressCallback

    fit(SetFitNotebookProgressCallback())


@case("hotcb", "`HotHFCallback`")
def hotcb_callback():
    from hotcb import HotController
    from hotcb.adapters.hf import HotHFCallback

    controller = HotController(config_path="hot.yaml", log_path="hot.log")
    seen: list = []
    apply = controller.apply
    controller.apply = lambda env, events: (seen.extend(events), apply(env, events=events))[1]
    fit(HotHFCallback(controller))
    assert seen.count("train_step_end") == 8
