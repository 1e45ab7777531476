"""Published callbacks and loggers for Lightning, each run for real."""

from __future__ import annotations

import sqlite3

import torch
from common import Net, case, fit, tracked_by_aim, written

# --- experiment trackers ---


@case("aim", "`AimLogger` of Lightning")
def aim_logger():
    from aim.pytorch_lightning import AimLogger

    names = tracked_by_aim()
    fit(logger=AimLogger(repo=".", experiment="try", system_tracking_interval=None))
    assert names.count("loss") == 10  # with those of the subset `val`


@case("dvclive", "`DVCLiveLogger` of Lightning")
def dvclive_logger():
    from dvclive.lightning import DVCLiveLogger

    fit(logger=DVCLiveLogger(dir="live", save_dvc_exp=False, dvcyaml=None))
    assert len(written("loss.tsv")[0].read_text().splitlines()) == 9


@case("mlflow", "`MLFlowLogger`", by="pytorch-lightning")
def mlflow_logger():
    from pytorch_lightning.loggers import MLFlowLogger

    fit(logger=MLFlowLogger("try", tracking_uri="sqlite:///mlflow.db"))
    rows = sqlite3.connect("mlflow.db").execute("select key, value from metrics").fetchall()
    assert len([key for key, _ in rows if key == "loss"]) == 8


@case("swanlab", "`SwanLabLogger` of Lightning, offline")
def swanlab_logger():
    from swanlab.integration.pytorch_lightning import SwanLabLogger

    fit(logger=SwanLabLogger(project="try", mode="offline", logdir="swanlog"))
    assert [path for path in written("*") if "swanlog" in str(path)]


@case("tensorboard", "`TensorBoardLogger`", by="pytorch-lightning")
def tensorboard_logger():
    from pytorch_lightning.loggers import TensorBoardLogger
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    fit(logger=TensorBoardLogger("logs"))
    events = EventAccumulator(str(written("events.out*")[0].parent))
    events.Reload()
    assert len(events.Scalars("loss")) == 8


@case("wandb", "`WandbLogger`, offline", by="pytorch-lightning")
def wandb_logger():
    from pytorch_lightning.loggers import WandbLogger

    fit(logger=WandbLogger(offline=True, save_dir="."))
    import wandb

    wandb.finish()
    assert written("run-*.wandb")


# --- pruning and tuning ---


@case("optuna-integration", "`PyTorchLightningPruningCallback`")
def optuna_pruning():
    import optuna
    from optuna_integration import PyTorchLightningPruningCallback

    _pruned(optuna, lambda trial: PyTorchLightningPruningCallback(trial, monitor="val_loss"))


@case("darts", "`PyTorchLightningPruningCallback`")
def darts_pruning():
    import optuna
    from darts.utils.callbacks import PyTorchLightningPruningCallback

    _pruned(optuna, lambda trial: PyTorchLightningPruningCallback(trial, monitor="val_loss"))


def _pruned(optuna, make):
    def objective(trial):
        trainer = fit(make(trial))
        return float(trainer.callback_metrics["val_loss"])

    study = optuna.create_study(pruner=optuna.pruners.ThresholdPruner(upper=1e-9))
    study.optimize(objective, n_trials=1)
    (trial,) = study.trials
    assert trial.state is optuna.trial.TrialState.PRUNED
    assert list(trial.intermediate_values) == [0]


@case("ray", "a subclass of `TuneCallback`")
def ray_tune():
    from ray.tune.integration.pytorch_lightning import TuneCallback

    found = []

    class Report(TuneCallback):
        def _handle(self, trainer, pl_module):
            found.append(float(trainer.callback_metrics["val_loss"]))

    fit(Report(on="validation_end"))
    assert len(found) == 2


@case("hotcb", "`HotCallbackController` of Lightning")
def hotcb_controller():
    from hotcb import HotController
    from hotcb.adapters.lightning import HotCallbackController

    controller = HotController(config_path="hot.yaml", log_path="hot.log")
    seen: list = []
    apply = controller.apply
    controller.apply = lambda env, events: (seen.extend(events), apply(env, events=events))[1]
    fit(HotCallbackController(controller))
    assert seen.count("train_batch_end") == 8


@case(
    "finetuning-scheduler", "`FinetuningScheduler`", fails="_callback_connector",
    why="it changes the order of callbacks in Lightning's own trainer (`_callback_connector`)",
)  # fmt: skip
def finetuning():
    from finetuning_scheduler import FinetuningScheduler

    fit(FinetuningScheduler())


# --- weights and training ---


@case(
    "pytorch-lightning-sam-callback", "`SAM`", fails="opt_idx",
    why="it is for Lightning 1: its `on_before_optimizer_step` wants an `opt_idx`",
)  # fmt: skip
def sam():
    from pytorch_lightning_sam_callback import SAM

    fit(SAM())


@case("spacecutter-lightning", "`ClipCutpoints`")
def spacecutter():
    from spacecutter.models import LogisticCumulativeLink
    from spacecutter_lightning.callback import ClipCutpoints

    class Ordinal(Net):
        def __init__(self):
            super().__init__(0.1)
            self.link = LogisticCumulativeLink(3)

        def training_step(self, batch, batch_idx):
            return -self.link(self(batch))[:, 0].clamp_min(1e-6).log().mean()

    module = Ordinal()
    with torch.no_grad():
        module.link.cutpoints.copy_(torch.tensor([5.0, -5.0]))
    fit(ClipCutpoints(), module=module)
    first, second = module.link.cutpoints.tolist()
    assert first <= second


