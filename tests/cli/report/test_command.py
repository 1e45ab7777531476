"""`trainer-hooks report`: one page, in which all that users wrote is text."""

from __future__ import annotations

import base64
import json
import re
import sys
from html.parser import HTMLParser

import pytest
import torch
from new_processes import forget_trainings

from trainer_hooks import Callback, Module, Trainer
from trainer_hooks.callbacks import LearningRateMonitor, ModelCheckpoint
from trainer_hooks.cli.main import main
from trainer_hooks.loggers import CSVLogger

pytest.importorskip("jinja2")

EVIL = "<script>alert(1)</script><b>x</b>&amp;\"'"
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class LogsHostileName(Module):
    def __init__(self, rate: float = 0.1, name: str = EVIL) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        loss = self.layer(batch).square().mean()
        self.log("train_loss", loss, on_step=True, on_epoch=False)
        self.log(EVIL, 2.5)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.layer(batch).square().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.rate)


class Dies(Callback):
    def on_train_epoch_start(self, trainer, module):
        if trainer.current_epoch == 1 and trainer.ckpt_path is None:
            raise RuntimeError(f"broke: {EVIL}")


@pytest.fixture
def train(tmp_path):
    """Train a run that fails after its first epoch, and then the rest of it; return its folder."""

    def train(name="run", rate=0.1, resumes=True, **options):
        def trainer():
            return Trainer(
                accelerator="cpu",
                max_epochs=3,
                log_every_n_steps=1,
                logger=CSVLogger(tmp_path, name="logs", version=name),
                callbacks=[ModelCheckpoint(monitor="val_loss"), LearningRateMonitor(), Dies()],
                enable_progress_bar=False,
                enable_model_summary=False,
                profile_hooks=True,
                plugins=False,
                **options,
            )

        torch.manual_seed(1)
        batches = [torch.ones(2, 2) * n for n in range(1, 5)]
        with pytest.raises(RuntimeError, match="broke"):
            trainer().fit(LogsHostileName(rate), batches, batches)
        if resumes:
            forget_trainings()
            trainer().fit(LogsHostileName(rate), batches, batches, ckpt_path="last")
        return tmp_path / "logs" / name

    return train


