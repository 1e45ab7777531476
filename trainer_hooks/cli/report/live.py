"""`trainer-hooks report --live`: the page on this machine alone, which follows the runs."""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from trainer_hooks._text import printable
from trainer_hooks.cli.report.changed_runs import ChangedRunReader
from trainer_hooks.cli.report.logged_run import (
    Outcome,
    RunFolderError,
    files_signature,
    pause_after,
    runs_in,
    set_outcomes,
)
from trainer_hooks.cli.report.page import collect_page, make_page, render_page
from trainer_hooks.errors import TrainerHooksError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trainer_hooks.cli.report.comparison import Objective
    from trainer_hooks.cli.report.logged_run import LoggedRun

_HOST = "127.0.0.1"


@dataclass(slots=True)
class _RenderedPage:
    """A page as it was made, and the state of the files then.

    Attributes:
        signature: the runs, with the sizes and times of their files.
        outcomes: how each training went on or ended: a process that was killed writes nothing.
        runs: the runs.
        version: a name for the page's contents.
        text: the page.
        due: when the files are looked at again, by `time.monotonic`.
    """

    signature: object = None
    outcomes: list[Outcome | None] = field(default_factory=list)
    runs: Sequence[LoggedRun] = ()
    version: str = ""
    text: str = ""
    due: float = 0.0


class LiveReport:
    """Makes the page of runs, and of each run alone, anew when their files have changed.

    Args:
        run_paths: the folders of the runs, or folders that hold several.
        objective: the metric by which runs are compared; None: that of the sweep, or a likely one.
        with_machine: whether absolute paths and the host's name are shown.
    """

    def __init__(
        self, run_paths: Sequence[Path], objective: Objective | None, *, with_machine: bool
    ) -> None:
        self._run_paths, self._objective = run_paths, objective
        self._with_machine = with_machine
        self._read = ChangedRunReader()
        self._pages: dict[str, _RenderedPage] = {}
        # a page of an earlier server is never taken for one of this
        self._started = secrets.token_hex(4)
        self._lock = threading.Lock()  # each request has a thread

    def require_folders(self) -> None:
        """Require the folders that the user named.

        Raises:
            RunFolderError: one is not there, or is gone.
        """
        for path in self._run_paths:
            if not path.is_dir():
                raise RunFolderError(f"{str(path)!r} is not there: give the folder of runs.")

    def page(self, run: str = "") -> tuple[str, str]:
        """Return the version and the text of a page.

        Args:
            run: the name of a run in the page's links; empty for the page of all.

        Raises:
            RunFolderError: a folder is gone, or has no such run.
            UsageError: no run logged the metric that the user chose.
        """
        with self._lock:
            self.require_folders()
            page = self._pages.setdefault(run, _RenderedPage())
            began = time.monotonic()
            if began >= page.due:
                self._renew(run, page)
                now = time.monotonic()
                page.due = now + pause_after(now - began)
            return page.version, page.text

    def _renew(self, run: str, page: _RenderedPage) -> None:
        """Make a page anew if its runs have changed."""
        paths, folders = self._run_paths, self._folders()
        if run:
            folders = paths = [folder for folder in folders if _name_of(folder) == run]
            if not folders:
                raise RunFolderError("there is no such run now: go back to the page of all.")
        for each in page.runs:
            set_outcomes(each.starts)
        signature = [(folder, files_signature(folder)) for folder in folders]
        if page.text and signature == page.signature and _outcomes(page.runs) == page.outcomes:
            return
        with_machine, link_to = self._with_machine, _link if len(folders) > 1 else _no_link
        if folders:
            try:
                made, runs, _ = collect_page(
                    paths, folders, self._objective, link_to,
                    with_machine=with_machine, is_live=True, read=self._read,
                )  # fmt: skip
            except (TrainerHooksError, OSError):
                if not page.text:
                    raise
                return  # half a file, or one that was just removed: the next look reads it
        else:
            runs = []
            made = make_page(runs, None, _no_link, with_machine=with_machine, is_live=True)
        page.text = render_page(made)
        page.runs, page.signature, page.outcomes = runs, signature, _outcomes(runs)
        number = int(page.version.rpartition("-")[2] or 0) + 1
        page.version = f"{self._started}-{number}"

    def _folders(self) -> list[Path]:
        """Return the folders of the runs; none where the first has not begun to write."""
        try:
            return list(dict.fromkeys(run for path in self._run_paths for run in runs_in(path)))
        except RunFolderError:
            return []


def _name_of(folder: Path) -> str:
    return hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]


def _link(folder: Path) -> str:
    return f"?run={_name_of(folder)}"


def _no_link(folder: Path) -> str:  # noqa: ARG001 - as `_link`
    return ""


def _outcomes(runs: Sequence[LoggedRun]) -> list[Outcome | None]:
    return [None if run.last_fit is None else run.last_fit.outcome for run in runs]


class _Server(ThreadingHTTPServer):
    """Serves the pages until a folder is gone."""

    daemon_threads = True
    # on Windows it would let two servers have one port
    allow_reuse_address = os.name != "nt"

    def __init__(self, report: LiveReport, port: int) -> None:
        super().__init__((_HOST, port), _Handler)
        self.report = report

    def service_actions(self) -> None:
        """Look for the folders, which nobody may ask for any more."""
        self.report.require_folders()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a browser that has gone meanwhile, as it is closed."""


class _Handler(BaseHTTPRequestHandler):
    """Answers with a page, or with nothing where the browser has it already."""

    server: _Server

    def do_GET(self) -> None:
        """Send the page of all runs, or that of one."""
        # the name of another site that leads here is none of ours: that site may not read the page
        if self.headers.get("Host", "").rpartition(":")[0] not in (_HOST, "localhost"):
            self.send_error(HTTPStatus.FORBIDDEN)
            return
        address = urlsplit(self.path)
        if address.path != "/":
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        try:
            version, text = self.server.report.page(parse_qs(address.query).get("run", [""])[0])
        except (TrainerHooksError, OSError) as error:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", printable(error))
            return
        if self.headers.get("If-None-Match") == f'"{version}"':
            self.send_response(HTTPStatus.NOT_MODIFIED)
            self.end_headers()
            return
        self._send(HTTPStatus.OK, "text/html", text, ETag=f'"{version}"')

    def _send(self, status: HTTPStatus, kind: str, text: str, **headers: str) -> None:
        contents = text.encode()
        self.send_response(status)
        for name, value in {
            "Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(contents)),
            "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", **headers,
        }.items():  # fmt: skip
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(contents)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Log nothing: a line each second is of no use."""


def serve(report: LiveReport, port: int) -> None:
    """Serve the page until Ctrl-C.

    Args:
        report: the pages.
        port: the port; 0 for one that is free.

    Raises:
        ModuleNotFoundError: Jinja is not installed.
        RunFolderError: a folder is not there, or is gone.
        UsageError: the port is taken; no run logged the metric that the user chose.
    """
    report.page()  # what is wrong is told here, and not in a browser
    try:
        server = _Server(report, port)
    except OSError as error:
        raise UsageError(
            f"port {port} cannot be used ({error.strerror}): name another with --port, or 0 for "
            "one that is free."
        ) from error
    with server:
        print(f"http://{_HOST}:{server.server_port}/ follows the runs. Ctrl-C ends it.", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return  # the way to end it
