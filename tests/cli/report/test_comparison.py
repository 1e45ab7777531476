"""Several runs on one page: their names, the table, groups of folds and seeds, and the machine."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from trainer_hooks.cli.main import main
from trainer_hooks.cli.report.comparison import better_mode
from trainer_hooks.cli.report.machine import MachineFilter

pytest.importorskip("jinja2")


def make(
    folder, values=(1.0,), *, metric="val_loss", hparams=None, config=None, end=True, seed=None,
    host="box7", **facts,
):  # fmt: skip
    """Write the folder of a run that logged values of a metric."""
    folder.mkdir(parents=True)
    rows = "".join(f"{step},0,{value}\n" for step, value in enumerate(values))
    (folder / "metrics.csv").write_text(f"step,epoch,{metric}\n{rows}", encoding="utf-8")
    if hparams is not None:
        (folder / "hparams.json").write_text(json.dumps(hparams), encoding="utf-8")
    start = {
        "event": "start", "run": "a", "time": 1e9, "step": 0, "stage": "fit", "pid": 2**22 + 1,
        "hardware": {"host": host}, "seeds": {"seed_everything": seed}, **facts,
    }  # fmt: skip
    if config is not None:
        start["config"] = yaml.safe_dump(config, sort_keys=False)
    records = [start]
    if end:
        records.append(
            {"event": "end", "run": "a", "time": 1e9 + 90, "status": "finished", "global_step": 7}
        )
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "run.jsonl").write_text(lines, encoding="utf-8")
    return folder


@pytest.fixture
def compare(tmp_path, capsys):
    """Write a report; return its data, and what was printed on stderr."""

    def compare(*paths, options=()):
        page = tmp_path / "page.html"
        capsys.readouterr()
        assert main(["report", *map(str, paths), "-o", str(page), *options]) == 0
        written = page.read_text(encoding="utf-8")
        data = json.loads(re.search(r'id="data">(.*?)</script>', written, re.DOTALL)[1])
        return data, capsys.readouterr().err

    return compare


def names(data):
    return [row["name"] for row in data["table"]["rows"]]


def test_runs_are_named_by_the_hyperparameters_that_differ(tmp_path, compare) -> None:
    """Rows and legends have the same names; hyperparameters that are equal are in none."""
    for number, lr in enumerate((0.1, 0.01)):
        hparams = {"depth": 3, "optimizer": {"lr": lr}, "width": 64 // (number + 1)}
        make(tmp_path / "runs" / f"version_{number}", hparams=hparams)
    data, _ = compare(tmp_path / "runs")
    assert names(data) == data["runs"] == ["lr=0.1, width=64", "lr=0.01, width=32"]
    assert data["table"]["settings"] == ["lr", "width"]
    assert data["table"]["equal"] == [["depth", "3"]]


def test_the_page_of_a_folder_lies_in_it_and_is_small(tmp_path, capsys) -> None:
    """Two curves of a thousand values take far less than a mail may have."""
    for number in range(2):
        make(tmp_path / "runs" / f"v{number}", range(1000), hparams={"lr": number})
    assert main(["report", str(tmp_path / "runs")]) == 0
    page = tmp_path / "runs" / "report.html"
    assert capsys.readouterr().out == f"{page}\n"
    assert page.stat().st_size < 200_000


def test_runs_are_named_by_the_config_of_the_command_line(tmp_path, compare) -> None:
    """The values of a config count, each once, and no folder; equal ends of names stay whole."""
    for number, lr in enumerate((0.1, 0.01)):
        config = {
            "model": {"init_args": {"width": number, "rate": number}},
            "optimizer": {"init_args": {"lr": lr}},
            "schedule": {"rate": 2 * number},
            "trainer": {
                "default_root_dir": f"/x/{number}",
                "callbacks": [{"init_args": {"patience": 5}}],
            },
        }
        hparams = {"width": number}
        make(tmp_path / "runs" / f"trial_{number}" / "v", hparams=hparams, config=config)
    data, _ = compare(tmp_path / "runs")
    first = "width=0, model.rate=0, lr=0.1, schedule.rate=0"
    assert names(data) == [first, "width=1, model.rate=1, lr=0.01, schedule.rate=2"]
    assert ["trainer.callbacks.0.patience", "5"] in data["table"]["equal"]
    assert [data["table"]["settings"][i] for i in data["table"]["places"]] == ["default_root_dir"]


def test_many_differences_are_named_as_far_as_they_tell_runs_apart(tmp_path, compare) -> None:
    """A name has four settings, unless two runs would have the same name."""
    for number in range(3):
        hparams = {f"p{index}": number for index in range(6)}
        make(tmp_path / "a" / f"v{number}", hparams=hparams)
        last = {f"p{index}": number > 0 for index in range(6)} | {"p5": number}
        make(tmp_path / "b" / f"v{number}", hparams=last)
    assert names(compare(tmp_path / "a")[0])[0] == "p0=0, p1=0, p2=0, p3=0"
    assert names(compare(tmp_path / "b")[0])[1].endswith("p4=True, p5=1")


def test_runs_that_do_not_differ_are_named_by_their_folders(tmp_path, compare) -> None:
    """Also where two have the same settings among others."""
    for name, lr in (("a", 1), ("b", 1), ("c", 2)):
        make(tmp_path / "runs" / name, hparams={"lr": lr})
        make(tmp_path / "same" / name, hparams={"lr": 1})
    assert names(compare(tmp_path / "runs")[0]) == ["lr=1 (a)", "lr=1 (b)", "lr=2"]
    assert names(compare(tmp_path / "same")[0]) == ["a", "b", "c"]


def test_folds_and_seeds_are_grouped_by_their_hyperparameters(tmp_path, compare) -> None:
    """A fold is known by its folder or a hyperparameter, a seed by the journal as well."""
    for lr in (0.1, 0.2):
        for fold in (0, 1, 10):
            make(tmp_path / "folds" / f"lr={lr}" / f"fold_{fold}", hparams={"lr": lr})
            make(tmp_path / "named" / f"{lr}-{fold}", hparams={"lr": lr, "fold": fold})
            make(tmp_path / "seeds" / f"{lr}-{fold}", hparams={"lr": lr}, seed=fold)
    expected = [f"lr={lr}, fold {fold}" for lr in (0.1, 0.2) for fold in (0, 1, 10)]
    groups = [
        {"name": "lr=0.1", "kinds": "folds", "rows": [0, 1, 2]},
        {"name": "lr=0.2", "kinds": "folds", "rows": [3, 4, 5]},
    ]
    for folder in ("folds", "named"):
        data, _ = compare(tmp_path / folder)
        assert names(data) == expected
        assert data["table"]["groups"] == groups
    data, _ = compare(tmp_path / "seeds")
    assert names(data) == [name.replace("fold", "seed") for name in expected]


def test_rows_have_values_state_and_a_link(tmp_path, compare) -> None:
    """The last, lowest and highest value; how the run ended; its own page if there is one."""
    make(tmp_path / "r" / "a b", (3, 1, 2), hparams={"lr": 1})
    make(tmp_path / "r" / "c", (float("nan"),) * 2, hparams={"lr": 2}, end=False, host="far")
    (tmp_path / "r" / "a b" / "report.html").write_text("page")
    data, _ = compare(tmp_path / "r")
    first, second = data["table"]["rows"]
    assert first["metrics"] == [[2.0, 1.0, 3.0]]
    assert (first["state"], first["seconds"], first["steps"]) == ("finished", 90.0, 7)
    assert first["link"] == "./r/a%20b/report.html"
    assert second["metrics"] == [["nan", "nan", "nan"]]
    assert (second["state"], second["link"]) == ("running or killed", "")


@pytest.mark.parametrize(
    ("metric", "mode"),
    [("val_loss", "min"), ("val_acc", "max"), ("test/f1", "max"), ("error", "min"), ("mAP", "max")],
)
def test_the_better_values_of_a_metric_are_known_by_its_name(metric, mode) -> None:
    """An accuracy is better when it is higher, a loss when it is lower."""
    assert better_mode(metric) == mode


def test_runs_are_compared_by_what_the_sweep_the_config_or_the_user_says(
    tmp_path, compare, capsys
) -> None:
    """In that order; a metric that no run logged is an error if the user named it."""
    for number in range(2):
        run = make(tmp_path / "s" / f"trial_{number}" / "v", hparams={"lr": number}, metric="acc,b")
        (run / "metrics.csv").write_text(f"step,acc,b\n0,1,{number}\n")
    data, _ = compare(tmp_path / "s")
    assert (data["table"]["metrics"], data["table"]["monitor"]) == (["acc", "b"], 0)
    definition = {"monitor": "b", "mode": "max"}
    record = {"op_code": 2, "user_attr": {"definition": definition}}
    # the first line is damaged, and the last one is being written
    (tmp_path / "s" / "study.log").write_text(f'\0\n{json.dumps(record)}\n{{"op_co')
    make(tmp_path / "s" / "earlier_0" / "trial_9", hparams={"lr": 9})
    data, _ = compare(tmp_path / "s")
    assert (data["table"]["monitor"], data["table"]["modes"]) == (1, ["max", "max"])
    # the best trial first
    assert names(data) == ["lr=1", "lr=0"]
    data, _ = compare(tmp_path / "s", options=["--monitor", "acc", "--mode", "min"])
    assert (data["table"]["monitor"], data["table"]["modes"]) == (0, ["min", "min"])
    assert main(["report", str(tmp_path / "s"), "--monitor", "acd"]) == 2
    assert "metric 'acd' was not logged by any of the runs. Did you mean 'acc'?" in (
        capsys.readouterr().err
    )
    assert main(["report", str(tmp_path / "s"), "--mode", "min"]) == 2
    assert "--mode needs --monitor" in capsys.readouterr().err
    callback = {"init_args": {"monitor": "b", "mode": "max"}}
    for number in range(2):
        config = {"seed_everything": number, "trainer": {"callbacks": [callback]}}
        run = make(tmp_path / "c" / f"v{number}", config=config)
        (run / "metrics.csv").write_text("step,acc,b\n0,1,2\n")
    data, _ = compare(tmp_path / "c")
    assert (data["table"]["monitor"], data["table"]["modes"]) == (1, ["max", "max"])
    assert names(data) == ["seed 0", "seed 1"]


def test_a_run_that_another_of_the_folder_resumed_is_part_of_it(tmp_path, compare) -> None:
    """It has a row of its own only if it is named."""
    first = make(tmp_path / "runs" / "v0", (9, 8, 7), end=False)
    path = str(first / "checkpoints" / "last.ckpt")
    second = make(tmp_path / "runs" / "v1", (9, 5), resumed_from=path)
    make(tmp_path / "runs" / "v2", (4,))
    assert names(compare(tmp_path / "runs")[0]) == ["v1", "v2"]
    assert names(compare(first, second)[0]) == ["v0", "v1"]


def test_bad_runs_are_left_out_and_told(tmp_path, compare) -> None:
    """One unreadable file does not hide the others; half a row and odd values do no harm."""
    make(tmp_path / "runs" / "a", (1, 2), hparams={"lr": 1})
    make(tmp_path / "runs" / "b", hparams={"lr": 2}).joinpath("metrics.csv").write_bytes(b"\x89PNG")
    half = make(tmp_path / "runs" / "c", (1, 2), hparams={"lr": 3})
    with (half / "metrics.csv").open("a") as file:
        file.write("7,0,0.")
    newer = make(tmp_path / "runs" / "d", hparams={"lr": 4}, config=["no", "mapping"], stage="tune")
    with (newer / "run.jsonl").open("a") as file:
        file.write('{"event": "dance", "run": "a", "more": [1]}\n{"half')
    (tmp_path / "runs" / "empty").mkdir()
    data, err = compare(tmp_path / "runs")
    assert names(data) == ["lr=1", "lr=3", "lr=4"]
    assert err.count("\n") == 1
    assert "runs/b is left out: " in err
    assert "was not written by a CSVLogger" in err
    assert data["table"]["rows"][1]["metrics"] == [[2.0, 1.0, 2.0]]


def test_one_good_run_among_bad_ones_has_a_page_of_its_own(tmp_path, compare) -> None:
    """It is shown as a single run, and the other is in its notes."""
    make(tmp_path / "runs" / "a")
    make(tmp_path / "runs" / "b").joinpath("metrics.csv").write_bytes(b"\x89PNG")
    data, _ = compare(tmp_path / "runs")
    assert data["table"] is None
    assert data["runs"] == ["a"]
    assert "is left out: " in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_names_of_all_alphabets(tmp_path, compare) -> None:
    """Folders, metrics and hyperparameters may be written in any."""
    for number in range(2):
        hparams = {"学习率": number, "имя": "ж" * (number + 1)}
        make(tmp_path / "سفر" / f"试验_{number}", hparams=hparams, metric="потеря")
    data, _ = compare(tmp_path / "سفر")
    assert names(data) == ["学习率=0, имя=ж", "学习率=1, имя=жж"]
    assert data["table"]["metrics"] == ["потеря"]
    assert [chart["title"] for chart in data["charts"] if chart["draws"] == "curves"] == ["потеря"]


def test_of_many_runs_the_best_have_curves(tmp_path, compare) -> None:
    """They stand first; of the others the page has the row alone."""
    for number in range(130):
        make(tmp_path / "runs" / f"v{number}", (500, 200 - number), hparams={"lr": number})
    data, _ = compare(tmp_path / "runs")
    rows = data["table"]["rows"]
    assert names(data)[:2] == ["lr=129", "lr=128"]
    assert [row["drawn"] for row in rows] == [True] * 100 + [False] * 30
    [chart] = [chart for chart in data["charts"] if chart["draws"] == "curves"]
    assert [trace["run"] for trace in chart["traces"]] == list(range(100))
    # runs with the same steps share an axis
    assert data["axes"] == [{"x": [0, 1], "e": [0.5, 1.0]}]


def test_the_system_and_gradients_have_their_own_parts(tmp_path, compare) -> None:
    """Their curves stand under those headings, and parts without content are left out."""
    stats = [f"DeviceStatsMonitor.on_train_batch_{when}/cpu_percent" for when in ("start", "end")]
    run = make(tmp_path / "run")
    names = ["upgrade", *stats, "l2_norm/grad/global", "gpu/0", "train_loss"]
    (run / "metrics.csv").write_text(f"step,{','.join(names)}\n0,1,2,3,4,5,6\n")
    data, _ = compare(run)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    parts = {
        name: [
            data["charts"][int(number)].get("title")
            for number in re.findall(r'chart="(\d+)"', body)
        ]
        for name, body in re.findall(r'<section id="(\w+)"(.*?)</section>', page, re.DOTALL)
    }
    assert parts["curves"] == ["train_loss", "upgrade"]
    assert parts["system"] == ["cpu_percent", "gpu/0"]
    assert parts["gradients"] == ["l2_norm/grad/global"]
    make(tmp_path / "other")
    data, _ = compare(run, tmp_path / "other")
    minor = {data["table"]["metrics"][index] for index in data["table"]["minor"]}
    assert minor == {*stats, "l2_norm/grad/global", "gpu/0"}
    assert not parts.keys() & {
        "rates",
        "speed",
        "hooks",
        "samples",
        "hyperparameters",
        "checkpoints",
    }
    assert "Not logged: learning rates (a LearningRateMonitor)" in page


def test_too_many_runs_are_refused(tmp_path, compare, capsys, monkeypatch) -> None:
    """The limit is told, before any is read."""
    monkeypatch.setattr("trainer_hooks.cli.report.comparison._MAX_RUNS", 2)
    for number in range(3):
        make(tmp_path / "runs" / f"v{number}")
    assert main(["report", str(tmp_path / "runs")]) == 2
    assert "3 runs are more than the 2 that a page compares" in capsys.readouterr().err


def test_nothing_of_the_machine_is_in_the_page(tmp_path, compare) -> None:
    """Neither in one run's page nor in that of two; `--with-machine` shows it."""
    facts = {
        "command": ["/opt/alice/bin/python", "train.py", "--key", "/opt/alice/data set"],
        "resumed_from": "/opt/alice/logs/v9/last.ckpt",
        "config": "data: /opt/alice/data\nurl: file:///opt/alice/x\nwin: C:\\Users\\alice\\y\n",
        "environment": {"SLURM_JOB_ID": "4"},
    }
    hparams = {"data": "/opt/alice/data", "lr": 1, "api_key": "sesame"}
    first = make(tmp_path / "alice" / "a", hparams=hparams, host="alicebox", **facts)
    second = make(
        tmp_path / "alice" / "b",
        hparams={**hparams, "lr": 2, "data": f"{tmp_path}/alice/b/data"},
        host="alicebox",
        **facts,
    )
    with (second / "run.jsonl").open("a") as file:
        end = {"status": "failed", "error": {"type": "E", "message": f"{second}/x on alicebox:80"}}
        file.write(json.dumps({"event": "end", "run": "a", "time": 1e9, **end}) + "\n")
    (first / "a.ckpt").write_bytes(b"garbage")
    (first / "hook_trace.json").write_text("{")
    for chosen in ([first], [first, second]):
        compare(*chosen)
        page = (tmp_path / "page.html").read_text(encoding="utf-8")
        assert "sesame" not in page
        assert [line for line in page.splitlines() if "alice" in line] == []
        assert str(tmp_path) not in page
        assert ".../python train.py" in page
    data, _ = compare(tmp_path / "alice")
    assert names(data) == ["data=.../data, lr=1", "data=b/data, lr=2"]
    assert data["table"]["rows"][1]["detail"] == "E: b/x on HOST:80"
    compare(first, second, options=["--with-machine"])
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "alicebox, process" in page
    assert "/opt/alice/bin/python" in page


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/eve/x.ckpt", ".../x.ckpt"),
        ("in '/home/eve/x y/z'", "in '.../x y/z'"),
        ("--data=/mnt/d/", "--data=.../d"),
        ("C:\\Users\\eve\\x.py:3", ".../x.py:3"),
        ("file:///home/eve/a", ".../a"),
        ("https://host.org/a/b", "https://host.org/a/b"),
        ("train/loss and 1/2/3", "train/loss and 1/2/3"),
        ("/base dir/run/a.csv, /base dir", "run/a.csv, ."),
        ("node-1: lost node-1.", "HOST: lost HOST."),
        ("node-12 and my-node-1", "node-12 and my-node-1"),
    ],
)
def test_paths_and_hosts_in_texts(text, shown) -> None:
    """Absolute paths keep their ends; addresses, and names with slashes, stay."""
    assert MachineFilter([Path("/base dir")], ["node-1", ""]).text(text) == shown
