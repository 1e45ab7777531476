"""The folder of a run: taken before anybody asks, tried before the first batch, never littered."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from trainer_hooks import Callback
from trainer_hooks.callbacks import (
    LambdaCallback,
    ModelCheckpoint,
    OnExceptionCheckpoint,
    RunManifest,
    WSDCheckpointCallback,
)
from trainer_hooks.cli.report.logged_run import read_run
from trainer_hooks.compat.accelerated.callbacks import (
    ModelEmaCallback,
    SaveBestModelCallback,
    SaveTrainingStateCallback,
)
from trainer_hooks.compat.composer.callbacks import CheckpointSaver
from trainer_hooks.errors import OptionError
from trainer_hooks.loggers import CSVLogger, Logger, MLflowLogger, TensorBoardLogger


class Trained(Callback):
    """Count training batches."""

    def __init__(self) -> None:
        self.count = 0

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        self.count += 1


@pytest.fixture
def root(tmp_path) -> Path:
    return tmp_path / "trainer_logs"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_folder_is_there_before_anybody_asks(quiet_trainer, root, Tiny, batches) -> None:
    """Configuring callbacks, preparing data and setup find a folder that nobody else is given."""
    found = []

    class Asks(Tiny):
        def configure_callbacks(self):
            found.append((self.trainer.log_dir, Path(self.trainer.log_dir).is_dir()))
            return []

        def prepare_data(self):
            found.append((self.trainer.log_dir, Path(self.trainer.log_dir).is_dir()))

        def setup(self, stage):
            found.append((self.trainer.log_dir, Path(self.trainer.log_dir).is_dir()))

    trainer = quiet_trainer(logger=True)
    trainer.fit(Asks(), batches())
    assert found == [(str(root / "version_0"), True)] * 3
    assert trainer.log_dir == str(root / "version_0")


def test_a_run_that_starts_in_the_middle_of_another(quiet_trainer, root, Tiny, batches) -> None:
    """A run that begins before the first has written anything has its own folder, and warns not."""
    inner = quiet_trainer(logger=True, enable_checkpointing=True)

    class Starts(Callback):
        def setup(self, trainer, module, stage):
            inner.fit(Tiny(), batches())

    outer = quiet_trainer(logger=True, enable_checkpointing=True, callbacks=[Starts()])
    outer.fit(Tiny(), batches())
    assert [Path(one.log_dir).name for one in (outer, inner)] == ["version_0", "version_1"]
    for trainer in (outer, inner):
        best = trainer.checkpoint_callback.best_model_path
        assert Path(best).parent == Path(trainer.log_dir, "checkpoints")


@pytest.mark.slow
def test_one_trainer_stays_in_one_folder(quiet_trainer, root, Tiny, batches) -> None:
    """A second fit, and a validation after it, go on in the folder of the first."""

    class Validates(Tiny):
        def validation_step(self, batch, batch_idx):
            self.log("val_loss", self.layer(batch).mean())

    trainer, module = quiet_trainer(logger=True), Validates()
    trainer.fit(module, batches())
    trainer.max_epochs = 2
    trainer.fit(module, batches())
    trainer.validate(module, batches(), verbose=False)
    assert names(root) == ["version_0"]
    quiet_trainer(logger=True).fit(module, batches())
    assert names(root) == ["version_0", "version_1"]


def test_loggers_of_two_classes_share_the_folder(quiet_trainer, tmp_path, Tiny, batches) -> None:
    """Where the number is taken since one of them was asked, both move on together."""
    loggers = [CSVLogger(tmp_path), TensorBoardLogger(tmp_path), CSVLogger(tmp_path, name="other")]
    trainer = quiet_trainer(logger=loggers)
    quiet_trainer(logger=True).fit(Tiny(), batches())
    trainer.fit(Tiny(), batches())
    assert [Path(one.log_dir).name for one in loggers] == ["version_1", "version_1", "version_0"]


def test_what_was_put_there_before_stays_the_runs(quiet_trainer, tmp_path, Tiny, batches) -> None:
    """A user who copies a file to `logger.log_dir` before the fit finds it beside the metrics."""
    logger = CSVLogger(tmp_path)
    Path(logger.log_dir).mkdir(parents=True)
    Path(logger.log_dir, "config.yaml").touch()
    quiet_trainer(logger=logger).fit(Tiny(), batches())
    assert names(tmp_path / "trainer_logs") == ["version_0"]
    assert "config.yaml" in names(tmp_path / "trainer_logs" / "version_0")


@pytest.mark.parametrize("fails", [True, False], ids=["fails", "ends"])
def test_a_run_that_wrote_nothing_leaves_nothing(
    fails, quiet_trainer, tmp_path, Tiny, batches
) -> None:
    """The folder of a fit that fails before its first batch, or has nothing to write, goes."""

    class Fails(Tiny):
        def setup(self, stage):
            if fails:
                raise RuntimeError("no")

    loggers = [CSVLogger(tmp_path / "a" / "b"), TensorBoardLogger(tmp_path / "a" / "b")]
    trainer = quiet_trainer(logger=loggers, enable_run_manifest=False)
    module = Fails()
    if fails:
        with pytest.raises(RuntimeError, match="no"):
            trainer.fit(module, batches())
    else:
        trainer.fit(module, batches())
    assert names(tmp_path) == []
    fails = False
    loggers[0].log_metrics({"loss": 1.0}, 0)
    loggers[0].save()
    assert names(tmp_path / "a" / "b" / "trainer_logs") == ["version_0"]


def test_nothing_that_writes_makes_no_folder(quiet_trainer, tmp_path, Tiny, batches) -> None:
    """Without logger and checkpoints, and in a dry run with both, nothing is made."""
    quiet_trainer().fit(Tiny(), batches())
    quiet_trainer(
        logger=True, enable_checkpointing=True, callbacks=[ModelCheckpoint(tmp_path / "c")],
        fast_dev_run=True,
    ).fit(Tiny(), batches())  # fmt: skip
    assert names(tmp_path) == []


def test_what_stands_elsewhere_is_told(quiet_trainer, tmp_path, Tiny, batches, capsys) -> None:
    """One line at the start says where checkpoints and logs go that are not in the run's folder."""
    callbacks = [ModelCheckpoint(tmp_path / "mine"), RunManifest(tmp_path / "journal")]
    loggers = [CSVLogger(tmp_path), CSVLogger(tmp_path / "more")]
    quiet_trainer(logger=loggers, callbacks=callbacks, enable_checkpointing=True).fit(
        Tiny(), batches()
    )
    assert capsys.readouterr().out == (
        f"run folder: {str(tmp_path / 'trainer_logs/version_0')!r}; elsewhere: "
        f"logs of CSVLogger: {str(tmp_path / 'more/trainer_logs/version_0')!r}, "
        f"checkpoints of ModelCheckpoint: {str(tmp_path / 'mine')!r}, "
        f"journal of RunManifest: {str(tmp_path / 'journal')!r}\n"
    )
    quiet_trainer(logger=True, enable_checkpointing=True).fit(Tiny(), batches())
    assert capsys.readouterr().out == ""


