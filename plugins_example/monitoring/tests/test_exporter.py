"""PrometheusExporter, scraped as a Prometheus server does it."""

from __future__ import annotations

import copy
import gc
import math
import pickle
import socket
import socketserver
import sys
import threading
import time
import urllib.request
import weakref
from pathlib import Path

import pytest
import torch
from prometheus_client.parser import text_string_to_metric_families

from trainer_hooks import Callback, Trainer
from trainer_hooks.errors import OptionError, TrainerHooksWarning
from trainer_hooks.testing import TinyModule, check_callback

SOURCE = Path(__file__).parents[1] / "src"
if str(SOURCE) not in sys.path:  # the tests run from a checkout, installed or not
    sys.path.append(str(SOURCE))

from trainer_hooks_monitoring import PrometheusExporter  # noqa: E402
from trainer_hooks_monitoring.factories import make_exporter  # noqa: E402


@pytest.fixture(autouse=True)
def _servers_end_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a server look for its end more often than each half second."""
    serve = socketserver.BaseServer.serve_forever
    monkeypatch.setattr(socketserver.BaseServer, "serve_forever", lambda self: serve(self, 0.01))


def scrape(url: str) -> dict[str, float]:
    """Return the samples at a URL: name, with labels as in `name{type=ValueError}`, to value."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        text = answer.read().decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{key}={value}" for key, value in sample.labels.items())
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return {name.removeprefix("trainer_hooks_"): value for name, value in found.items()}


def trainer(folder: Path, *callbacks: Callback, **options) -> Trainer:
    quiet = {
        "accelerator": "cpu",
        "callbacks": callbacks,
        "default_root_dir": folder,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "log_every_n_steps": 2,
        "logger": False,
        "max_epochs": 2,
        "num_sanity_val_steps": 0,
        "plugins": False,
    }
    return Trainer(**{**quiet, **options})


class Scraper(Callback):
    """Scrape after each training batch, and keep the losses that were."""

    def __init__(self, exporter: PrometheusExporter) -> None:
        self.exporter = exporter
        self.seen: list[dict[str, float]] = []
        self.losses: list[float] = []

    def on_batch_checkpoint(self, trainer, module):  # after the exporter's turn
        self.seen.append(scrape(self.exporter.url))

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.losses.append(float(outputs["loss"]))


def test_it_is_scraped_during_a_run_and_after(tmp_path: Path) -> None:
    """Steps, samples, epoch, loss, seconds and state are right at each batch, and at the end."""
    exporter = PrometheusExporter()
    scraper = Scraper(exporter)
    with trainer(tmp_path, exporter, scraper) as fitted:
        fitted.fit(TinyModule())
        last = scrape(exporter.url)
    seen = scraper.seen
    assert [found["steps_total"] for found in seen] == [1, 2, 3, 4, 5, 6]
    assert [found["samples_total"] for found in seen] == [2, 4, 6, 8, 10, 12]
    assert [found["batches_total"] for found in seen] == [1, 2, 3, 4, 5, 6]
    assert [found["epoch"] for found in seen] == [0, 0, 0, 1, 1, 1]
    assert [found["global_step"] for found in seen] == [1, 2, 3, 4, 5, 6]
    assert [found["batch_duration_seconds_count"] for found in seen] == [1, 2, 3, 4, 5, 6]
    assert all(found["run_state{trainer_hooks_run_state=fit}"] == 1 for found in seen)
    assert all(found["samples_per_second"] > 0 for found in seen)
    # the loss is that of every second batch, as the loggers are due then
    assert math.isnan(seen[0]["loss"])
    losses = scraper.losses
    due = [losses[1], losses[1], losses[3], losses[3], losses[5]]
    assert [found["loss"] for found in seen[1:]] == due
    assert last["run_state{trainer_hooks_run_state=finished}"] == 1
    assert last["run_state{trainer_hooks_run_state=fit}"] == 0
    assert last["metric{name=val_loss}"] == pytest.approx(
        float(fitted.callback_metrics["val_loss"])
    )
    assert last["run_info{module=TinyModule,version=0.1.0}"] == 1


