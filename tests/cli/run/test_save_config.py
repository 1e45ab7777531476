"""SaveConfigCallback: where it writes the config, and what it never writes over."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from trainer_hooks import TrainerCLI
from trainer_hooks.checkpoint.file import read_checkpoint
from trainer_hooks.cli.run.save_config import SaveConfigCallback

RUN = Path("trainer_logs/version_0")
SAME = ["--trainer.logger=CSVLogger", "--trainer.logger.save_dir=.", "--trainer.logger.name"]
SAME += ["trainer_logs", "--trainer.logger.version=version_0"]


@pytest.fixture
def fit(here):
    """Train for an epoch and save the config with some arguments."""
    import configured

    def fit(*words: str, kind: type = SaveConfigCallback, **arguments) -> TrainerCLI:
        quiet = {"enable_progress_bar": False, "enable_model_summary": False, "plugins": False}
        quiet |= {"accelerator": "cpu", "log_every_n_steps": 1}
        return TrainerCLI(
            configured.Trained, configured.Points, save_config_callback=kind,
            save_config_kwargs=arguments, args=["fit", *words],
            trainer_defaults={**quiet, "max_epochs": 1},
        )  # fmt: skip

    return fit


@pytest.mark.slow
def test_another_config_in_the_same_folder_gets_a_number(fit) -> None:
    """What stands in a run's folder stays; what says the same is not written again."""
    for lr in ("0.1", "0.2", "0.2"):
        fit(*SAME, f"--model.lr={lr}")
    assert sorted(path.name for path in RUN.glob("config*")) == ["config-2.yaml", "config.yaml"]
    assert yaml.safe_load((RUN / "config.yaml").read_text())["model"]["lr"] == 0.1


@pytest.mark.slow
def test_it_is_overwritten_where_that_is_asked_for(fit) -> None:
    """With `overwrite` the newest config stands alone, under the name that is given."""
    for lr in ("0.1", "0.2"):
        fit(*SAME, f"--model.lr={lr}", overwrite=True, config_filename="run.yaml")
    assert [path.name for path in RUN.glob("*.yaml") if path.stem != "hparams"] == ["run.yaml"]
    assert yaml.safe_load((RUN / "run.yaml").read_text())["model"]["lr"] == 0.2


@pytest.mark.slow
def test_several_files_are_kept_as_such(fit) -> None:
    """With `multifile` a folder holds the files as they were given, beside the complete config."""
    Path("net.yaml").write_text("{lr: 0.3, width: 4}")
    Path("run.yaml").write_text("model: net.yaml\ntrainer: {min_epochs: 1}")
    fit("--config", "run.yaml", multifile=True)
    assert yaml.safe_load((RUN / "config.yaml").read_text())["model"]["lr"] == 0.3
    assert yaml.safe_load((RUN / "config/config.yaml").read_text())["model"] == "net.yaml"
    assert yaml.safe_load((RUN / "config/net.yaml").read_text())["lr"] == 0.3
    again = fit("--config", str(RUN / "config/config.yaml"))
    assert again.model.hparams.lr == 0.3


@pytest.mark.slow
def test_without_the_file_the_checkpoint_has_it(fit) -> None:
    """`save_to_log_dir=False` writes no file; a subclass may write it elsewhere."""
    seen = []

    class Elsewhere(SaveConfigCallback):
        def save_config(self, trainer, module, stage):
            seen.append((stage, self.parser.dump(self.config, skip_default=True)))

    fit("--model.lr=0.2", kind=Elsewhere, save_to_log_dir=False)
    assert not (RUN / "config.yaml").exists()
    assert [stage for stage, _ in seen] == ["fit"]
    assert "lr: 0.2" in seen[0][1]
    saved = read_checkpoint(str(next(RUN.rglob("*.ckpt"))))
    assert saved["config"]["model"]["lr"] == 0.2
