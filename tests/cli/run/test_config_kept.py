"""What ran is written down, and can be run again: the same run, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import yaml

from trainer_hooks.checkpoint.file import read_checkpoint
from trainer_hooks.cli.main import main

LINE = """
model: {class_path: configured.Trained, init_args: {lr: 0.05}}
data: configured.Points
"""
RUN = Path("trainer_logs/version_0")


def last_of(folder: Path = RUN) -> dict:
    """What the newest checkpoint of a run holds."""
    newest = max((folder / "checkpoints").glob("*.ckpt"), key=lambda path: path.stat().st_mtime_ns)
    return read_checkpoint(str(newest))


@pytest.mark.slow
def test_the_config_stands_in_the_folder_complete(ask, config) -> None:
    """`config.yaml` in the run's folder has every option, also those that were not given."""
    ask("fit", "--config", config(LINE), "--model.lr=0.2")
    told = yaml.safe_load((RUN / "config.yaml").read_text())
    assert told["model"]["init_args"] == {"width": 4, "outputs": 1, "lr": 0.2}
    assert told["trainer"]["accumulate_grad_batches"] == 1
    assert told["seed_everything"] == 0


@pytest.mark.slow
def test_each_command_takes_the_config_that_another_saved(ask, config) -> None:
    """Options of one command alone do not stand in the file, also where they were given."""
    commands = ("fit", "validate", "test", "predict")
    for command in commands:
        folder = ["--trainer.default_root_dir", command]
        own = {"fit": [], "predict": ["--return_predictions", "false"]}.get(
            command, ["--verbose", "false"]
        )
        assert ask(command, "--config", config(LINE), *folder, *own).code == 0
    resumed = ["--ckpt_path", "last", "--overrides", "[lr]", "--trainer.max_epochs", "3"]
    first = str(next(Path("fit").rglob("config.yaml")))
    assert ask("fit", "--config", first, *resumed).code == 0
    for saved in Path("fit").rglob("config*.yaml"):
        for command in commands:
            answer = ask(command, "--config", str(saved), "--print_config")
            assert answer.code in (0, None), answer.err
    for command in commands:
        for saver in commands:
            saved = next(Path(saver).rglob("config.yaml"))
            answer = ask(command, "--config", str(saved), "--print_config")
            assert answer.code in (0, None), answer.err
    path = str(next(Path("fit").rglob("*.ckpt")))
    saved = str(next(Path("fit").rglob("config.yaml")))
    assert ask("test", "--config", saved, "--ckpt_path", path).code == 0