def test_its_names_are_those_that_prometheus_wants(tmp_path: Path) -> None:
    """Counters end in `_total`, times in `_seconds`; every name has our prefix and a help text."""
    exporter = PrometheusExporter()
    for family in exporter.registry.collect():
        assert family.name.startswith("trainer_hooks_")
        assert family.documentation.endswith(".")
        for sample in family.samples:
            if family.type == "counter":
                assert sample.name.endswith(("_total", "_created"))
        if family.type == "histogram" or "age" in family.name or "timestamp" in family.name:
            assert family.name.endswith("_seconds")


def test_the_loss_is_read_only_when_loggers_are_due(tmp_path: Path, monkeypatch) -> None:
    """Of six batches three losses are copied from the device; without the exporter none is."""
    copies = []
    real = torch.Tensor.__float__
    monkeypatch.setattr(torch.Tensor, "__float__", lambda self: copies.append(1) or real(self))

    class Silent(TinyModule):
        def on_validation_batch_end(self, *args):
            pass

    counts = []
    for callbacks in ((), (PrometheusExporter(),)):
        copies.clear()
        with trainer(tmp_path, *callbacks, limit_val_batches=0) as fitted:
            fitted.fit(Silent())
        counts.append(len(copies))
    assert counts[1] - counts[0] == 3


def test_checkpoints_have_an_age(tmp_path: Path) -> None:
    """Before the first checkpoint both are NaN; then there is its time, and how long ago it is."""
    exporter = PrometheusExporter()
    with trainer(tmp_path, exporter, max_epochs=1) as fitted:
        fitted.fit(TinyModule())
        before = scrape(exporter.url)
        began = time.time()
        fitted.save_checkpoint(tmp_path / "a.ckpt")
        after = scrape(exporter.url)
    assert math.isnan(before["last_checkpoint_timestamp_seconds"])
    assert math.isnan(before["last_checkpoint_age_seconds"])
    assert began <= after["last_checkpoint_timestamp_seconds"] <= time.time()
    assert 0 <= after["last_checkpoint_age_seconds"] <= time.time() - began


def test_exceptions_are_counted_by_type(tmp_path: Path) -> None:
    """A run that fails is counted and told as failed; the next one that works is not."""

    class Broken(TinyModule):
        def loss(self, outputs, batch):
            raise ArithmeticError("lost")

    exporter = PrometheusExporter()
    with trainer(tmp_path, exporter) as fitted:
        with pytest.raises(ArithmeticError):
            fitted.fit(Broken())
        failed = scrape(exporter.url)
        fitted.validate(TinyModule(), verbose=False)
        fine = scrape(exporter.url)
    assert failed["exceptions_total{type=ArithmeticError}"] == 1
    assert failed["run_state{trainer_hooks_run_state=failed}"] == 1
    assert fine["exceptions_total{type=ArithmeticError}"] == 1
    assert fine["run_state{trainer_hooks_run_state=finished}"] == 1


def test_a_resumed_run_counts_from_zero_and_tells_where_it_is(tmp_path: Path) -> None:
    """Counters are of the process; the gauges of epoch and step are of the whole training."""
    first = trainer(tmp_path, max_epochs=1)
    first.fit(TinyModule())
    first.save_checkpoint(tmp_path / "cut.ckpt")
    exporter = PrometheusExporter()
    with trainer(tmp_path, exporter) as second:
        second.fit(TinyModule(), ckpt_path=tmp_path / "cut.ckpt")
        found = scrape(exporter.url)
    assert (found["steps_total"], found["global_step"]) == (3, 6)


def test_two_trainers_do_not_mix(tmp_path: Path) -> None:
    """Two exporters in one process have a port and numbers of their own."""
    one, two = PrometheusExporter(), PrometheusExporter()
    with trainer(tmp_path, one) as first, trainer(tmp_path, two, max_epochs=1) as second:
        first.fit(TinyModule())
        second.fit(TinyModule())
        assert one.url != two.url
        assert scrape(one.url)["steps_total"] == 6
        assert scrape(two.url)["steps_total"] == 3


