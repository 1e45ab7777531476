"""Checkpoints in other stores: in memory, and on an object store's server on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import uuid
from types import SimpleNamespace

import pytest
import torch
from new_processes import forget_trainings

from trainer_hooks import Trainer
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.checkpoint import remote
from trainer_hooks.checkpoint.file import (
    read_checkpoint,
    summarize,
    verify_checkpoint,
    write_checkpoint,
)
from trainer_hooks.errors import (
    CheckpointError,
    CheckpointNotFoundError,
    OptionError,
    TrainerHooksWarning,
)
from trainer_hooks.trainer.run.forking import ForkedRuns

BATCHES = [torch.full((2, 2), float(number)) for number in range(1, 5)]
GOOD = {"state_dict": {"weight": torch.arange(600.0)}, "epoch": 3}


@pytest.fixture(scope="module")
def server():
    """Start an S3 server on the loopback interface; nothing leaves this machine."""
    from moto.server import ThreadedMotoServer

    started = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    started.start()
    port = started.get_host_and_port()[1]
    settings = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        yield
    started.stop()


@pytest.fixture(params=["memory", "s3"])
def store(request):
    """The address of an empty folder in a store, and the store."""
    import fsspec

    if request.param == "s3":
        request.getfixturevalue("server")
    found = fsspec.filesystem(request.param)
    bucket = f"bucket-{uuid.uuid4().hex[:8]}"
    if request.param == "s3":
        found.mkdir(bucket)
    found.address = f"{request.param}://{bucket}/run"
    return found


def names(store) -> list[str]:
    """Return the names of all files in a store's folder."""
    store.invalidate_cache()
    path = store.address.partition("://")[2]
    return sorted(name.rpartition("/")[2] for name in store.find(path))


