"""Published callbacks for transformers, compared with what they do in transformers' own Trainer."""

from __future__ import annotations

import logging
from types import SimpleNamespace

from common import case
from compare import compared_transformers, source_of

LOG = logging.getLogger("published")
AXOLOTL = "axolotl/utils/callbacks/__init__.py"


@case("axolotl", "`LossWatchDogCallback`", compared=True)
def loss_watch_dog():
    config = SimpleNamespace(loss_watchdog_threshold=0.0, loss_watchdog_patience=12)
    kind = source_of(AXOLOTL, "LossWatchDogCallback", LOG=LOG)
    # no checkpoint holds its count
    compared_transformers(lambda: kind(config), differs_when_killed=True)


@case("axolotl", "`SaveModelOnFirstStepCallback`", compared=True)
def save_on_first_step():
    kind = source_of(AXOLOTL, "SaveModelOnFirstStepCallback", LOG=LOG)
    compared_transformers(lambda: kind())


@case("axolotl", "`GCCallback`", compared=True)
def gc_callback():
    kind = source_of(AXOLOTL, "GCCallback", LOG=LOG)
    compared_transformers(lambda: kind(2))


@case("axolotl", "`KDTemperatureSchedulerCallback`", compared=True)
def kd_temperature():
    kind = source_of("axolotl/integrations/kd/callbacks.py", "KDTemperatureSchedulerCallback")

    def make():
        return kind(2.0, 1.0, SimpleNamespace(data_collator=SimpleNamespace(kd_temperature=2.0)))

    compared_transformers(make)


@case("axolotl", "`GrokfastCallbackHandler`", compared=True)
def grokfast():
    filtered = source_of("axolotl/integrations/grokfast/optimizer.py", "")
    kind = source_of(
        "axolotl/integrations/grokfast/__init__.py", "GrokfastCallbackHandler",
        LOG=LOG, gradfilter_ema=filtered["gradfilter_ema"],
    )  # fmt: skip
    # nor its average of the gradients
    compared_transformers(lambda: kind(alpha=0.5), ignore=("grads",), differs_when_killed=True)


@case("ms-swift", "`EarlyStopCallback`", compared=True)
def swift_early_stop():
    from transformers import TrainerCallback

    kind = source_of(
        "swift/callbacks/early_stop.py", "EarlyStopCallback", TrainerCallback=_with_trainer(
            TrainerCallback), logger=LOG,
    )  # fmt: skip
    arguments = SimpleNamespace(early_stop_interval=1)
    compared_transformers(
        lambda: kind(arguments, None), metric_for_best_model="eval_loss", greater_is_better=False,
        differs_when_killed=True,
    )  # fmt: skip


def _with_trainer(base):
    return type("TrainerCallback", (base,), {"__init__": lambda self, args, trainer: None})


@case("llamafactory", "`SaveProcessorCallback`", compared=True)
def save_processor():
    from pathlib import Path

    kind = source_of("llamafactory/train/callbacks.py", "SaveProcessorCallback")

    def save(folder):
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(folder, "processor.json").write_text("{}", encoding="utf-8")

    compared_transformers(lambda: kind(SimpleNamespace(save_pretrained=save)))


@case("llamafactory", "`PissaConvertCallback`", compared=True)
def pissa():
    kind = source_of("llamafactory/train/callbacks.py", "PissaConvertCallback", logger=LOG)
    LOG.info_rank0 = lambda *_: None
    compared_transformers(lambda: kind())