@pytest.mark.slow
def test_it_is_in_journal_report_and_checkpoint(ask, config, tmp_path) -> None:
    """The journal of the run, its report, its checkpoints and `checkpoint show` tell the config."""
    ask("fit", "--config", config(LINE))
    start = json.loads((RUN / "run.jsonl").read_text().splitlines()[0])
    assert yaml.safe_load(start["config"])["model"]["init_args"]["lr"] == 0.05
    assert last_of()["config"]["trainer"]["max_epochs"] == 2
    path = next((RUN / "checkpoints").glob("*.ckpt"))
    assert "model.init_args.lr: 0.05" in ask("checkpoint", "show", str(path)).out
    assert ask("report", str(RUN), "-o", "page.html").code == 0
    assert "class_path: configured.Trained" in Path("page.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("at", [2, 5])
def test_the_config_of_a_run_goes_on_with_it_bit_for_bit(ask, config, monkeypatch, at: int) -> None:
    """A run that is cut, and started by its own config with `--ckpt_path auto`, ends as uncut."""
    file = config(LINE)
    callbacks = ["--trainer.callbacks+=ModelCheckpoint", "--trainer.callbacks.save_top_k=-1"]
    callbacks += ["--trainer.callbacks.every_n_train_steps=1"]
    ask("fit", "--config", file, *callbacks, "--trainer.default_root_dir", "whole")
    whole = last_of(Path("whole/trainer_logs/version_0"))

    import configured

    with monkeypatch.context() as patch:
        patch.setattr(configured.Trained, "on_train_batch_end", cut_of(at), raising=False)
        with pytest.raises(RuntimeError, match="cut"):
            main(["fit", "--config", file, *callbacks])
    again = ask("fit", "--config", str(RUN / "config.yaml"), "--ckpt_path", "auto")
    assert again.code == 0
    assert not Path("trainer_logs/version_1").exists()
    assert sorted(path.name for path in RUN.glob("config*")) == ["config.yaml"]
    found = last_of()
    assert found["global_step"] == whole["global_step"] == 8
    for name, value in whole["state_dict"].items():
        assert torch.equal(found["state_dict"][name], value)
    assert "resumed" in (RUN / "run.jsonl").read_text()


def cut_of(at: int):
    """A module's hook that ends the process after so many batches."""

    def on_train_batch_end(self, *_):
        if self.trainer.progress.batches_completed == at:
            raise RuntimeError("cut")

    return on_train_batch_end


@pytest.mark.slow
def test_another_config_is_another_run(ask, config) -> None:
    """`auto` leaves alone what a run with another value has saved, and says so."""
    file = config(LINE)
    ask("fit", "--config", file, "--ckpt_path", "auto")
    answer = ask("fit", "--config", file, "--ckpt_path", "auto", "--model.init_args.lr", "0.5")
    assert "a new training" in answer.out
    assert "model.init_args.lr is 0.5, was " in answer.out
    assert Path("trainer_logs/version_1/config.yaml").exists()


@pytest.mark.slow
def test_more_epochs_without_a_bar_are_the_same_run(ask, config, caplog) -> None:
    """`auto` resumes where only the length, the bar or the logging differs."""
    file = config(LINE)
    ask("fit", "--config", file, "--ckpt_path", "auto")
    with caplog.at_level("INFO", "trainer_hooks"):
        ask(
            "fit", "--config", file, "--ckpt_path", "auto", "--trainer.max_epochs", "3",
            "--trainer.enable_progress_bar", "false", "--trainer.log_every_n_steps", "1",
        )  # fmt: skip
    assert any(record.getMessage().startswith("resuming from") for record in caplog.records)
    assert not Path("trainer_logs/version_1").exists()


@pytest.mark.slow
def test_a_resume_with_another_config_says_in_what_it_differs(ask, config, caplog) -> None:
    """Going on with other values names each of them with what it was; the first file stays."""
    ask("fit", "--config", config(LINE))
    before = (RUN / "config.yaml").read_text()
    with caplog.at_level("INFO", "trainer_hooks"):
        ask(
            "fit", "--config", str(RUN / "config.yaml"), "--trainer.max_epochs", "3",
            "--ckpt_path", str(next((RUN / "checkpoints").glob("*.ckpt"))),
        )  # fmt: skip
    told = [r.getMessage() for r in caplog.records if "config differs" in r.getMessage()]
    assert told == [
        "the config differs from the one of the checkpoint: trainer.max_epochs is 3, was 2"
    ]
    assert (RUN / "config.yaml").read_text() == before
    assert yaml.safe_load((RUN / "config-2.yaml").read_text())["trainer"]["max_epochs"] == 3


@pytest.mark.slow
def test_secrets_stay_in_the_file(ask, config) -> None:
    """What goes by a secret's name is in `config.yaml`, and in no journal, checkpoint or report."""
    ask("fit", "--config", config("model: configured.Keyed\ndata: configured.Points"))
    assert (RUN / "config.yaml").read_text().count("s3cret") == 2
    assert "s3cret" not in (RUN / "run.jsonl").read_text()
    assert "s3cret" not in str(last_of()["config"])


def test_a_dry_run_writes_nothing(ask, config) -> None:
    """`fast_dev_run` leaves no config."""
    ask("fit", "--config", config(LINE), "--trainer.fast_dev_run", "true")
    assert not Path("trainer_logs").exists()


@pytest.mark.slow
def test_a_checkpoint_of_a_command_line_resumes_in_a_script(ask, config) -> None:
    """A plain Trainer goes on from such a checkpoint without a word."""
    import configured

    from trainer_hooks import Trainer

    ask("fit", "--config", config(LINE))
    trainer = Trainer(
        max_epochs=3, accelerator="cpu", plugins=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    path = next((RUN / "checkpoints").glob("*.ckpt"))
    trainer.fit(configured.Trained(lr=0.05), datamodule=configured.Points(), ckpt_path=path)
    assert trainer.current_epoch == 3
