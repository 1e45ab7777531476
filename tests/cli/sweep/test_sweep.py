"""`trainer-hooks sweep` with real processes: a grid, an interruption, a kill, failures, pruning."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys

import pytest
import warm_python

from trainer_hooks.cli.main import main
from trainer_hooks.cli.report.live import LiveReport
from trainer_hooks.cli.report.watch import RunWatcher


def states(watcher) -> list[str]:
    """Return the state of each run that is watched."""
    header, rows = watcher.rows()
    return [row.cells[header.index("state")] for row in rows]


GRID = ("--set", "model.lr=0.1,0.01", "--set", "model.offset=0,1")


@pytest.mark.slow
def test_wrong_choices_are_one_line_and_leave_no_folder(sweeper, monkeypatch, capsys) -> None:
    """Of the values, the config, the sampler and the pruner; nothing has been trained."""
    monkeypatch.chdir(sweeper.folder)
    monkeypatch.syspath_prepend(sweeper.folder)
    monkeypatch.setitem(sys.modules, "cmaes", None)
    wrong = {
        ("--set", "model.lr"): "it must be KEY=VALUE",
        ("--set", "model.lr=uniform(0,1)", "--sampler", "grid"): "a grid takes a list",
        ("--set", "model.lr=uniform(0,1)"): "--sampler tpe needs --trials",
        ("--set", "model.lr=1,2", "--sampler", "tpee", "--trials", "2"): "Did you mean 'tpe'?",
        ("--set", "model.lr=1,2", "--pruner", "medium"): "Did you mean 'median'?",
        ("--set", "model.lrr=1,2"): "Did you mean",
        ("--set", "model.offset=1,much"): "must be int",
        ("--set", "model.offset=uniform(1,8)", "--trials", "2"): "must be int",
        ("--set", "model.lrr=1,2", "--pruner", "wilcoxon"): "Did you mean",
        ("--set", "model.lr=1,2", "--pruner", "threshold"): "Known are none, hyperband, median",
        ("--set", "model.lr=uniform(0,1)", "--trials", "2", "--sampler", "bruteforce"): (
            "--sampler bruteforce: Optuna refuses it: FloatDistribution.step must be given"
        ),
        ("--set", "model.lr=uniform(0,1)", "--trials", "2", "--sampler", "cmaes"): (
            "Install it: pip install cmaes."
        ),
        ("--set", "ckpt_path=null,best"): "a sweep sets ckpt_path itself",
        ("--set", "trainer.default_root_dir=a"): "a sweep sets trainer.default_root_dir itself",
        ("--set", "trainer.profiler=SimpleProfiler", "--set", "trainer.profiler.dirpath=/x"): (
            "dirpath '/x' of SimpleProfiler in the config: all trials would write there"
        ),
    }
    for words, told in wrong.items():
        try:
            code = main(["sweep", "run.yaml", *words])
        except SystemExit as answer:
            code = answer.code
        out, err = capsys.readouterr()
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert told in err
        assert err.startswith("trainer-hooks sweep: error: ")
    assert not (sweeper.folder / "sweep_run").exists()


@pytest.mark.slow
def test_a_grid_trains_each_combination_and_shows_the_best_first(sweeper) -> None:
    """Two at a time; run again it trains nothing; with other values it is an error.

    A relative `dirpath` or `save_dir` lies in each trial's; none resumes another's checkpoint. The
    line that a trial prints to go on is one that can be typed.
    """
    config = sweeper.folder / "run.yaml"
    text = config.read_text()
    saver = "{class_path: ModelCheckpoint, init_args: {dirpath: ckpts}}"
    logger = "{class_path: CSVLogger, init_args: {save_dir: logs, name: n, version: v}}"
    config.write_text(f"{text.replace('swept.Waits', saver)}  logger: {logger}\n")
    answer = sweeper.run(*GRID, "--jobs", "2")
    assert answer.returncode == 0, answer.stderr
    rows = sweeper.rows_of(answer.stdout)
    assert {tuple(row[1:3]) for row in rows} == {
        (lr, offset) for lr in ("0.1", "0.01") for offset in "01"
    }
    assert [row[4] for row in rows] == ["complete"] * 4
    values = [float(row[3]) for row in rows]
    assert values == sorted(values)
    assert (sweeper.folder / "sweep_run/report.html").is_file()
    for number, offset in enumerate((0, 1, 0, 1)):
        trial = sweeper.folder / f"sweep_run/trial_{number}"
        assert {"metrics.csv", "config.yaml"} <= {f.name for f in (trial / "logs/n/v").iterdir()}
        assert len(list((trial / "ckpts").iterdir())) == 1
        output = (trial / "output.txt").read_text()
        assert "resuming from" not in output
        line = output.partition("with a higher max_epochs: ")[2]
        assert line.startswith(f"trainer-hooks fit --config={config} ")
        assert f" --model.offset={offset} " in line
    assert not (sweeper.folder / "logs").exists()
    assert not (sweeper.folder / "ckpts").exists()

    again = sweeper.run(*GRID)
    assert (again.returncode, again.stdout) == (0, answer.stdout)
    assert "trial" not in again.stderr
    other = sweeper.run("--set", "model.lr=0.1,0.02")
    assert other.returncode == 2
    earlier = "--set model.lr=0.1,0.01 --set model.offset=0,1"
    assert f"holds a sweep with other choices: {earlier}. Give" in other.stderr
    config.write_text(f"{config.read_text()}# changed\n")
    other = sweeper.run(*GRID)
    assert "holds a sweep with other choices: another text of the config." in other.stderr


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "swept.Waits",
            "{class_path: ModelCheckpoint, init_args: {dirpath: ../all}}",
            (
                "dirpath '../all' of ModelCheckpoint in the config: all trials would write there, "
                "and resume from each other's checkpoints."
            ),
        ),
        (
            "max_epochs: 3",
            "logger: {class_path: CSVLogger, init_args: {save_dir: s3://all}}",
            (
                "save_dir 's3://all' of CSVLogger in the config: all trials would write there, "
                "and mix their logs."
            ),
        ),
        ("seed_everything: 1", "ckpt_path: best", "ckpt_path 'best' in the config"),
    ],
)
def test_a_config_with_a_place_for_all_trials_is_refused(
    sweeper, monkeypatch, capsys, old: str, new: str, told: str
) -> None:
    """A folder outside that of a trial, or a checkpoint."""
    monkeypatch.chdir(sweeper.folder)
    monkeypatch.syspath_prepend(sweeper.folder)
    config = sweeper.folder / "run.yaml"
    config.write_text(config.read_text().replace(old, new))
    assert main(["sweep", "run.yaml", "--set", "model.offset=0,1"]) == 2
    assert told in capsys.readouterr().err
    assert not (sweeper.folder / "sweep_run").exists()


def test_a_module_that_prints_at_import(sweeper, monkeypatch, capsys) -> None:
    """The config is what was parsed, and not what was printed, which is shown."""
    monkeypatch.chdir(sweeper.folder)
    monkeypatch.syspath_prepend(sweeper.folder)
    monkeypatch.setenv("PL_GLOBAL_SEED", "7")
    monkeypatch.delitem(sys.modules, "swept", raising=False)
    module = sweeper.folder / "swept.py"
    module.write_text(f"print('using 3 features (of 4): {{')\n{module.read_text()}")
    config = sweeper.folder / "run.yaml"
    config.write_text(config.read_text().replace("seed_everything: 1", "ckpt_path: best"))
    assert main(["sweep", "run.yaml", "--set", "seed_everything=1,2"]) == 2
    out, err = capsys.readouterr()
    assert out == "using 3 features (of 4): {\n"
    assert "ckpt_path 'best' in the config" in err
    # a trial whose seed is `true` takes it
    assert os.environ["PL_GLOBAL_SEED"] == "7"


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_sweep_that_is_cut_goes_on_and_ends_as_an_uncut_one(sweeper, number) -> None:
    """Its trial resumes from its checkpoint, and random trials have the same values.

    Who watches it on the terminal or in a browser sees how it goes on.
    """
    words = ("--set", "model.lr=loguniform(0.001,0.1)", "--sampler", "random", "--trials", "2")
    uncut = sweeper.rows_of(sweeper.run(*words, "-o", "uncut").stdout)
    begun, answer = sweeper.folder / "begun", sweeper.folder / "answer"
    os.mkfifo(begun)
    os.mkfifo(answer)
    with warm_python.Popen(
        sweeper.command(*words, "-o", "cut"), cwd=sweeper.folder, text=True,
        env={**sweeper.environ, "BEGUN": str(begun), "ANSWER": str(answer)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **sweeper.FORKED,
    ) as process:  # fmt: skip
        pid = int(begun.read_text())
        watcher = RunWatcher(sweeper.folder / "cut", None)
        page = LiveReport([sweeper.folder / "cut"], None, with_machine=False)
        assert states(watcher) == ["running"]
        assert '<span class="badge live">running</span>' in page.page()[1]
        process.send_signal(number)
        if number == signal.SIGKILL:
            process.wait()
            # the trial goes on by itself, and holds the folder until it has ended
            second = sweeper.run(*words, "-o", "cut")
            assert f"of one that was killed: process {pid}. Wait" in second.stderr
            os.kill(pid, number)
            sweeper.wait_for(pid)
            assert states(watcher) == ["killed"]
        else:
            answer.write_text("go on")
            told = process.communicate()[1].rpartition("interrupted; to go on: ")[2]
            words_told = shlex.split(told)
            typed = ["sweep", "run.yaml", *words, "-o", "cut"]
            assert words_told[words_told.index("sweep") :] == typed
            assert process.returncode == 130
    again = sweeper.run(*words, "-o", "cut")
    assert again.returncode == 0, again.stderr
    assert [[*row[:-1]] for row in sweeper.rows_of(again.stdout)] == [[*row[:-1]] for row in uncut]
    assert "resuming from" in (sweeper.folder / "cut/trial_0/output.txt").read_text()
    assert states(watcher) == ["finished"] * 2
    page = LiveReport([sweeper.folder / "cut"], None, with_machine=False)
    assert page.page()[1].count('<span class="badge good">finished</span>') >= 2
    assert (sweeper.folder / "uncut/trial_0/trainer_logs/version_0/config.yaml").is_file()


@pytest.mark.exhaustive
def test_a_failed_trial_is_told_and_runs_again_in_its_folder(sweeper) -> None:
    """An error of the training, a metric that is not logged, and one that is nan."""
    words = ("--set", "model.offset=13,99,1", "--jobs", "2")
    answer = sweeper.run(*words)
    assert answer.returncode == 1
    assert "trial 0 failed (exit code 1): RuntimeError: offset 13 cannot be tr" in answer.stderr
    assert "trial 1 failed (exit code 1): trainer-hooks sweep: error: val_loss is" in answer.stderr
    assert [row[-2] for row in sweeper.rows_of(answer.stdout)] == ["complete", "fail", "fail"]
    module = sweeper.folder / "swept.py"
    text = module.read_text().replace("offset == 13", "offset == -1")
    module.write_text(text.replace("offset == 99", "offset in (13, 99)"))
    again = sweeper.run(*words)
    assert "trial 3 failed (exit code 1): trainer-hooks sweep: error: val_loss is" in again.stderr
    module.write_text(text)
    shutil.rmtree(sweeper.folder / "sweep_run/trial_0/trainer_logs")
    again = sweeper.run(*words)
    assert again.returncode == 1
    rows = sweeper.rows_of(again.stdout)
    assert [row[-2] for row in rows] == ["complete", "complete", "fail"]
    assert {row[-1] for row in rows} == {f"sweep_run/trial_{number}" for number in range(3)}


@pytest.mark.exhaustive
def test_a_metric_without_any_validation_ends_the_sweep(sweeper) -> None:
    """Nothing reports it during the training; the names of those that were logged are told."""
    module = sweeper.folder / "swept.py"
    module.write_text(module.read_text().replace("def val_dataloader", "def other_dataloader"))
    answer = sweeper.run("--set", "model.offset=0,1", forks_trials=False)
    assert answer.returncode == 2
    last = answer.stderr.splitlines()[-1]
    assert last.startswith("trainer-hooks sweep: error: metric 'val_loss' was not logged; logged")
    assert last.endswith("No further trial was begun.")


@pytest.mark.slow
def test_a_metric_that_is_not_logged_ends_the_sweep(sweeper) -> None:
    """After the first trial, with the names of those that are; other trials are not begun."""
    words = ("--set", "model.offset=0,1,2", "--monitor", "val_los")
    answer = sweeper.run(*words)
    assert answer.returncode == 2
    last = answer.stderr.splitlines()[-1]
    assert last.startswith("trainer-hooks sweep: error: monitor 'val_los'")
    assert "it was not logged. Did you mean 'val_loss'?" in last
    assert last.endswith("No further trial was begun.")
    assert [path.name for path in (sweeper.folder / "sweep_run").glob("trial_*")] == ["trial_0"]


@pytest.mark.exhaustive
def test_a_pruned_trial_ends_early(sweeper) -> None:
    """By Optuna's pruner, with the values of the trials before it."""
    words = ("--set", "model.offset=0,1,2,3,4,50", "--pruner", "median")
    answer = sweeper.run(*words)
    assert answer.returncode == 0, answer.stderr
    assert "trial 5 was pruned: val_loss " in answer.stderr
    assert sweeper.rows_of(answer.stdout)[-1][-2] == "pruned"
    assert "trial 5 was pruned" in (sweeper.folder / "sweep_run/trial_5/output.txt").read_text()


