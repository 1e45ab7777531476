"""Mistakes drawn at random from everywhere in a config: each is one line, and nothing is made."""

from __future__ import annotations

import copy
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from samples import one_in

CONFIG = yaml.safe_load("""
seed_everything: 1
model: {class_path: configured.Trained, init_args: {width: 4, outputs: 1, lr: 0.1}}
data: {class_path: configured.Points, init_args: {size: 4}}
trainer:
  accelerator: cpu
  max_epochs: 1
  min_epochs: 1
  max_steps: 1
  log_every_n_steps: 1
  enable_progress_bar: false
  enable_model_summary: false
  limit_train_batches: 3
  plugins: false
  precision: 32-true
  gradient_clip_val: 1.0
  val_check_interval: 1.0
  logger: {class_path: CSVLogger, init_args: {save_dir: logs, name: a}}
  callbacks:
  - {class_path: EarlyStopping, init_args: {monitor: val_loss, patience: 3, mode: min}}
  - {class_path: ModelCheckpoint, init_args: {save_top_k: 2, monitor: val_loss}}
  - {class_path: LearningRateMonitor}
optimizer: {class_path: SGD, init_args: {lr: 0.1, momentum: 0.0}}
lr_scheduler: {class_path: StepLR, init_args: {step_size: 1, gamma: 0.5}}
ckpt_path: null
links: {model.width: data.init_args.size}
""")
CLASSES = [
    "configured.Stranger", "nowhere.Klass", "os.system", "configured.ran", "torch.nn.Linear",
    "collections.OrderedDict", "configured", "3", 7, ["a"], {"a": 1}, "",
]  # fmt: skip
VALUES = ["words", [1, "a"], {"nope": 1}, -7, 3.25, {"class_path": "EarlyStopping"}, ""]


def places(node: Any, path: tuple = ()) -> list[tuple]:
    """Every key in a config, with those above it."""
    items = node.items() if isinstance(node, dict) else enumerate(node)
    found: list[tuple] = []
    for key, value in items:
        found.append((*path, key))
        if isinstance(value, dict | list):
            found += places(value, (*path, key))
    return found


def misspelt(draw: random.Random, word: str) -> str:
    """A word with a letter left out, doubled, changed, or two that have changed places."""
    at = draw.randrange(len(word))
    left, right = word[:at], word[at + 1 :]
    return draw.choice(
        [
            left + right,
            left + word[at] * 2 + right,
            f"{left}z{right}",
            left + right[:1] + word[at] + right[1:],
        ]
    )


def with_a_mistake(seed: int) -> tuple[str, dict]:
    """A config in which one key is misspelt, or one value or class is another."""
    draw, config = random.Random(seed), copy.deepcopy(CONFIG)
    kind = draw.choice(["key", "value", "class"])
    known = [path for path in places(CONFIG) if path[-1] != "monitor" and path[-1] != 0]
    if kind == "class":
        known = [path for path in known if path[-1] == "class_path"]
    path = draw.choice([path for path in known if isinstance(path[-1], str)])
    above: Any = config
    for key in path[:-1]:
        above = above[key]
    name = path[-1]
    if kind == "key":
        new = misspelt(draw, name)
        above[new] = above.pop(name)
    else:
        new = draw.choice([misspelt(draw, above[name]), *CLASSES] if kind == "class" else VALUES)
        above[name] = new
    return f"{kind} {'.'.join(map(str, path))} -> {new!r}", config


@pytest.mark.slow
@pytest.mark.parametrize("seeds", one_in(2, [range(60), range(60, 120)]), ids=str)
@pytest.mark.filterwarnings("ignore::trainer_hooks.errors.TrainerHooksWarning")
def test_each_mistake_is_one_line(ask, here, seeds: range) -> None:
    """It names file, line and key; the exit code is 2, and nothing is written."""
    refused, wrong = 0, []
    for seed in seeds:
        what, config = with_a_mistake(seed)
        Path("run.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
        answer = ask("fit", "--config", "run.yaml")
        written = [path.name for path in Path.cwd().iterdir() if path.name != "run.yaml"]
        for name in written:
            shutil.rmtree(name)
        if answer.code == 0:  # another value may be as good
            continue
        refused += 1
        start = "trainer-hooks fit: error: run.yaml, line "
        is_line = answer.err.count("\n") == 1 and answer.err.startswith(start)
        if answer.code != 2 or written or not is_line:
            wrong.append((seed, what, answer))
    assert wrong == []
    assert refused > 0.9 * len(seeds)
