from __future__ import annotations

import json
import logging
import math
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch

from trainer_hooks import Callback, StopTraining
from trainer_hooks.callbacks import Notify
from trainer_hooks.errors import OptionError
from trainer_hooks.loggers import CSVLogger

BAD = [
    ({}, r"Notify\(\): there is neither a command nor a url"),
    ({"url": "file:///etc/secret"}, r"url of Notify, of type str: .*http:// or https://"),
    ({"url": "hooks.example/secret"}, r"url of Notify, of type str"),
    ({"url": "http://[secret"}, r"url of Notify, of type str"),
    ({"url": 3}, r"url of Notify, of type int"),
]


@pytest.fixture(autouse=True)
def _warnings_alone(caplog):
    """Keep how a fit ended out of what is looked at here."""
    caplog.set_level("WARNING", "trainer_hooks")


@pytest.mark.parametrize(("options", "message"), BAD, ids=str)
def test_bad_option_is_named(options, message):
    """Each argument outside its rule is an OptionError, and of an address it shows nothing."""
    with pytest.raises(OptionError, match=message) as caught:
        Notify(**options)
    assert "secret" not in str(caught.value)


class Server(ThreadingHTTPServer):
    """An HTTP server on the loopback that keeps what it is sent."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests = []
        self.status = 200
        self.has_arrived = threading.Event()
        self.is_released = threading.Event()
        self.is_released.set()
        self.url = f"http://127.0.0.1:{self.server_port}/secret-path"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.path, dict(self.headers), json.loads(body)))
        self.server.has_arrived.set()
        self.server.is_released.wait(60)
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    """A server that runs meanwhile."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    running = Server()
    thread = threading.Thread(target=running.serve_forever, args=(0.01,))
    thread.start()
    yield running
    running.is_released.set()
    running.shutdown()
    thread.join()
    running.server_close()


@pytest.fixture
def net(Tiny):
    """A module that logs, once a number that JSON has no place for."""

    class LogsNan(Tiny):
        def training_step(self, batch, batch_idx):
            self.log("loss", 0.25)
            self.log("wild", math.nan)
            return super().training_step(batch, batch_idx)

        def test_step(self, batch, batch_idx):
            self.log("test_loss", 2.0)

    return LogsNan


class Ends(Callback):
    """Ends the run in a batch, in the way it is told."""

    def __init__(self, error):
        self.error = error

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if batch_idx == 2:
            raise self.error


def body_of(server):
    [(_, _, body)] = server.requests
    return body


def test_the_end_of_a_fit(quiet_trainer, net, batches, server):
    """A fit that ends well is told once, with where it got and what it logged."""
    notify = Notify(url=server.url, headers={"X-Token": "abc"}, extra={"team": "vision"})
    quiet_trainer(callbacks=[notify], max_epochs=2).fit(net(), batches(4))
    [(path, headers, body)] = server.requests
    assert path == "/secret-path"
    assert (headers["Content-Type"], headers["X-Token"]) == ("application/json", "abc")
    assert body == {
        "status": "finished",
        "run": net.__qualname__,
        "stage": "fit",
        "epoch": 2,
        "step": 8,
        "reason": "",
        "metrics": {"loss": 0.25, "wild": "nan"},
        "exception": None,
        "team": "vision",
        "text": body["text"],
    }
    assert body["text"].startswith(
        f"{net.__qualname__}: fit finished at epoch 2, step 8 (loss 0.25"
    )


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ValueError("too bad"), "failed"),
        (KeyboardInterrupt(), "interrupted"),
        (SystemExit(3), "interrupted"),
    ],
    ids=repr,
)
def test_an_exception(quiet_trainer, net, batches, server, error, status):
    """What breaks a fit off is told with its type and message, and leaves as it was."""
    trainer = quiet_trainer(callbacks=[Notify(url=server.url), Ends(error)])
    with pytest.raises(type(error)) as caught:
        trainer.fit(net(), batches(4))
    assert caught.value is error
    body = body_of(server)
    assert (body["status"], body["step"]) == (status, 2)
    assert body["exception"] == {"type": type(error).__name__, "message": str(error)}
    assert body["text"].endswith(f". {type(error).__name__}: {error}")


def test_an_error_before_the_first_batch(quiet_trainer, net, batches, server):
    """A run that fails while it is prepared, before callbacks are set up, is told too."""

    class Unprepared(net):
        def prepare_data(self):
            raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        quiet_trainer(callbacks=[Notify(url=server.url)]).fit(Unprepared(), batches(1))
    assert body_of(server)["exception"] == {"type": "OSError", "message": "no disk"}