class _Reader(HTMLParser):
    """Reads a page as a browser does: its elements, its text, its data."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.texts: list[str] = []
        self.data = ""
        self._in_data = False
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._in_data = dict(attrs).get("id") == "data"

    def handle_data(self, data):
        if self._in_data:
            self.data += data
            self._in_data = False
        else:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


@pytest.fixture
def report(capsys, tmp_path):
    """Write a report; return the page, read."""

    def report(*folders):
        capsys.readouterr()
        code = main(["report", *map(str, folders), "-o", str(tmp_path / "page.html")])
        assert (code, capsys.readouterr().err) == (0, "")
        return _Reader((tmp_path / "page.html").read_text(encoding="utf-8"))

    return report


@pytest.fixture
def fails(capsys):
    """Ask for a report that cannot be; return the error."""

    def fails(*arguments):
        capsys.readouterr()
        assert main(["report", *map(str, arguments)]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("trainer-hooks report: error: ")
        assert err.count("\n") == 1
        return err

    return fails


@pytest.mark.slow
def test_the_page_tells_of_all_that_a_run_left(train, report) -> None:
    """Every part is there and filled: curves, rates, timeline, hooks, checkpoints and the rest."""
    page = report(train())
    data = json.loads(page.data)
    titles = {chart.get("title") for chart in data["charts"]}
    assert {"loss", "lr-SGD", EVIL} <= titles
    assert {chart["draws"] for chart in data["charts"]} == {"curves", "timeline", "costs"}
    spans = next(chart["spans"] for chart in data["charts"] if chart["draws"] == "timeline")
    assert [span["outcome"] for span in spans] == ["failed", "finished"]
    assert data["resumes"] == [[4]]
    text = page.text
    for said in (
        "RuntimeError: broke", "best", "can be resumed from: yes", "on_train_epoch_start",
        "ModelCheckpoint", torch.__version__, "rate", "0.1", "fit, from ",
    ):  # fmt: skip
        assert said in text, said
    links = [attrs["href"] for tag, attrs in page.elements if tag == "a"]
    ids = {attrs["id"] for _, attrs in page.elements if "id" in attrs}
    assert all(link.startswith("#") and link[1:] in ids for link in links)
    assert len(links) >= 12


@pytest.mark.slow
def test_the_curves_carry_the_numbers_of_the_file(train, report) -> None:
    """Each value of metrics.csv is in the page, at its step and epoch."""
    folder = train()
    head, *rows = [line.split(",") for line in (folder / "metrics.csv").read_text().splitlines()]
    column = head.index("train_loss")
    expected = {int(row[0]): float(row[column]) for row in rows if row[column]}
    data = json.loads(report(folder).data)
    [trace] = [t for c in data["charts"] for t in c.get("traces", ()) if t["name"] == "train_loss"]
    axis = data["axes"][trace["axis"]]
    assert dict(zip(axis["x"], trace["y"], strict=True)) == pytest.approx(expected, rel=1e-8)
    assert axis["x"] == list(range(12))
    assert axis["e"] == [(step + 1) / 4 for step in range(12)]


@pytest.mark.slow
def test_what_users_wrote_stays_text(train, report, tmp_path) -> None:
    """No name, value, message or caption adds an element to the page."""
    folder = train()
    samples = folder / "samples"
    samples.mkdir()
    (samples / "a.png").write_bytes(PIXEL)
    index = [{"file": "a.png", "caption": EVIL, "step": 3}, {"text": EVIL, "caption": "said"}]
    (samples / "samples.json").write_text(json.dumps(index))
    page = report(folder)
    assert [tag for tag, _ in page.elements if tag in ("b", "i")] == []
    assert [tag for tag, _ in page.elements].count("script") == 3
    assert page.text.count(EVIL) >= 4
    raw = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<script>alert" not in raw


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(train, report) -> None:
    """The page names no other file, and forbids the browser to load one."""
    page = report(train())
    for tag, attrs in page.elements:
        for name in ("src", "href", "action", "data"):
            value = attrs.get(name, "") or ""
            assert not re.match(r"(?:\w+:)?//|\w+\.", value), (tag, value)
    policies = [a["content"] for t, a in page.elements if a.get("http-equiv")]
    assert policies[0].startswith("default-src 'none'")


@pytest.mark.slow
def test_several_runs_are_compared(train, report) -> None:
    """Runs are named by what differs, and curves lie in one chart under those names."""
    page = report(train("one", 0.1), train("two", 0.05))
    data = json.loads(page.data)
    assert data["runs"] == ["rate=0.1", "rate=0.05"]
    loss = next(chart for chart in data["charts"] if chart.get("title") == "loss")
    assert {trace["run"] for trace in loss["traces"]} == {0, 1}
    assert "Those that differ stand first: 1 of 2." in page.text
    rows = data["table"]["rows"]
    assert [row["settings"] for row in rows] == [[0.1], [0.05]]
    assert [row["folder"] for row in rows] == ["one", "two"]
    assert [row["state"] for row in rows] == ["finished"] * 2


@pytest.mark.slow
def test_without_an_output_the_page_lies_in_the_run(train, capsys) -> None:
    """Where it was written is told, and is the run's folder; a metric compares no single run."""
    folder = train(resumes=False)
    capsys.readouterr()
    assert main(["report", str(folder), "--monitor", "val_loss"]) == 0
    told = capsys.readouterr()
    assert told.out == f"{folder / 'report.html'}\n"
    assert told.err == (
        "trainer-hooks report: --monitor val_loss: one run is shown, which is compared with none.\n"
    )
    assert (folder / "report.html").is_file()