class ServiceLogger(Logger):
    """The logger of a service, with a folder for files of the run as Weights & Biases has one."""

    def __init__(self, folder) -> None:
        self.folder = folder

    save_dir = property(lambda self: str(self.folder))
    log_dir = property(lambda self: str(self.folder / "id"))

    def log_metrics(self, metrics, step=None) -> None:
        """Log nothing."""


@pytest.mark.slow
def test_one_run_folder_and_a_report_of_all_that_was_logged(
    quiet_trainer, tmp_path, Tiny, batches, capsys, caplog
) -> None:
    """The first line, the last line and the journal name the first logger's folder."""
    caplog.set_level("INFO", "trainer_hooks")
    loggers = [ServiceLogger(tmp_path / "service"), CSVLogger(tmp_path)]
    logs = LambdaCallback(on_train_batch_end=lambda trainer, module, *_: module.log("loss", 1.0))
    quiet_trainer(
        logs,
        logger=loggers,
        enable_checkpointing=True,
        enable_run_manifest=True,
        log_every_n_steps=1,
    ).fit(Tiny(), batches())
    folder = tmp_path / "service" / "id"
    assert capsys.readouterr().out == (
        f"run folder: {str(folder)!r}; elsewhere: "
        f"logs of ServiceLogger: {str(tmp_path / 'service')!r}, "
        f"logs of CSVLogger: {str(tmp_path / 'trainer_logs/version_0')!r}\n"
    )
    [ended] = [line for line in caplog.messages if "for a report" in line]
    assert ended.endswith(f"trainer-hooks report {folder}")
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    run = read_run(moved / "service" / "id", "run", 100)
    assert len(run.metrics.curves["loss"].points) == 4
    assert run.starts
    assert not run.notes