@pytest.mark.exhaustive
def test_a_trial_that_is_killed_after_its_last_checkpoint_keeps_its_end(sweeper) -> None:
    """A pruned trial stays pruned, and another has its value; its kill is told without a guess."""
    from trainer_hooks.cli.sweep.study import SweepStudy

    config = sweeper.folder / "run.yaml"
    config.write_text(config.read_text().replace("swept.Waits", "swept.Dies"))
    words = ("--set", "model.offset=50,0,1,2,3,4,60", "--pruner", "median")
    answer = sweeper.run(*words)
    assert answer.returncode == 1
    told = "was killed by SIGKILL, perhaps for want of memory (all that it printed: "
    for number in (0, 6):
        output = sweeper.folder / f"sweep_run/trial_{number}/output.txt"
        assert f"trial {number} {told}{output})\n" in answer.stderr
    again = sweeper.run(*words)
    assert again.returncode == 0, again.stderr
    *_, complete, pruned = [row[:-1] for row in sweeper.rows_of(again.stdout)]
    assert (complete[1], complete[-1]) == ("50", "complete")
    assert (pruned[1], pruned[-1]) == ("60", "pruned")
    # both are retries, with all reports of the lost trials
    sweep = SweepStudy.load(sweeper.folder / "sweep_run")
    for lost, retry in ((0, 7), (6, 8)):
        reports = sweep.record(lost).intermediate_values
        assert sweep.record(retry).intermediate_values == reports
        assert sweep.record(retry).value == reports[max(reports)]