def test_a_stop_is_an_end(quiet_trainer, net, batches, server):
    """A run that was stopped in order is finished, and the reason is told."""

    class Stops(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            trainer.stop("good enough")

    quiet_trainer(callbacks=[Notify(url=server.url), Stops()]).fit(net(), batches(4))
    body = body_of(server)
    assert (body["status"], body["reason"]) == ("finished", "good enough")
    assert body["text"].endswith(". good enough")
    server.requests.clear()
    ends = Ends(StopTraining("enough"))
    quiet_trainer(callbacks=[Notify(url=server.url), ends]).fit(net(), batches(4))
    assert body_of(server)["status"] == "finished"


@pytest.mark.parametrize(
    ("on", "told"), [("end", ["finished"]), ("exception", ["failed"]), (["end", "exception"], None)]
)
def test_when(quiet_trainer, net, batches, server, on, told):
    """`on` chooses whether ends, exceptions or both are told."""
    quiet_trainer(callbacks=[Notify(url=server.url, on=on)]).fit(net(), batches(1))
    trainer = quiet_trainer(callbacks=[Notify(url=server.url, on=on), Ends(ValueError("x"))])
    with pytest.raises(ValueError, match="x"):
        trainer.fit(net(), batches(4))
    statuses = [body["status"] for _, _, body in server.requests]
    assert statuses == (told or ["finished", "failed"])


def test_which_entry_points(quiet_trainer, net, batches, server):
    """`stages` chooses the entry points; a fit alone unless given."""
    for stages, told in (("fit", ["fit"]), (["fit", "test"], ["fit", "test"])):
        server.requests.clear()
        trainer = quiet_trainer(callbacks=[Notify(url=server.url, stages=stages)])
        trainer.fit(module := net(), batches(1))
        trainer.test(module, batches(1), verbose=False)
        assert [body["stage"] for _, _, body in server.requests] == told


def test_fast_dev_run_tells_nobody(quiet_trainer, net, batches, server):
    """A dry run sends nothing."""
    quiet_trainer(callbacks=[Notify(url=server.url)], fast_dev_run=True).fit(net(), batches(1))
    assert server.requests == []


@pytest.mark.parametrize(("field", "name"), [("content", "digits"), (None, None)])
def test_names_of_run_and_text(quiet_trainer, net, batches, server, tmp_path, field, name):
    """The sentence stands where the service looks for it; a run has its name or its logger's."""
    notify = Notify(url=server.url, text_field=field, name=name)
    logger = CSVLogger(tmp_path, name="exp")
    quiet_trainer(callbacks=[notify], logger=logger).fit(net(), batches(1))
    body = body_of(server)
    assert body["run"] == (name or "exp/version_0")
    assert "text" not in body
    assert (field in body) == (field is not None)
    if field:
        assert body[field].startswith("digits: fit finished")


SCRIPT = """
import json, os, sys
body = json.load(sys.stdin)
names = ("TRAINER_HOOKS_STATUS", "TRAINER_HOOKS_RUN", "TRAINER_HOOKS_TEXT")
with open(sys.argv[1], "w") as file:
    json.dump({"body": body, "variables": [os.environ[name] for name in names]}, file)
"""


def test_a_command(quiet_trainer, net, batches, tmp_path):
    """A command gets the object at its input, and the main parts in its environment."""
    target = tmp_path / "told file.json"
    command = [sys.executable, "-c", SCRIPT, str(target)]
    notify = Notify(command, name="digits", timeout=60)
    quiet_trainer(callbacks=[notify]).fit(net(), batches(1))
    told = json.loads(target.read_text())
    assert told["body"]["status"] == "finished"
    assert told["variables"] == ["finished", "digits", told["body"]["text"]]
    assert command[-1] == str(target)


def test_a_command_as_one_text(quiet_trainer, net, batches, tmp_path):
    """A text is split as a shell would, and no shell runs it."""
    target = tmp_path / "a b.json"
    notify = Notify(f'tee "{target}" "$HOME"', timeout=60)
    assert notify.command == ["tee", str(target), "$HOME"]
    notify = Notify(f'tee "{target}"', timeout=60)
    quiet_trainer(callbacks=[notify]).fit(net(), batches(1))
    assert json.loads(target.read_text())["status"] == "finished"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["/no/such/command"], "the command '/no/such/command': it cannot be run: No such file"),
        (["false"], "the command 'false': it ended with 1"),
        (["sh", "-c", "echo broken >&2; exit 3"], "the command 'sh': it ended with 3: broken"),
    ],
)
def test_a_command_that_fails_is_logged(quiet_trainer, net, batches, caplog, command, message):
    """What goes wrong with a command is a warning in the log, and the run ends as it would."""
    trainer = quiet_trainer(callbacks=[Notify(command, timeout=60)])
    trainer.fit(net(), batches(1))
    assert caplog.messages[-1].startswith(f"Notify: {message}")
    assert caplog.records[-1].levelno == logging.WARNING
    assert trainer.state.status == "finished"