WRITERS = {
    "ModelCheckpoint": lambda path: ModelCheckpoint(path),
    "CheckpointSaver": lambda path: CheckpointSaver(path),
    "OnExceptionCheckpoint": lambda path: OnExceptionCheckpoint(path),
    "SaveBestModelCallback": lambda path: SaveBestModelCallback(path / "best.pt", "loss"),
    "SaveTrainingStateCallback": lambda path: SaveTrainingStateCallback(path),
    "ModelEmaCallback": lambda path: ModelEmaCallback(
        evaluate_during_training=False, save_path=path / "ema.pt"
    ),
    "WSDCheckpointCallback": lambda path: WSDCheckpointCallback(path),
    "RunManifest": lambda path: RunManifest(path),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_folder_below_a_file_is_found_before_the_first_batch(
    name, quiet_trainer, tmp_path, Tiny, batches
) -> None:
    """Whoever has a folder is told at once that nothing can be written there, and by what rule."""
    (tmp_path / "file").touch()
    trained = Trained()
    folder = tmp_path / "file" / "runs"
    trainer = quiet_trainer(callbacks=[WRITERS[name](folder), trained], enable_checkpointing=None)
    with pytest.raises(
        OptionError, match=r"nothing can be written there \(Not a directory"
    ) as told:
        trainer.fit(Tiny(), batches())
    assert name in str(told.value)
    assert repr(str(folder)) in str(told.value)
    assert trained.count == 0
    assert names(tmp_path) == ["file"]


@pytest.fixture
def read_only(monkeypatch):
    """Make a folder one in which nothing can be made, which root is not refused otherwise."""

    def protect(folder: Path) -> None:
        opened, made = os.open, os.mkdir

        def refuse(path: object) -> None:
            if isinstance(path, str | os.PathLike) and Path(path).is_relative_to(folder):
                raise PermissionError(13, "Permission denied", os.fspath(path))

        def open_(path, flags, *rest, **more):
            if flags & (os.O_CREAT | os.O_TMPFILE):
                refuse(path)
            return opened(path, flags, *rest, **more)

        def mkdir(path, *rest, **more):
            refuse(path)
            return made(path, *rest, **more)

        monkeypatch.setattr(os, "open", open_)
        monkeypatch.setattr(os, "mkdir", mkdir)

    return protect


def test_without_files_that_have_no_name_one_is_made_and_removed(
    quiet_trainer, tmp_path, Tiny, batches, monkeypatch
) -> None:
    """Where the system has no files without a name, a hidden one is tried with."""
    opened, made = os.open, []

    def open_(path, flags, *rest, **more):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        if ".trial." in str(path):
            made.append(path)
        return opened(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", open_)
    saver = ModelCheckpoint(tmp_path / "c", save_top_k=0)
    quiet_trainer(callbacks=[saver], enable_checkpointing=None).fit(Tiny(), batches())
    assert len(made) == 1
    assert names(tmp_path) == []


def test_a_read_only_folder_is_found_before_the_first_batch(
    quiet_trainer, tmp_path, Tiny, batches, read_only
) -> None:
    """A folder that is there and takes no file is no folder for checkpoints."""
    (tmp_path / "c").mkdir()
    read_only(tmp_path / "c")
    trained = Trained()
    callbacks = [ModelCheckpoint(tmp_path / "c" / "deep"), trained]
    trainer = quiet_trainer(callbacks=callbacks, enable_checkpointing=None)
    with pytest.raises(OptionError, match="Permission denied"):
        trainer.fit(Tiny(), batches())
    assert trained.count == 0
    assert names(tmp_path / "c") == []


@pytest.mark.posix
@pytest.mark.linux  # which opens a file without a name for it
def test_a_full_disk_is_found_before_the_first_batch(
    quiet_trainer, tmp_path, Tiny, batches, monkeypatch
) -> None:
    """The error says that it is full, and not that the folder has the wrong rights."""
    open_ = os.open

    def refuse(path, flags, *args, **options):
        if flags & os.O_WRONLY and Path(path) == tmp_path:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return open_(path, flags, *args, **options)

    monkeypatch.setattr(os, "open", refuse)
    trained = Trained()
    trainer = quiet_trainer(
        callbacks=[ModelCheckpoint(tmp_path), trained], enable_checkpointing=None
    )
    with pytest.raises(
        OptionError, match=r"No space left on device: .*\. Free some space, or give"
    ):
        trainer.fit(Tiny(), batches(), ckpt_path="auto")
    assert trained.count == 0


@pytest.mark.parametrize("kind", [CSVLogger, TensorBoardLogger])
def test_a_read_only_root_is_found_by_the_loggers(
    kind, quiet_trainer, tmp_path, Tiny, batches, read_only
) -> None:
    """A logger that cannot make the run's folder is an error before anything is trained."""
    read_only(tmp_path)
    trained = Trained()
    trainer = quiet_trainer(logger=kind(tmp_path), callbacks=[trained])
    with pytest.raises(OptionError, match=r"cannot be made \(Permission denied\)\. Give a folder"):
        trainer.fit(Tiny(), batches())
    assert trained.count == 0
    assert names(tmp_path) == []


def test_another_loggers_folder_is_tried_too(quiet_trainer, tmp_path, Tiny, batches) -> None:
    """A local database that cannot be made is told before the first batch as well."""
    (tmp_path / "file").touch()
    trainer = quiet_trainer(logger=MLflowLogger("x", save_dir=str(tmp_path / "file" / "db")))
    with pytest.raises(OptionError, match="logs of MLflowLogger"):
        trainer.fit(Tiny(), batches())


def test_trying_leaves_nothing(quiet_trainer, tmp_path, Tiny, batches) -> None:
    """A folder that is never saved to is not made, and one that is there stays as it was."""
    (tmp_path / "there").mkdir()
    savers = [ModelCheckpoint(tmp_path / name / "c", save_top_k=0) for name in ("new", "there")]
    for saver in savers:
        trainer = quiet_trainer(callbacks=[saver], enable_checkpointing=None)
        trainer.fit(Tiny(), batches())
    assert names(tmp_path) == ["there"]
    assert names(tmp_path / "there") == []
