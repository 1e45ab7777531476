"""Train with each callback in this process and write what it took: `_callback_worker.py FRAMEWORK`.

`FRAMEWORK` is `trainer_hooks` or `lightning`; then come the names of the cases, and the file to
write the JSON to.
"""

from __future__ import annotations

import gc
import importlib
import itertools
import json
import logging
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from _callback_cases import CASES, Case
from _workload import make_batches, make_model, make_optimizer
from torch.nn import functional as F  # noqa: N812 - its usual name

_STEPS = 1000
_EPOCHS = 4
_TURNS = 2
"""How often a callback and its baseline take turns: the machine's speed changes meanwhile."""
_PACKAGES = {"trainer_hooks": "trainer_hooks", "lightning": "lightning.pytorch"}
_CALLBACKS = {
    "trainer_hooks": (
        "trainer_hooks.compat.composer.callbacks",
        "trainer_hooks.compat.accelerated.callbacks",
        "trainer_hooks.callbacks",
    ),
    "lightning": ("lightning.pytorch.callbacks",),
}


def main(framework: str, names: list[str], result: Path) -> None:
    """Measure each case and its baseline, one after the other."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    package = importlib.import_module(_PACKAGES[framework])
    rooms = [importlib.import_module(name) for name in _CALLBACKS[framework]]
    found = {}
    _trained(package, None, CASES[names[0]])  # warms up
    for name in names:
        case = CASES[name]
        made = case.made if framework == "trainer_hooks" else case.theirs
        with_it, without = [], []
        for _ in range(_TURNS):
            with tempfile.TemporaryDirectory(prefix="bench-") as folder:
                scope = {**vars(torch.nn), "torch": torch, "folder": Path(folder)}
                scope |= {key: getattr(room, key) for room in rooms for key in room.__all__}
                with_it.append(_trained(package, eval(made, scope), case))
                without.append(_trained(package, None, case))
        found[name] = {"with": min(with_it), "without": min(without)}
    result.write_text(json.dumps(found))


def _trained(package: Any, callback: Any, case: Case) -> float:
    """Return µs a step of the fastest epoch but the first."""
    batches = make_batches(_STEPS)
    options = {
        "accelerator": "cpu",
        "devices": 1,
        "max_epochs": _EPOCHS,
        "enable_progress_bar": False,
        "enable_checkpointing": any("Checkpoint" in c.__name__ for c in type(callback).__mro__),
        "enable_model_summary": False,
        "logger": _silent_logger(package),
        "log_every_n_steps": 50,
        **case.options,
    }
    if callback is None:
        options |= {"enable_progress_bar": False, "enable_model_summary": False}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        trainer = package.Trainer(
            callbacks=[callback] if callback is not None else [],
            default_root_dir=folder,
            **options,
        )
        gc.collect()
        validation = make_batches(1) if case.validates else None
        trainer.fit(_module(package, case), batches, validation)
    walls = [start for start, _ in batches.marks]
    spans = [after - before for before, after in itertools.pairwise(walls[1:])]
    return min(spans) * 1e6 / _STEPS


def _module(package: Any, case: Case) -> Any:
    base = getattr(package, "Module", None) or package.LightningModule

    class Small(base):  # type: ignore[misc] - whichever framework it is
        def __init__(self) -> None:
            super().__init__()
            self.net = make_model()
            self.example_input_array = torch.zeros(8, 32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x)  # type: ignore[no-any-return]

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            x, y = batch
            loss = F.cross_entropy(self(x), y)
            self.log("loss", loss, on_step=True, on_epoch=True, prog_bar=True, batch_size=8)
            return loss

        def generate(self, prompts: list[str]) -> list[str]:
            return [f"{prompt}!" for prompt in prompts]

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            x, y = batch
            self.log("val_loss", F.cross_entropy(self(x), y), batch_size=8)

        def configure_optimizers(self) -> Any:
            optimizer = make_optimizer(self.net)
            if not case.decay_steps:
                return optimizer
            scheduler = _Decays(optimizer, case.decay_steps)
            return [optimizer], [{"scheduler": scheduler, "interval": "step"}]

    return Small()


class _Decays(torch.optim.lr_scheduler.ConstantLR):
    """A schedule that a callback asks when its decays end."""

    def __init__(self, optimizer: torch.optim.Optimizer, ends: tuple[int, ...]) -> None:
        self.ends = list(ends)
        super().__init__(optimizer)

    def get_checkpoint_steps(self) -> list[int]:
        return self.ends


def _silent_logger(package: Any) -> Any:
    loggers = importlib.import_module(f"{package.__name__}.loggers")

    class Silent(loggers.Logger):  # type: ignore[misc, name-defined]
        name = "silent"
        version = 0

        def log_metrics(self, metrics: Any, step: Any = None) -> None:
            pass

        def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
            pass

    return Silent()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2].split(","), Path(sys.argv[3]))