@pytest.mark.slow
def test_a_command_that_hangs_is_killed(quiet_trainer, net, batches, caplog, tmp_path):
    """After the timeout a command and what it started are killed, and the run ends."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)
    child = f"(sleep 60; echo survived) > '{pipe}'"
    command = ["sh", "-c", f"{child} & wait"]
    quiet_trainer(callbacks=[Notify(command, timeout=3.0)]).fit(net(), batches(1))
    assert caplog.messages == ["Notify: the command 'sh': it took longer than 3 s and was killed"]
    # the signal reaches the child at a time of its own: this waits until the child has gone
    assert os.read(reader, 100) == b""
    os.close(reader)


@pytest.mark.slow
def test_an_address_that_hangs_is_given_up(quiet_trainer, net, batches, server, caplog):
    """A server that takes the request and never answers holds the end for the timeout at most."""
    server.is_released.clear()
    quiet_trainer(callbacks=[Notify(url=server.url, timeout=0.5)]).fit(net(), batches(1))
    assert server.has_arrived.wait(60)
    assert len(caplog.messages) == 1
    assert "Notify: the address at '127.0.0.1': " in caplog.messages[0]
    server.is_released.set()
    for thread in threading.enumerate():
        if thread.name == "trainer_hooks-notify":
            thread.join(30)


@pytest.mark.parametrize("status", [404, 500])
def test_an_address_that_refuses_is_logged(quiet_trainer, net, batches, server, caplog, status):
    """An answer that is no success is a warning in the log without the secret of the address."""
    server.status = status
    quiet_trainer(callbacks=[Notify(url=server.url)]).fit(net(), batches(1))
    assert f"it answered {status}" in caplog.messages[0]
    assert "secret" not in caplog.text


def test_an_address_where_nobody_is(quiet_trainer, net, batches, server, caplog):
    """A closed port is a warning in the log; the command beside it is run all the same."""
    closed = Server()
    closed.server_close()
    notify = Notify(["true"], url=closed.url, timeout=60)
    error = ValueError("x")
    with pytest.raises(ValueError, match="x") as caught:
        quiet_trainer(callbacks=[notify, Ends(error)]).fit(net(), batches(4))
    assert "it was not reached: " in caplog.messages[-1]
    assert "secret" not in caplog.text
    assert not any("notify" in note.lower() for note in getattr(caught.value, "__notes__", []))


def test_a_body_that_cannot_be_made_ends_no_run(quiet_trainer, net, batches, caplog):
    """A failure in a body of one's own is logged, and not raised."""

    class Broken(Notify):
        def body(self, *args):
            raise KeyError("mine")

    quiet_trainer(callbacks=[Broken(["true"])]).fit(net(), batches(1))
    assert caplog.messages == ["Notify: nothing was sent: 'mine'"]


def test_what_can_be_written_as_json_at_all(quiet_trainer, net, batches, server):
    """Metrics that are no numbers and strange characters leave the object sound."""

    class Strange(Callback):
        def on_train_end(self, trainer, module):
            trainer.callback_metrics["many"] = torch.ones(3)
            trainer.callback_metrics["inf"] = torch.tensor(math.inf)

    quiet_trainer(callbacks=[Strange(), Notify(url=server.url, name='"ü\0')]).fit(net(), batches(1))
    body = body_of(server)
    assert body["metrics"]["many"].startswith("unknown (")
    assert body["metrics"]["inf"] == "inf"
    assert body["run"] == '"ü\0'


def test_the_secret_is_kept(tmp_path, server):
    """Neither the state_key nor what one sees of the object holds the address."""
    notify = Notify(url=server.url, headers={"Authorization": "secret"})
    assert "secret" not in notify.state_key
    assert "secret" not in repr(notify)
    assert not notify.is_stateful


def test_each_run_is_told_once(quiet_trainer, net, batches, server):
    """A callback that is used again tells each run, and a second teardown tells nothing."""
    notify = Notify(url=server.url)
    trainer = quiet_trainer(callbacks=[notify])
    trainer.fit(module := net(), batches(1))
    notify.teardown(trainer, module, "fit")
    trainer.fit(net(), batches(1))
    assert len(server.requests) == 2