def test_close_ends_the_thread_and_frees_the_port(tmp_path: Path) -> None:
    """After `close` there is no thread more than before, and the port can be had by others."""
    threads = set(threading.enumerate())
    exporter = PrometheusExporter()
    fitted = trainer(tmp_path, exporter, max_epochs=1)
    assert exporter.url is None
    fitted.fit(TinyModule())
    port = int(exporter.url.rpartition(":")[2].partition("/")[0])
    fitted.close()
    assert exporter.url is None
    assert set(threading.enumerate()) <= threads
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()


@pytest.mark.slow
def test_a_trainer_that_is_forgotten_leaves_no_server(tmp_path: Path) -> None:
    """Where nobody closes the trainer, the thread ends once the exporter is collected."""
    threads = set(threading.enumerate())
    exporter = PrometheusExporter()
    trainer(tmp_path, exporter, max_epochs=1).fit(TinyModule())
    [thread] = set(threading.enumerate()) - threads
    gone = weakref.ref(exporter)
    del exporter
    gc.collect()
    assert gone() is None
    thread.join(30)
    assert not thread.is_alive()


def test_a_port_that_is_taken_is_told_and_training_goes_on(tmp_path: Path) -> None:
    """One warning names port and rule, and the run ends as it should."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        fitted = trainer(tmp_path, PrometheusExporter(port))
        with pytest.warns(TrainerHooksWarning, match=f"port {port} at '127.0.0.1'.*must be free"):
            fitted.fit(TinyModule())
    assert fitted.global_step == 6


def test_it_listens_at_this_machine_only_unless_asked() -> None:
    """The default address is that of loopback."""
    assert PrometheusExporter().address == "127.0.0.1"


@pytest.mark.parametrize("port", [-1, 65536, True, 1.5, "9400", None])
def test_a_wrong_port_is_told(port: object) -> None:
    """What is no port is an error at construction."""
    with pytest.raises(OptionError, match=r"port .* of PrometheusExporter: it must be a whole num"):
        PrometheusExporter(port)


@pytest.mark.parametrize("address", ["", None, 3])
def test_a_wrong_address_is_told(address: object) -> None:
    """What is no address is an error at construction."""
    with pytest.raises(OptionError, match=r"address .* of PrometheusExporter: it must be"):
        PrometheusExporter(0, address)


def test_nothing_is_opened_unless_the_environment_says_so(monkeypatch) -> None:
    """Without the variable the factory returns nothing; with it, an exporter for that port."""
    monkeypatch.delenv("TRAINER_HOOKS_PROMETHEUS_PORT", raising=False)
    monkeypatch.delenv("TRAINER_HOOKS_PROMETHEUS_ADDRESS", raising=False)
    assert make_exporter() == []
    monkeypatch.setenv("TRAINER_HOOKS_PROMETHEUS_PORT", "9400")
    [exporter] = make_exporter()
    assert (exporter.port, exporter.address, exporter.url) == (9400, "127.0.0.1", None)
    monkeypatch.setenv("TRAINER_HOOKS_PROMETHEUS_ADDRESS", "::1")
    assert make_exporter()[0].address == "::1"


@pytest.mark.parametrize("value", ["-1", "65536", "9400.0", "http", "²"])
def test_a_wrong_variable_is_named(monkeypatch, value: str) -> None:
    """The error has the variable, its value and the rule."""
    monkeypatch.setenv("TRAINER_HOOKS_PROMETHEUS_PORT", value)
    rule = f"TRAINER_HOOKS_PROMETHEUS_PORT='{value}' in the environment: it must be a port"
    with pytest.raises(OptionError, match=rule):
        make_exporter()


def test_it_can_be_copied_and_pickled_while_it_serves(tmp_path: Path) -> None:
    """A copy has the settings, and neither server nor numbers."""
    exporter = PrometheusExporter(0, "127.0.0.1")
    with trainer(tmp_path, exporter, max_epochs=1) as fitted:
        fitted.fit(TinyModule())
        for other in (copy.deepcopy(exporter), pickle.loads(pickle.dumps(exporter))):
            assert (other.port, other.address, other.url) == (0, "127.0.0.1", None)


@pytest.mark.slow
def test_it_keeps_the_contract_of_callbacks() -> None:
    """The kit finds no fault."""
    check_callback(PrometheusExporter)
