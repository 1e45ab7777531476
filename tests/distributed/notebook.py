"""What is run as by a notebook, from the standard input: cells that no command can run again."""

import json
import os
import signal
import sys
import tempfile
from pathlib import Path

import torch
from nets import At, Net, loader, trainer, weights

from trainer_hooks.callbacks import ModelCheckpoint

torch.manual_seed(1)
found = {}
folder = tempfile.mkdtemp(dir=sys.argv[1])
module, whole = Net(), Net()
whole.load_state_dict(module.state_dict())
saver = ModelCheckpoint(monitor="val_loss")
fit = trainer(saver, max_epochs=2, default_root_dir=folder, logger=True, enable_checkpointing=True)
torch.randn(300, 300) @ torch.randn(300, 300)  # the threads of which no fork has
fit.fit(module, loader(), loader())
found["place"] = [fit.world_size, fit.global_rank, str(fit.device), fit.is_global_zero]
found["counters"] = [fit.current_epoch, fit.global_step, fit.state.status]
found["metrics"] = {name: value.item() for name, value in fit.callback_metrics.items()}
found["history"] = fit.history.get_metric_values("loss_epoch")
found["best"] = Path(saver.best_model_path).exists()
fit.save_checkpoint(f"{folder}/saved.ckpt")
fit.max_epochs = 4
fit.fit(module, loader(), loader())
found["weights"], found["steps"] = weights(module), fit.global_step

torch.manual_seed(1)
at_once = trainer(max_epochs=4)
at_once.fit(whole, loader(), loader())
found["whole"] = weights(whole)
resumed, other = trainer(max_epochs=4), Net()
resumed.fit(other, loader(), loader(), ckpt_path=f"{folder}/saved.ckpt")
found["resumed"] = weights(other)

found["validated"] = fit.validate(module, loader(), verbose=False)[0]["val_loss"]
found["predicted"] = len(fit.predict(module, loader()))
found["logs"] = len(list(Path(folder, "trainer_logs").iterdir()))


def kill(trainer):
    os.kill(os.getpid(), signal.SIGKILL)


def fail(trainer):
    raise ValueError("a bad hook")


def interrupt(trainer):
    os.kill(os.getppid(), signal.SIGINT)


for name, rank, act in (("fail", 1, fail), ("kill", 1, kill), ("interrupt", 0, interrupt)):
    part = Net()
    before, breaks = weights(part), trainer(At(rank, act))
    try:
        breaks.fit(part, loader())
    except BaseException as error:
        notes = getattr(error, "__notes__", [])
        found[name] = [type(error).__name__, "\n".join([str(error), *notes])]
    found[f"{name} moved"] = weights(part) != before
    found[f"{name} at"] = [breaks.current_epoch, breaks.global_step]
# at the start of the epoch it would be interrupted once more
breaks.fit(part, loader())
found["after interrupt"] = [breaks.current_epoch, breaks.global_step]
Path(sys.argv[1], "found.json").write_text(json.dumps(found))
