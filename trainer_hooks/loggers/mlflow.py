"""MLflowLogger: log to a run of MLflow, in a local database or on a server."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from reprlib import Repr
from secrets import token_hex
from threading import RLock
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import log
from trainer_hooks._options import STRING, answers_keywords, check_options
from trainer_hooks.errors import MetricError, OptionError
from trainer_hooks.loggers.conversion import (
    ConvertingLogger,
    as_dict,
    flattened,
    plain_number,
    require_package,
    step_or_zero,
)
from trainer_hooks.loggers.online_services import CheckpointUploads, RecordedSteps

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping, Sequence

    from mlflow.tracking import MlflowClient

_RULES = {
    "experiment_name": STRING,
    "prefix": STRING,
    "run_name": STRING.or_none(),
    "run_id": STRING.or_none(),
}

# MLflow's own rules: one name that breaks them makes it refuse a whole batch
_FORBIDDEN = re.compile(r"[^\w/. -]" if os.name == "nt" else r"[^\w/. :-]")
_FORBIDDEN_IN_IMAGES = re.compile(r"[^a-zA-Z0-9_/. -]")
_LONGEST_NAME = 250
_SHORT = Repr()
_SHORT.maxstring = 60
# the lowest of MLflow's own limits for a value
_SHORTEST_CUT = 500
# MLflow's own limit for a batch
_MOST_PARAMS = 100
# MLflow's tag with the list of a run's tables
_TABLES_TAG = "mlflow.loggedArtifacts"
_TOKEN_TAG = "trainer_hooks.run"
"""The tag with a random value that finds a run which was made after the checkpoint was saved."""


class MLflowLogger(ConvertingLogger):
    """Log metrics, parameters, images, tables, texts and checkpoints to a run of MLflow.

    During a run a separate thread talks to MLflow, so that a slow server delays no step. The
    experiment and the run are made at the first write. A resumed run continues the same run of
    MLflow; metrics that it holds for a step already are not sent again. MLflow cannot change a
    parameter: the first value stays, and a warning says so.

    Args:
        experiment_name: name of the experiment, which is made if it does not exist.
        run_name: name of the run.
        tracking_uri: address of a server or a database; by default `MLFLOW_TRACKING_URI`, and
            without that a database `mlflow.db` in `save_dir`.
        tags: tags of the run.
        save_dir: folder of the local database; without effect if there is a `tracking_uri`.
        log_model: whether checkpoints become artifacts: True for those that are left at the end,
            `"all"` for each as it is saved.
        prefix: text before each metric's name, joined by a dash.
        artifact_location: the artifact store of a new experiment.
        run_id: the id of a run to continue.
        synchronous: False lets MLflow queue metrics and send them by itself.

    Raises:
        OptionError: an argument breaks its rule, or mlflow is not installed.

    Example::

        trainer = Trainer(logger=MLflowLogger("digits", tracking_uri="http://localhost:5000"))
    """

    in_background = True

    _connections = ("_client",)

    @answers_keywords
    def __init__(
        self,
        experiment_name: str = "trainer_logs",
        run_name: str | None = None,
        tracking_uri: str | None = None,
        tags: dict[str, Any] | None = None,
        save_dir: str | os.PathLike[str] | None = "./mlruns",
        log_model: bool | str = False,
        prefix: str = "",
        artifact_location: str | None = None,
        run_id: str | None = None,
        synchronous: bool | None = None,
    ) -> None:
        require_package("mlflow", "mlflow", "MLflowLogger")
        check_options(
            "MLflowLogger",
            _RULES,
            experiment_name=experiment_name,
            prefix=prefix,
            run_name=run_name,
            run_id=run_id,
        )
        self._uploads = CheckpointUploads(log_model, "MLflowLogger")
        address = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
        self._save_dir = None if address or save_dir is None else os.fspath(save_dir)
        if not address and self._save_dir is None:
            raise OptionError(
                "save_dir None of MLflowLogger: it must be a folder if there is no tracking_uri. "
                "Give one of the two."
            )
        # absolute: a later change of the working directory must not begin another database
        local = Path(str(self._save_dir)).absolute()
        self._uri = address or f"sqlite:///{local / 'mlflow.db'}"
        self._artifacts = artifact_location
        if not address and artifact_location is None:
            self._artifacts = (local / "artifacts").as_uri()
        self._experiment_name = experiment_name
        self._run_name = run_name
        self._tags = dict(tags or {})
        self._prefix = f"{prefix}-" if prefix else ""
        self._synchronous = synchronous
        self._run_id = run_id
        self._token = token_hex(16)
        self._is_chosen = run_id is not None
        self._experiment_id: str | None = None
        self._client: MlflowClient | None = None
        self._is_open = False
        self._is_running = False
        self._is_resumed = False
        self._written = RecordedSteps()
        self._tables: set[str] = set()
        self._logged = 0
        self._names = {
            "metric": _StoredNames("metric"),
            "hyperparameter": _StoredNames("hyperparameter"),
            "artifact": _StoredNames("artifact"),
            "image": _StoredNames("image", _FORBIDDEN_IN_IMAGES),
        }
        # the training reads properties, which open the run, while the guard's thread logs
        self._lock = RLock()

    @property
    def name(self) -> str:
        """Return the name of the experiment."""
        return self._experiment_name

    @property
    def is_version_chosen(self) -> bool:
        """Return whether the user chose the id."""
        return self._is_chosen

    @property
    def version(self) -> str | None:
        """Return the id of the run; None before the first write."""
        return self._run_id

    @property
    def save_dir(self) -> str | None:
        """Return the folder of the local database; None with a server or another database."""
        return self._save_dir

    @property
    def log_dir(self) -> None:
        """Return None: MLflow offers no folder to which others may write."""
        return

    @property
    def tracking_uri(self) -> str:
        """Return the address of the server or the database."""
        return self._uri

    @property
    def experiment(self) -> MlflowClient:
        """Return the client; the first call makes the experiment and the run."""
        return self._open()[0]

    @property
    def run_id(self) -> str:
        """Return the id of the run, which is made if needed."""
        return self._open()[1]

    @property
    def experiment_id(self) -> str | None:
        """Return the id of the experiment, which is made if need be."""
        self._open()
        return self._experiment_id

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Send the values of one moment; without a `step` the calls are numbered.

        Characters that MLflow does not allow in a name become underscores.
        """
        from mlflow.entities import Metric

        client, run_id = self._open_running()
        # MLflow takes milliseconds
        position, now = self._logged if step is None else step, int(time.time() * 1000)
        named = self._names["metric"].renamed(
            {self._prefix + key: value for key, value in metrics.items()}
        )
        # all values are converted before any is sent: a call that raises must have stored nothing
        sent = []
        for key, value in self._written.without(named, position).items():
            number = plain_number(value)
            if not isinstance(number, int | float):
                raise MetricError(
                    f"value {value!r} of metric {key!r} for MLflowLogger: must be a number. "
                    "Use log_text for texts."
                )
            sent.append(Metric(key, float(number), now, position))
        if sent:
            set_by_user = self._synchronous is not None
            options: dict[str, Any] = {"synchronous": self._synchronous} if set_by_user else {}
            client.log_batch(run_id, metrics=sent, **options)
        self._logged += 1

    def log_hyperparams(self, params: Mapping[str, Any] | Namespace) -> None:
        """Send hyperparameters; nested ones get names with slashes."""
        from mlflow.entities import Param

        client, run_id = self._open_running()
        # asked first: one changed value makes MLflow refuse the whole batch
        present = client.get_run(run_id).data.params
        values = self._names["hyperparameter"].renamed(
            {key: str(value) for key, value in flattened(as_dict(params)).items()}
        )
        changed = [
            f"{key}={_SHORT.repr(present[key])} (now {_SHORT.repr(value)})"
            for key, value in values.items()
            if key in present and not _is_stored(value, present[key])
        ]
        if changed:
            log.warning(
                "MLflow keeps the first value of a parameter: %s stay as they are in run %s.",
                ", ".join(changed),
                run_id,
            )
        new = [Param(key, value) for key, value in values.items() if key not in present]
        for first in range(0, len(new), _MOST_PARAMS):
            client.log_batch(run_id, params=new[first : first + _MOST_PARAMS])

    def _write_images(
        self,
        key: str,
        pixels: list[Any],
        step: int | None,
        captions: Sequence[str] | None,  # noqa: ARG002 - MLflow has no place for them
    ) -> None:
        """Send images, each under its own name: `key/0`, `key/1`..."""
        client, run_id = self._open_running()
        stored = self._names["image"].name_for(key)
        for index, array in enumerate(pixels):
            name = f"{stored}/{index}"
            position = step_or_zero(step)
            # synchronous: an error in a thread of MLflow's would never reach the guard
            client.log_image(run_id, array, key=name, step=position, synchronous=True)

    def _write_table(
        self, key: str, names: list[str], rows: list[list[Any]], step: int | None
    ) -> None:
        """Send a table as an artifact `key.json`, or `key-step-N.json`."""
        client, run_id = self._open_running()
        file = self._artifact(key, step, "json")
        # `log_table` appends: after a resume the table would hold its rows twice
        if file not in self._tables:
            table = {name: [row[index] for row in rows] for index, name in enumerate(names)}
            client.log_table(run_id, table, file)

    def log_text(self, key: str, text: str, step: int | None = None) -> None:
        """Send a text as an artifact `key.txt`, or `key-step-N.txt`."""
        client, run_id = self._open_running()
        # written again after a resume, which replaces the file by the same text
        client.log_text(run_id, text, self._artifact(key, step, "txt"))

    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        """Send new checkpoints, if `log_model="all"`."""
        self._upload(self._uploads.after_save(checkpoint_callback))

    def finalize(self, status: str) -> None:
        """Send the checkpoints that are left, if `log_model=True`, and end the run."""
        if not self._is_running:
            return
        if status == "success":
            self._upload(self._uploads.at_end())
        client, run_id = self._open_running()
        client.set_terminated(run_id, "FINISHED" if status == "success" else "FAILED")
        self._is_running = self._is_resumed = False
        # only the resumed run skips values: the next fit may begin at step 0 again
        self._written, self._tables = RecordedSteps(), set()

    def run_state(self) -> dict[str, Any]:
        """Return the address, the id and the progress of the run."""
        ids = {"run_id": self._run_id, "token": self._token}
        names = {kind: names.state() for kind, names in self._names.items()}
        place = {"uri": self._uri, "experiment": self._experiment_name}
        return {**place, **ids, "logged": self._logged, "names": names}

    def owns_run(self, state: dict[str, Any]) -> bool:
        """Return whether the run of a checkpoint is of this experiment, or the chosen one."""
        if state["uri"] != self._uri:  # a server's ids mean nothing to another one
            return False
        if self._is_chosen:
            return bool(state["run_id"] == self._run_id)
        return bool(state.get("experiment", self._experiment_name) == self._experiment_name)

    def resume_run(self, state: dict[str, Any]) -> None:
        """Continue the run of a checkpoint."""
        if self.owns_run(state):
            with self._lock:
                self._run_id, self._token = state["run_id"], state["token"]
                self._is_open, self._is_running, self._is_resumed = False, False, True
                self._logged = state["logged"]
                for kind, names in state["names"].items():
                    self._names[kind].restore(names)

    def _open(self) -> tuple[MlflowClient, str]:
        """Return the client and the id of the run, which is made if needed."""
        with self._lock:
            if self._client is None:
                from mlflow.tracking import MlflowClient

                if self._save_dir is not None:
                    Path(self._save_dir).mkdir(parents=True, exist_ok=True)
                self._client = MlflowClient(self._uri)
            if not self._is_open:
                if self._run_id is None and self._is_resumed:
                    self._run_id = self._find_by_token(self._client)
                # it forgets the id of a run that was deleted, so the next test comes after it
                if self._run_id is not None:
                    self._continue_run(self._client, self._run_id)
                if self._run_id is None:
                    self._run_id, self._is_running = self._begin(self._client), True
                self._is_open = True
            assert self._run_id is not None
            return self._client, self._run_id

    def _open_running(self) -> tuple[MlflowClient, str]:
        """Return the client and the id of the run, which is set running again if it had ended."""
        with self._lock:
            client, run_id = self._open()
            if not self._is_running:
                client.update_run(run_id, status="RUNNING")
                self._is_running = True
            return client, run_id

    def _begin(self, client: MlflowClient) -> str:
        from mlflow.tracking.context.registry import resolve_tags

        experiment = client.get_experiment_by_name(self._experiment_name)
        self._experiment_id = (
            client.create_experiment(self._experiment_name, artifact_location=self._artifacts)
            if experiment is None
            else experiment.experiment_id
        )
        # MLflow adds its own tags here: the user, the script and its git commit
        tags = {**resolve_tags(self._tags), _TOKEN_TAG: self._token}
        run = client.create_run(self._experiment_id, tags=tags, run_name=self._run_name)
        return str(run.info.run_id)

    def _find_by_token(self, client: MlflowClient) -> str | None:
        """Return the id of a run made after the checkpoint was saved, found by its tag, or None."""
        experiment = client.get_experiment_by_name(self._experiment_name)
        if experiment is None:
            return None
        wanted = f"tags.`{_TOKEN_TAG}` = '{self._token}'"
        runs = client.search_runs([experiment.experiment_id], wanted, max_results=1)
        return str(runs[0].info.run_id) if runs else None

    def _continue_run(self, client: MlflowClient, run_id: str) -> None:
        """Open an existing run and read which values it holds; forget a run that was deleted."""
        from mlflow.exceptions import MlflowException

        try:
            run = client.get_run(run_id)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST" or self._is_chosen:
                raise
            log.warning("run %s is not in %s any more: a new one is begun.", run_id, self._uri)
            self._run_id = None
            return
        self._experiment_id = run.info.experiment_id
        if self._is_resumed:
            self._written = RecordedSteps(
                (key, entry.step)
                for key in run.data.metrics
                for entry in client.get_metric_history(run_id, key)
            )
            self._tables = {
                item["path"] for item in json.loads(run.data.tags.get(_TABLES_TAG, "[]"))
            }
        self._is_running = run.info.status == "RUNNING"

    def _upload(self, files: list[tuple[str, list[str]]]) -> None:
        for path, aliases in files:
            client, run_id = self._open_running()
            folder = f"model/checkpoints/{Path(path).stem}"
            client.log_artifact(run_id, path, folder)
            client.log_dict(run_id, {"aliases": aliases}, f"{folder}/aliases.json")
            # last: an upload that failed is tried again
            self._uploads.note(path)

    def _artifact(self, key: str, step: int | None, suffix: str) -> str:
        """Return the name of the file of a table or a text."""
        name = self._names["artifact"].name_for(key)
        return f"{name}.{suffix}" if step is None else f"{name}-step-{step}.{suffix}"