# --- subclasses of Lightning's own, which override inner methods ---


@case("darts", "`TFMProgressBar`, a `TQDMProgressBar`")
def darts_bar():
    from darts.utils.callbacks import TFMProgressBar

    bar = TFMProgressBar()
    trainer = fit(bar)
    assert bar.train_progress_bar.n == 4
    assert trainer.progress_bar_callback.guest is bar


@case("kraken", "`KrakenTrainProgressBar`, a `RichProgressBar`")
def kraken_bar():
    from kraken.lib.progress import KrakenTrainProgressBar

    bar = KrakenTrainProgressBar()
    trainer = fit(bar)
    assert trainer.progress_bar_callback.guest is bar


@case("scvi-tools", "`LoudEarlyStopping`, an `EarlyStopping`")
def scvi_stopping():
    from scvi.train._callbacks import LoudEarlyStopping

    stopper = LoudEarlyStopping(
        monitor="val_loss", patience=1, min_delta=10.0, warmup_epochs=2, mode="min"
    )
    trainer = fit(stopper, max_epochs=9)
    assert 3 <= trainer.current_epoch < 9
    assert "val_loss" in stopper.early_stopping_reason


@case("scvi-tools", "`SimpleLogger`, a `Logger` of Lightning")
def scvi_logger():
    from scvi.train._logger import SimpleLogger

    logger = SimpleLogger()
    fit(logger=logger)
    assert set(logger.history) >= {"loss", "val_loss"}
    assert len(logger.history["val_loss"]) == 2


@case("mnft", "`NftCallback`")
def nft():
    from mnft.callback import NftCallback

    callback = NftCallback("owner")
    fit(callback)
    assert [row["epoch"] for row in callback.hashes] == [0, 1]
    assert callback.hashes[0]["hash"] != callback.hashes[1]["hash"]


# --- metrics and times ---


@case("mlcolvar", "`MetricsCallback`")
def mlcolvar_metrics():
    from mlcolvar.utils.trainer import MetricsCallback

    callback = MetricsCallback()
    fit(callback)
    assert callback.metrics["epoch"] == [0, 1]
    assert {"loss", "val_loss"} <= callback.metrics.keys()
    assert all(len(values) == 2 for values in callback.metrics.values())


@case("mlcolvar", "`SimpleMetricsCallback`")
def mlcolvar_simple_metrics():
    from mlcolvar.utils.trainer import SimpleMetricsCallback

    callback = SimpleMetricsCallback()
    fit(callback)
    assert [set(metrics) for metrics in callback.metrics] == [{"loss", "val_loss"}] * 2


@case("lightly", "`MetricCallback`")
def lightly_metrics():
    from lightly.utils.benchmarking import MetricCallback

    callback = MetricCallback()
    fit(callback)
    assert len(callback.train_metrics["loss"]) == len(callback.val_metrics["val_loss"]) == 2


@case("rl4co", "`SpeedMonitor`")
def rl4co_speed():
    from lightning.pytorch.loggers import Logger
    from rl4co.utils.callbacks.speed_monitor import SpeedMonitor

    seen: set[str] = set()

    class Notes(Logger):
        name, version = "notes", 0

        def log_metrics(self, metrics, step=None):
            seen.update(metrics)

        def log_hyperparams(self, *args, **kwargs):
            pass

    fit(SpeedMonitor(intra_step_time=True, inter_step_time=True, epoch_time=True), logger=Notes())
    assert {name for name in seen if name.startswith("time/")} == {
        "time/epoch (s)", "time/inter_step (ms)", "time/intra_step (ms)"
    }  # fmt: skip


# --- checkpoints elsewhere ---


@case("mlflow", "`MlflowModelCheckpointCallback`")
def mlflow_checkpoints():
    import mlflow
    from mlflow.pytorch import MlflowModelCheckpointCallback

    mlflow.set_tracking_uri("sqlite:///mlflow.db")
    with mlflow.start_run() as run:
        fit(MlflowModelCheckpointCallback(monitor="val_loss", save_best_only=False))
        artifacts = mlflow.MlflowClient().list_artifacts(run.info.run_id, "checkpoints")
    assert [item.path for item in artifacts] == ["checkpoints/epoch_0", "checkpoints/epoch_1"]


# --- what is of Lightning 1 ---


@case(
    "gpumonitor", "`PyTorchGpuMonitorCallback`", fails="callbacks' has no attribute 'base'",
    why="it does not import with Lightning 2, whose `callbacks.base` is gone",
)  # fmt: skip
def gpumonitor():
    from gpumonitor.callbacks.lightning import PyTorchGpuMonitorCallback

    fit(PyTorchGpuMonitorCallback())


@case(
    "lightning-bolts", "`PrintTableMetricsCallback`", fails="LightningLoggerBase",
    why="it does not import with Lightning 2, whose `LightningLoggerBase` is gone",
)  # fmt: skip
def bolts():
    from pl_bolts.callbacks import PrintTableMetricsCallback

    fit(PrintTableMetricsCallback())


@case(
    "hf-hub-lightning", "`HuggingFaceHubCallback`", fails="Repository",
    why="it does not import with huggingface-hub 2, whose `Repository` is gone",
)  # fmt: skip
def hub():
    from hf_hub_lightning import HuggingFaceHubCallback

    fit(HuggingFaceHubCallback("a/b"))