@pytest.mark.slow
def test_a_long_run_makes_a_small_page(tmp_path, report) -> None:
    """Curves are thinned out, which the page says; the highest value is still there."""
    folder = tmp_path / "long"
    folder.mkdir()
    rows = (f"{step},{999 if step == 12_345 else step % 7}\n" for step in range(30_000))
    (folder / "metrics.csv").write_text("step,a\n" + "".join(rows))
    page = report(folder)
    data = json.loads(page.data)
    [chart] = data["charts"]
    [trace] = chart["traces"]
    steps = data["axes"][trace["axis"]]["x"]
    assert len(steps) <= 2000
    assert trace["y"][steps.index(12_345)] == 999
    assert "30,000 values, of which" in page.text


@pytest.mark.parametrize("content", ["", "step\n", "step,epoch,a\n", "step,a\n0,nan\n"])
def test_a_run_that_has_hardly_begun_has_a_page(content, tmp_path, report) -> None:
    """Without a single value, the page says that there is none."""
    folder = tmp_path / "new"
    folder.mkdir()
    (folder / "metrics.csv").write_text(content or "step\n")
    assert "Nothing was logged." in report(folder).text


def test_the_last_value_of_a_run_that_ended_in_nan(tmp_path, report) -> None:
    """The table of values shows it, beside the lowest and highest number."""
    (tmp_path / "metrics.csv").write_text("step,loss\n0,4.5\n1,2.25\n2,nan\n")
    cells = report(tmp_path).text.split()
    at = cells.index("nan")
    assert cells[at : at + 5] == ["nan", "2.25", "1", "4.5", "0"]


@pytest.mark.slow
def test_damaged_files_are_told_and_stop_nothing(train, report) -> None:
    """Garbage among checkpoints, journal, trace, samples and hyperparameters is noted."""
    folder = train()
    (folder / "checkpoints" / "bad.ckpt").write_bytes(b"\x00garbage")
    with (folder / "run.jsonl").open("ab") as file:
        file.write(b"\xff\x00garbage\n")
    (folder / "hook_trace-v9.json").write_bytes(b"{\xff")
    (folder / "hparams.json").write_text("[")
    samples = folder / "samples"
    samples.mkdir()
    (samples / "samples.json").write_text('[{"file": "../../x.png"}, {"file": "no.png"}, 3]')
    (samples / "text.png").write_text("not a picture")
    text = report(folder).text
    for said in (
        "not written by torch.save", "lines could not be read: 1", "hook_trace-v9.json could not",
        "hparams.json could not be read", "it is outside of that folder",
        "no.png is not shown: No such file", "it is no PNG, JPEG, GIF or WebP",
    ):  # fmt: skip
        assert said in text, said


def test_bad_input_is_told_in_one_line(tmp_path, fails) -> None:
    """What is no run, and a page that cannot be written, end with code 2."""
    assert "is not there" in fails(tmp_path / "none")
    assert "holds nothing of a run" in fails(tmp_path)
    (tmp_path / "metrics.csv").write_bytes(b"\x89PNG\0\0")
    assert "was not written by a CSVLogger" in fails(tmp_path)
    (tmp_path / "metrics.csv").write_text("step,a\n0,1\n")
    told = f"there is no folder {str(tmp_path / 'no' / 'folder')!r}. Make it"
    assert told in fails(tmp_path, "-o", tmp_path / "no" / "folder" / "x.html")
    # a checkpoint beside the run, taken by mistake, stays what it is
    (tmp_path / "a.ckpt").write_bytes(b"weights")
    assert "by its name it is no page" in fails(tmp_path, "-o", tmp_path / "a.ckpt")
    assert (tmp_path / "a.ckpt").read_bytes() == b"weights"


def test_it_says_what_to_install(tmp_path, fails, monkeypatch) -> None:
    """Without Jinja, the extra that has it is named."""
    package = "jinja2"
    (tmp_path / "metrics.csv").write_text("step,a\n0,1\n")
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    assert f"{package} is not installed: pip install 'trainer-hooks[report]'" in fails(tmp_path)