MLFlowLogger = MLflowLogger
"""The name of the class in Lightning."""


class _StoredNames:
    """The names under which MLflow stores one kind of value: allowed, and each used once.

    A name that MLflow does not allow is stored under a similar one, with a warning.

    Args:
        kind: a noun for the values, for the warning.
        forbidden: matches a character that MLflow does not allow.
    """

    def __init__(self, kind: str, forbidden: re.Pattern[str] = _FORBIDDEN) -> None:
        self._kind, self._forbidden = kind, forbidden
        self._stored: dict[str, str] = {}

    def renamed(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of one call under their stored names."""
        # allowed names first: they stay, and others of the same call give way to them
        new = [name for name in values if name not in self._stored]
        for name in sorted(new, key=lambda name: self._allowed(name) != name):
            self.name_for(name)
        return {self._stored[name]: value for name, value in values.items()}

    def name_for(self, name: str) -> str:
        """Return the stored name of one value."""
        if name not in self._stored:
            stored = self._free(self._allowed(name))
            if stored != name:
                log.warning(
                    "MLflowLogger stores the %s %s as %s: %s. Rename it to choose another one.",
                    self._kind, _SHORT.repr(name), _SHORT.repr(stored), self._explain(name),
                )  # fmt: skip
            self._stored[name] = stored
        return self._stored[name]

    def state(self) -> dict[str, str]:
        """Return the stored names, for a checkpoint."""
        return dict(self._stored)

    def restore(self, state: Mapping[str, str]) -> None:
        """Set the stored names, so that a resumed run writes to the same ones."""
        self._stored = dict(state)

    def _allowed(self, name: str) -> str:
        """Return the name with underscores for all that MLflow does not allow in it."""
        parts = self._forbidden.sub("_", name).split("/")
        # MLflow takes a name for the path of a file: it must not be another way to write a path
        path = "/".join("_" if part in ("", ".", "..") else part for part in parts)
        # by its first characters alone MLflow judges that a path leads upwards
        path = re.sub(r"^\.\.", "__", path)
        # with an underscore at the cut, which may be right after a slash
        return path if len(path) <= _LONGEST_NAME else path[: _LONGEST_NAME - 1] + "_"

    def _explain(self, name: str) -> str:
        """Return why a name is not stored as it is."""
        forbidden = dict.fromkeys(self._forbidden.findall(name))
        allowed, reasons = self._allowed(name), []
        if forbidden:
            reasons.append(f"MLflow does not allow {', '.join(map(repr, forbidden))}")
        elif len(name) > _LONGEST_NAME:
            reasons.append(f"MLflow allows {_LONGEST_NAME} characters")
        elif allowed != name:
            reasons.append("MLflow takes '.', '..' and an empty part between slashes for a path")
        if allowed in self._stored.values():
            reasons.append(f"another {self._kind} is stored as {_SHORT.repr(allowed)}")
        return ", and ".join(reasons)

    def _free(self, name: str) -> str:
        """Return the name, with a number after it if another value is stored as that."""
        used = set(self._stored.values())
        ends = ("", *(f"_{number}" for number in range(2, len(used) + 3)))
        names = (name[: _LONGEST_NAME - len(end)] + end for end in ends)
        return next(candidate for candidate in names if candidate not in used)


def _is_stored(value: str, stored: str) -> bool:
    """Return whether MLflow has this value of a parameter; it cuts long ones, to 500 or 6000."""
    return value == stored or (len(stored) >= _SHORTEST_CUT and value.startswith(stored))
