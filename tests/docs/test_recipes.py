"""The parts of the recipes that the page's own script leaves out."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
import warm_python
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks import Trainer
from trainer_hooks.checkpoint.file import load_checkpoint
from trainer_hooks.cli.main import main

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "recipes.md").read_text(encoding="utf-8")
QUIET = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}


KILL = """
import os, signal

class Kill(Callback):
    def on_train_start(self, trainer, module):
        with open("began", "a") as file:
            print(trainer.global_step, file=file)

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if os.environ["KILL"] == str(trainer.global_step):
            os.kill(os.getpid(), signal.SIGKILL)
"""


def blocks(heading: str, language: str = "python") -> list[str]:
    """Return the blocks of a language below a heading."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```", section, re.DOTALL | re.MULTILINE)


def block(heading: str, language: str) -> str:
    """Return the first of them."""
    return blocks(heading, language)[0]


def test_a_recipe_is_at_most_a_screen_long() -> None:
    """From its heading to its end, blank lines included."""
    for recipe in PAGE.split("\n## ")[1:]:
        assert len(recipe.splitlines()) <= 45, recipe.splitlines()[0]
    assert PAGE.count("\n## ") > 15


@pytest.mark.slow
def test_the_warm_up_of_a_config(tmp_path, monkeypatch) -> None:
    """In the config of the command line's page, the recipe's lines set the rates of the epochs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    files = re.findall(
        r"^```(?:python|yaml)\n# (points.py|run.yaml)\n(.*?)^```",
        (DOCS / "command-line.md").read_text(encoding="utf-8"),
        re.DOTALL | re.MULTILINE,
    )
    for name, text in files:
        Path(name).write_text(text, encoding="utf-8")
    Path("schedules.py").write_text(block("Learning rate warm-up, cosine decay", "python"))
    Path("warm_up.yaml").write_text(block("Learning rate warm-up, cosine decay", "yaml"))
    for name in ("points", "schedules"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    words = ["fit", "--config", "run.yaml", "--config", "warm_up.yaml", "--trainer.max_epochs=4"]
    saver = ["--trainer.callbacks+=ModelCheckpoint", "--trainer.callbacks.save_top_k=-1"]
    assert main([*words, *saver]) == 0
    checkpoints = [load_checkpoint(path) for path in tmp_path.rglob("*.ckpt")]
    rates = {
        saved["epoch"]: saved["optimizer_states"][0]["param_groups"][0]["lr"]
        for saved in checkpoints
    }
    # saved after the scheduler's step: the rate of the next epoch, on a cosine after the warm-up
    assert rates == pytest.approx({0: 0.01, 1: 0.0075, 2: 0.0025, 3: 0.0})


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("heading", "module"),
    [
        ("Resume a run, also in a queue", "Net()"),
        ("Learning rate warm-up, cosine decay", "WarmUp()"),
        ("Two learning rates", "TwoRates()"),
        ("Class weights", "Weighted([1.0, 2.0, 3.0])"),
        ("Label smoothing", "Smoothed()"),
        ("Mixup", "Mixed()"),
        ("Average the weights (EMA)", "Net()"),
        ("Freeze a backbone, and train it later", "Frozen()"),
    ],
)
def test_a_recipe_is_killed_and_resumed(heading, module, tmp_path) -> None:
    """With the lines of the recipe for it, each ends with the weights of an uncut run."""
    callbacks = {
        "Average the weights (EMA)": "EMAWeightAveraging(decay=0.99)",
        "Freeze a backbone, and train it later": "BackboneFinetuning(unfreeze_backbone_at_epoch=1)",
    }.get(heading, "")
    # the definitions of the section, without its trainings
    defined = "\n".join(
        part
        for code in blocks(heading)
        for part in re.split(r"\n{3}", code)
        if re.match(r"(class|from) ", part)
    )
    run = block("Resume a run, also in a queue", "python").splitlines()
    assert run[1].count("[saver]") == 1
    assert run[2].count("Net()") == 1
    run[1] = run[1].replace("[saver]", f"[saver, Kill(), {callbacks}]")
    run[2] = run[2].replace("Net()", "module")
    setup = PAGE.partition("```python\n")[2].partition("```")[0]
    save = "torch.save(module.state_dict(), 'end.pt')"
    script = tmp_path / "train.py"
    script.write_text(
        "\n".join([setup, KILL, defined, f"module = {module}", *run, save]), encoding="utf-8"
    )

    def train(folder: str, kill: str) -> int:
        (tmp_path / folder).mkdir(exist_ok=True)
        done = warm_python.run(
            [sys.executable, str(script)],
            env={**os.environ, "KILL": kill},
            cwd=tmp_path / folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode in (0, -signal.SIGKILL), done.stderr[-3000:]
        return done.returncode

    assert train("uncut", "") == 0
    assert train("killed", "11") == -signal.SIGKILL
    assert train("killed", "") == 0
    uncut, resumed = (torch.load(tmp_path / name / "end.pt") for name in ("uncut", "killed"))
    assert uncut.keys() == resumed.keys()
    assert all(torch.equal(uncut[name], resumed[name]) for name in uncut)
    began = [int(line) for line in (tmp_path / "killed" / "began").read_text().split()]
    assert began == [0, 8]  # saved each fourth step, killed in the eleventh


class StandInMixUp(torch.nn.Module):
    """Stands in for torchvision's MixUp: mixes a batch of images with itself, rolled by one."""

    def __init__(self, *, num_classes: int) -> None:
        super().__init__()
        self.num_classes = num_classes

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the mixed images, and the probabilities of their classes."""
        assert images.ndim == 4
        share = torch._sample_dirichlet(torch.ones(2))[0]
        hot = torch.nn.functional.one_hot(labels, self.num_classes).to(images.dtype)
        return tuple(share * x + (1 - share) * x.roll(1, 0) for x in (images, hot))


def test_mixup_by_torchvision(monkeypatch) -> None:
    """The batches of the training are mixed, and those of the validation are not."""
    try:
        import torchvision  # noqa: F401
    except ImportError:
        v2 = SimpleNamespace(MixUp=StandInMixUp)
        for name in ("torchvision", "torchvision.transforms"):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        sys.modules["torchvision.transforms"].v2 = v2
    names: dict = {}
    setup = PAGE.partition("```python\n")[2].partition("```")[0]
    exec(setup, names)
    exec(block("Mixup", "py"), names)
    seen: dict[str, set[tuple[int, ...]]] = {"train": set(), "val": set()}

    class Images(names["MixedImages"]):
        def forward(self, x):
            return super().forward(x.flatten(1))

        def training_step(self, batch, batch_idx):
            seen["train"].add(tuple(batch[1].shape))
            assert torch.allclose(batch[1].sum(dim=1), torch.ones(8))
            return super().training_step(batch, batch_idx)

        def validation_step(self, batch, batch_idx):
            seen["val"].add(tuple(batch[1].shape))
            return super().validation_step(batch, batch_idx)

    torch.manual_seed(1)
    data = TensorDataset(torch.randn(32, 2, 2, 2), torch.randint(0, 3, (32,)))
    loader = DataLoader(data, batch_size=8)
    trainer = Trainer(max_epochs=1, enable_checkpointing=False, **QUIET)
    trainer.fit(Images(), loader, loader)
    assert seen == {"train": {(8, 3)}, "val": {(8,)}}
