"""Published callbacks for Lightning, compared with what they do in Lightning's own Trainer."""

from __future__ import annotations

import torch
from common import alone, case
from compare import compared, net_of


@case("lightning-pose", "`AnnealWeight`", compared=True)
def anneal_weight():
    AnnealWeight = alone("lightning_pose.callbacks").AnnealWeight

    def module(pl):
        class Net(net_of(pl)):
            def loss_of(self, batch):
                return super().loss_of(batch) * (1 + getattr(self, "total_weight", 0.0))

        return Net

    compared(lambda _: AnnealWeight("total_weight", increase_factor=0.5), module=module)


@case("lightning-pose", "`JSONTrainingProgressTracker`", compared=True)
def json_tracker():
    JSONTrainingProgressTracker = alone("lightning_pose.callbacks").JSONTrainingProgressTracker

    compared(lambda _: JSONTrainingProgressTracker("progress.json"))


@case("lightning-pose", "`UnfreezeBackbone`", compared=True)
def unfreeze_backbone():
    UnfreezeBackbone = alone("lightning_pose.callbacks").UnfreezeBackbone

    def module(pl):
        class Net(net_of(pl)):
            def configure_optimizers(self):
                return torch.optim.Adam([
                    {"params": self.model[0].parameters(), "lr": 0.0, "name": "backbone"},
                    {"params": self.model[1].parameters(), "lr": 0.01, "name": "head"},
                ])  # fmt: skip

        return Net

    # a resume ends in an AttributeError of its own: it saves no state
    compared(lambda _: UnfreezeBackbone(1), module=module, kills=False)


# --- stable-pretraining ---


def _stable(name):
    return alone(f"stable_pretraining.callbacks.{name}")


@case("stable-pretraining", "`EpochMilestones`", compared=True)
def epoch_milestones():
    stops = _stable("earlystop").EpochMilestones
    compared(lambda _: stops({2: 0.0}, monitor="val_loss", direction="min"))


@case("stable-pretraining", "`WeightDecayUpdater`", compared=True)
def weight_decay():
    updater = _stable("wd_schedule").WeightDecayUpdater

    def module(pl):
        class Net(net_of(pl)):
            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), 0.1, weight_decay=0.1)

            def optimizers(self, *args, **kwargs):
                found = super().optimizers(*args, **kwargs)
                return found if isinstance(found, list) else [found]

        return Net

    compared(lambda _: updater(start_value=0.5), module=module)


@case("stable-pretraining", "`LogUnusedParametersOnce`", compared=True)
def unused_parameters():
    kind = _stable("unused_parameters").LogUnusedParametersOnce
    compared(lambda _: kind(), ignore=("_",))


@case("stable-pretraining", "`HPMetricLogger`", compared=True)
def hp_metric():
    kind = _stable("hp_metric").HPMetricLogger

    def module(pl):
        class Net(net_of(pl)):
            hp_metric = None

        return Net

    compared(lambda _: kind("val_loss"), pl="pytorch_lightning", module=module)


# --- nequip ---


def _nequip(name):
    return alone(f"nequip.train.callbacks.{name}", "nequip.data", "nequip.train")


class _Entry:
    def __init__(self, coeff):
        self.coeff = coeff


class _Loss(dict):
    """Coefficients of two terms, in the manner of nequip's MetricsManager."""

    def __init__(self):
        super().__init__(energy=None, forces=None)
        self.entries = {"energy": _Entry(0.5), "forces": _Entry(0.5)}
        self.metrics_values_step = self.metrics_values_epoch = {"energy": 0.0, "forces": 0.0}

    def set_coeffs(self, coeffs):
        total = sum(coeffs.values())
        for name, value in coeffs.items():
            self.entries[name].coeff = value / total


def _with_terms(pl):
    class Net(net_of(pl)):
        def __init__(self):
            super().__init__()
            self.loss = _Loss()

        def loss_of(self, batch):
            out = self(batch)
            terms = {"energy": out.pow(2).mean(), "forces": out.abs().mean()}
            values = {name: float(term) for name, term in terms.items()}
            self.loss.metrics_values_step = self.loss.metrics_values_epoch = values
            return sum(self.loss.entries[name].coeff * term for name, term in terms.items())

    return Net


@case("nequip", "`LossCoefficientScheduler`", compared=True)
def loss_coefficients():
    kind = _nequip("loss_coeff_scheduler").LossCoefficientScheduler
    # the coefficients of a resumed run are the module's to keep
    compared(
        lambda _: kind({1: {"energy": 1.0, "forces": 5.0}, 3: {"energy": 5.0, "forces": 1.0}}),
        module=_with_terms, differs_when_killed=True,
    )  # fmt: skip


@case("nequip", "`SoftAdapt`", compared=True)
def soft_adapt():
    kind = _nequip("softadapt").SoftAdapt
    compared(
        lambda _: kind(1.1, "batch", 4), module=_with_terms, differs_when_killed=True,
    )  # fmt: skip


@case("nequip", "`TF32Scheduler`", compared=True)
def tf32():
    kind = _nequip("tf32_scheduler").TF32Scheduler
    compared(lambda _: kind({0: False, 2: True}))


@case("nequip", "`LossCoefficientMonitor`", compared=True)
def loss_monitor():
    kind = _nequip("loss_coeff_monitor").LossCoefficientMonitor
    compared(lambda _: kind("epoch", 1), module=_with_terms)


# --- others ---


@case("graph-pes", "`LRWarmup`", compared=True)
def lr_warmup():
    from compare import source_of

    kind = source_of("graph_pes/training/callbacks.py", "LRWarmup")
    # its steps are in no checkpoint
    compared(lambda _: kind(6), pl="pytorch_lightning", differs_when_killed=True)


@case("graph-pes", "`ModelTimer`", compared=True)
def model_timer():
    from compare import source_of

    kind = source_of("graph_pes/training/callbacks.py", "ModelTimer")
    compared(lambda _: kind(), pl="pytorch_lightning", ignore=("timer/", "tick_ms"))


@case("anomalib", "`TimerCallback`", compared=True)
def anomalib_timer():
    kind = alone("anomalib.callbacks.timer").TimerCallback
    compared(lambda _: kind(), ignore=("start", "num_images"))


@case("torch-uncertainty", "`CompoundCheckpoint`", compared=True)
def compound_checkpoint():
    kind = alone("torch_uncertainty.callbacks.compound_checkpoint").CompoundCheckpoint
    compared(
        lambda _: kind({"val_loss": 1.0, "loss": 0.5}, dirpath="compound"),
        ignore=("_",),
    )  # fmt: skip