def trainer_of(*callbacks, epochs=1, root=None, **options) -> Trainer:
    quiet = {
        "accelerator": "cpu",
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    return Trainer(
        callbacks=callbacks, max_epochs=epochs, default_root_dir=root, **{**quiet, **options}
    )


# --- files ---


@pytest.mark.slow
def test_what_is_written_comes_back(store):
    """A checkpoint is read back equal from the address that writing returned."""
    written = write_checkpoint(GOOD, f"{store.address}/a.ckpt", module="Net")
    assert written == f"{store.address}/a.ckpt"
    back = read_checkpoint(written)
    assert torch.equal(back["state_dict"]["weight"], GOOD["state_dict"]["weight"])
    assert back["epoch"] == 3
    assert summarize(written).module == "Net"
    verify_checkpoint(written)
    assert names(store) == ["a.ckpt"]


def test_what_did_not_arrive_whole_does_not_replace_the_old_file(store, monkeypatch):
    """An upload that gives back something else is an error; the old file is all that stays."""
    write_checkpoint(GOOD, f"{store.address}/a.ckpt")
    put = store.put_file

    def bent(local, path, **options):
        with open(local, "r+b") as file:  # noqa: PTH123 - as the store is given it
            file.seek(100)
            file.write(b"\xff")
        put(local, path, **options)
        with open(local, "r+b") as file:  # noqa: PTH123
            file.seek(100)
            file.write(b"\x00")

    with monkeypatch.context() as patch:
        patch.setattr(store, "put_file", bent)
        with pytest.raises(CheckpointError, match="what was read back differs") as caught:
            write_checkpoint({"state_dict": {}, "epoch": 4}, f"{store.address}/a.ckpt")
    assert f"{store.address}/a.ckpt" in str(caught.value)
    assert read_checkpoint(f"{store.address}/a.ckpt")["epoch"] == 3
    assert names(store) == ["a.ckpt"]


def test_a_store_that_fails_is_named(store, monkeypatch):
    """Whatever a store raises becomes one error with the address; the old file stays."""
    write_checkpoint(GOOD, f"{store.address}/a.ckpt")

    def fail(*args, **kwargs):
        raise ConnectionError("the line is dead")

    with monkeypatch.context() as patch:
        patch.setattr(store, "put_file", fail)
        with pytest.raises(CheckpointError, match=r"could not be written.*the line is dead"):
            write_checkpoint(GOOD, f"{store.address}/a.ckpt")
    assert read_checkpoint(f"{store.address}/a.ckpt")["epoch"] == 3


def test_damage_is_found(store):
    """An object with a wrong bit is refused."""
    write_checkpoint(GOOD, f"{store.address}/a.ckpt")
    path = store.address.partition("://")[2] + "/a.ckpt"
    content = bytearray(store.cat_file(path))
    content[len(content) // 2] ^= 1
    store.pipe_file(path, bytes(content))
    with pytest.raises(CheckpointError, match="is damaged") as caught:
        read_checkpoint(f"{store.address}/a.ckpt")
    assert store.address in str(caught.value)


def test_a_missing_file(store):
    """A file that is not there is said."""
    with pytest.raises(CheckpointNotFoundError, match="is not there"):
        read_checkpoint(f"{store.address}/a.ckpt")
    remote.remove(f"{store.address}/a.ckpt")
    assert not remote.exists(f"{store.address}/a.ckpt")


def test_a_missing_bucket_is_an_error_and_is_not_made(server):
    """A mistyped bucket is not made on the way."""
    import fsspec

    with pytest.raises(CheckpointError, match="bucket does not exist"):
        write_checkpoint(GOOD, "s3://no-such-bucket/a.ckpt")
    assert not fsspec.filesystem("s3").exists("no-such-bucket")


def test_a_store_with_folders(tmp_path):
    """Where a store has folders they are made, and the file is moved into its place."""
    address = f"local://{tmp_path}/a/b/c.ckpt"
    assert write_checkpoint(GOOD, address) == address
    assert read_checkpoint(address)["epoch"] == 3
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["c.ckpt"]


def test_an_address_of_this_machine_is_a_path(tmp_path):
    """`file://` is the path that it names."""
    written = write_checkpoint(GOOD, f"file://{tmp_path}/a.ckpt")
    assert written == str(tmp_path / "a.ckpt")
    assert read_checkpoint(f"file://{tmp_path}/a.ckpt")["epoch"] == 3


# --- a training ---


@pytest.mark.slow
def test_a_training_saves_rotates_and_goes_on(store, Tiny):
    """ModelCheckpoint keeps the best there; "last", "best", "auto" and an address are found."""

    class LogsScore(Tiny):
        def training_step(self, batch, batch_idx):
            self.log("score", float(abs(batch_idx - 1)))
            return super().training_step(batch, batch_idx)

    def saver():
        return ModelCheckpoint(
            store.address, "{step}", "score", save_top_k=2, save_last=True, every_n_train_steps=1
        )

    trainer = trainer_of(saver())
    trainer.fit(LogsScore(), BATCHES, ckpt_path="auto")
    assert (trainer.ckpt_path, trainer.global_step) == (None, 4)
    assert names(store) == ["last.ckpt", "step=1.ckpt", "step=2.ckpt"]
    assert trainer.checkpoint_callback.best_model_path == f"{store.address}/step=2.ckpt"
    for asked, found in (
        ("last", "last"),
        ("auto", "last"),
        ("best", "step=2"),
        (f"{store.address}/step=1.ckpt", "step=1"),
    ):
        forget_trainings()
        trainer = trainer_of(saver(), max_steps=5, epochs=2)
        trainer.fit(LogsScore(), BATCHES, ckpt_path=asked)
        assert trainer.ckpt_path == f"{store.address}/{found}.ckpt"
        assert trainer.global_step == 5
    trainer.save_checkpoint(f"{store.address}/by/hand.ckpt")
    assert read_checkpoint(f"{store.address}/by/hand.ckpt")["global_step"] == 5
    loaded = LogsScore.load_from_checkpoint(f"{store.address}/by/hand.ckpt")
    assert torch.equal(loaded.layer.weight, trainer.model.layer.weight)


@pytest.mark.slow
def test_a_damaged_object_is_passed_over(store, Tiny):
    """The newest whole object is taken, and the damaged one named."""
    saver = {"save_top_k": -1, "every_n_train_steps": 2, "filename": "{step}"}
    trainer_of(ModelCheckpoint(store.address, **saver)).fit(Tiny(), BATCHES)
    path = store.address.partition("://")[2] + "/step=4.ckpt"
    content = bytearray(store.cat_file(path))
    content[300] ^= 1
    content[len(content) // 2] ^= 1
    store.pipe_file(path, bytes(content))
    forget_trainings()
    trainer = trainer_of(ModelCheckpoint(store.address, **saver))
    with pytest.warns(TrainerHooksWarning, match=r"passed over .*step=4.ckpt"):
        trainer.fit(Tiny(), BATCHES, ckpt_path="last")
    assert trainer.ckpt_path.endswith("step=2.ckpt")


@pytest.mark.slow
def test_a_last_that_would_be_a_link_is_a_copy(store, Tiny):
    """Where there are no links, save_last="link" copies inside the store."""
    saver = ModelCheckpoint(store.address, "{step}", save_last="link", every_n_train_steps=1)
    trainer_of(saver).fit(Tiny(), BATCHES)
    assert names(store) == ["last.ckpt", "step=4.ckpt"]
    assert read_checkpoint(f"{store.address}/last.ckpt")["global_step"] == 4


@pytest.mark.slow
def test_a_root_in_a_store(store, Tiny):
    """default_root_dir may be an address: checkpoints go there."""
    trainer_of(root=store.address).fit(Tiny(), BATCHES)
    assert names(store) == ["epoch=0-step=4.ckpt"]
    forget_trainings()
    again = trainer_of(root=store.address, epochs=2)
    again.fit(Tiny(), BATCHES, ckpt_path="auto")
    assert again.ckpt_path == f"{store.address}/checkpoints/epoch=0-step=4.ckpt"
    assert names(store) == ["epoch=1-step=8.ckpt"]


# --- what is refused, and what is not paid for ---


def test_a_store_that_nobody_knows():
    """An address that cannot work here is an error when it is given, not at the first save."""
    with pytest.raises(OptionError, match="no store called nowhere://"):
        ModelCheckpoint("nowhere://bucket/run")
    with pytest.raises(OptionError, match=r"default_root_dir='nowhere://x'.*no store called"):
        trainer_of(root="nowhere://x")


def test_a_store_whose_package_is_missing(monkeypatch):
    """Where the store's package is not installed, the extra that has it is named."""
    import fsspec

    def missing(protocol):
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec, "get_filesystem_class", missing)
    with pytest.raises(OptionError, match=r"Install s3fs.*trainer-hooks\[remote\]"):
        ModelCheckpoint("s3://bucket/run")


def test_the_default_logger_needs_a_folder():
    """A root in a store goes with a logger of the user's own, or none."""
    with pytest.raises(OptionError, match=r"default logger writes to a local folder.*logger="):
        trainer_of(root="memory://run", logger=True)


@pytest.mark.exhaustive
def test_local_paths_pay_nothing(tmp_path):
    """A training that saves and resumes on this machine never imports fsspec."""
    code = """
        import sys
        import torch
        before = "fsspec" in sys.modules
        from trainer_hooks import Module, Trainer
        from trainer_hooks.callbacks import ModelCheckpoint

        class Net(Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(2, 1)
            def training_step(self, batch, batch_idx):
                return self.layer(batch).mean()
            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.1)

        for epochs in (1, 2):
            saver = ModelCheckpoint(sys.argv[1], save_last="link", every_n_train_steps=1)
            trainer = Trainer(
                max_epochs=epochs, accelerator="cpu", callbacks=[saver], logger=False,
                plugins=False, enable_progress_bar=False, enable_model_summary=False,
            )
            trainer.fit(Net(), [torch.ones(1, 2)] * 3, ckpt_path="auto")
        assert trainer.global_step == 6
        names = [name for name in sys.modules if name.startswith("trainer_hooks.checkpoint.remote")]
        print(before, "fsspec" in sys.modules, names)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.splitlines()[-1].split() == ["False", "False", "[]"], done.stderr


def test_the_kept_checkpoint_of_forked_ranks_is_copied(store, tmp_path):
    """After a fit in forked processes, a save to an address copies what they have left."""
    (tmp_path / "fit.ckpt").write_bytes(b"kept")
    core = SimpleNamespace(custom_io=None)
    address = ForkedRuns(core, None, tmp_path).copy_kept(f"{store.address}/copy.ckpt")
    assert store.cat_file(address) == b"kept"
