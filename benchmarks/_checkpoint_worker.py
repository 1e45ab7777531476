"""Do one task of one contestant: `_checkpoint_worker.py TASK NAME GB REPEATS FOLDER [RESULT]`."""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

_WIDTH = 1024
_PER_LAYER = 3 * 4 * (_WIDTH * _WIDTH + _WIDTH)  # weights and Adam's two moments, in bytes
Task = Callable[[], object]
"""What is timed. It may return a function that is called afterwards, untimed."""


def make_model(gigabytes: float) -> torch.nn.Module:
    """Return a model whose weights and Adam state are about that large."""
    layers = max(1, round(gigabytes * 1e9 / _PER_LAYER))
    return torch.nn.Sequential(*(torch.nn.Linear(_WIDTH, _WIDTH) for _ in range(layers)))


def make_optimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
    """Return Adam after a step."""
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 1e-3)
        optimizer.step()  # one at a time: only one gradient is held
        parameter.grad = None
    return optimizer


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested dicts and lists."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)


class Bench:
    """The state, the file, and each contestant's way."""

    def __init__(self, gigabytes: float, folder: Path) -> None:
        self.model = make_model(gigabytes)
        self.optimizer = make_optimizer(self.model)
        self.file = folder / "state.pt"
        self.plain = folder / "plain.pt"
        self.size = sum(tensor.nbytes for tensor in tensors_in(self.state()))

    def state(self) -> dict[str, Any]:
        return {
            "state_dict": self.model.state_dict(),
            "optimizer_states": [self.optimizer.state_dict()],
        }

    def remove_files(self) -> None:
        """Give the disk and the page cache back, so that each save finds the same of both."""
        for path in self.file.parent.glob("*.pt"):
            path.unlink()

    # --- torch ---

    def torch_save(self) -> Task:
        def save() -> Task:
            with self.plain.open("wb") as file:
                torch.save(self.state(), file)
                file.flush()
                os.fsync(file.fileno())
            return self.remove_files

        return save

    def clone(self) -> Task:
        return lambda: [tensor.clone() for tensor in tensors_in(self.state())]

    def torch_load(self) -> Task:
        self.torch_save()()

        def load() -> None:
            state = torch.load(self.plain, weights_only=True)
            self.model.load_state_dict(state["state_dict"])
            self.optimizer.load_state_dict(state["optimizer_states"][0])

        return load

    # --- trainer_hooks ---

    def _fitted(self) -> Any:
        """Return a trainer of this project with the state as that of its last fit."""
        import trainer_hooks

        bench = self

        class Module(trainer_hooks.Module):
            def __init__(self) -> None:
                super().__init__()
                self.automatic_optimization = False  # nothing is to be learned
                self.model = bench.model

            def training_step(self, batch: Any, batch_idx: int) -> None:
                return None

            def configure_optimizers(self) -> torch.optim.Optimizer:
                return bench.optimizer

        trainer = trainer_hooks.Trainer(
            max_epochs=1,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=self.file.parent,
        )
        self.data = [torch.zeros(1)]
        trainer.fit(Module(), self.data)
        return trainer

    def ours_save(self) -> Task:
        trainer = self._fitted()

        def save() -> Task:
            trainer.save_checkpoint(self.file)
            return self.remove_files

        return save

    def ours_hold(self, *, is_first: bool) -> Task:
        trainer = self._fitted()

        def hold() -> Task:
            trainer.save_in_background(self.file)
            return wait

        def wait() -> None:
            trainer.finish_saves()
            if is_first:  # the memory of the copy is made anew
                trainer._core.background.release()  # noqa: SLF001

        hold()()
        return hold

    def ours_resume(self) -> Task:
        from trainer_hooks.trainer.restoring.starting_point import StartingPoint

        trainer = self._fitted()
        trainer.save_checkpoint(self.file)
        module = trainer.module
        spans: list[float] = []
        read, restoring = StartingPoint.read_and_resume_loggers, StartingPoint.restoring

        def timed_read(start: Any) -> None:  # where the file is read
            began = time.perf_counter()
            read(start)
            spans.append(time.perf_counter() - began)

        @contextmanager
        def timed_restoring(start: Any, context: Any, make_optimizers: Any) -> Iterator[None]:
            began = time.perf_counter()
            with restoring(start, context, make_optimizers):
                spans[-1] += time.perf_counter() - began
                yield  # for `on_fit_start`, which is no part of a resume
                began = time.perf_counter()
            spans[-1] += time.perf_counter() - began

        StartingPoint.read_and_resume_loggers = timed_read  # type: ignore[method-assign]
        StartingPoint.restoring = timed_restoring  # type: ignore[assignment, method-assign]

        def resume() -> float:
            trainer.fit(module, self.data, ckpt_path=self.file)
            return spans[-1]

        return resume

    # --- the others ---

    def _lightning(self, plugins: Any = None) -> Any:
        import lightning.pytorch as lightning

        bench = self

        class Module(lightning.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.model = bench.model

            def training_step(self, batch: Any, batch_idx: int) -> None:
                return None

            def configure_optimizers(self) -> torch.optim.Optimizer:
                return bench.optimizer

        trainer = lightning.Trainer(
            max_epochs=1,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=self.file.parent,
            plugins=plugins,
        )
        trainer.fit(Module(), torch.utils.data.DataLoader([torch.zeros(1)]))
        return trainer

    def lightning_save(self) -> Task:
        trainer = self._lightning()

        def save() -> Task:
            trainer.save_checkpoint(self.file)
            return self.remove_files

        return save

    def lightning_hold(self) -> Task:
        from lightning.pytorch.plugins.io import AsyncCheckpointIO

        plugin = AsyncCheckpointIO()
        trainer = self._lightning([plugin])

        def hold() -> Task:
            trainer.save_checkpoint(self.file)
            return plugin.teardown  # waits for the file; the plugin goes on with a new thread

        return hold

    def lightning_resume(self) -> Task:
        trainer = self._lightning()
        trainer.save_checkpoint(self.file)
        connector = trainer._checkpoint_connector  # noqa: SLF001

        def resume() -> None:
            connector._restore_modules_and_callbacks(self.file)  # noqa: SLF001
            connector.restore_training_state()
            connector.resume_end()

        return resume

    def ignite_save(self) -> Task:
        from ignite.handlers import Checkpoint, DiskSaver

        parts = {"model": self.model, "optimizer": self.optimizer}
        saver = DiskSaver(str(self.file.parent), require_empty=False)
        handler = Checkpoint(parts, saver, n_saved=None)  # what it saved is removed below
        from ignite.engine import Engine

        engine = Engine(lambda engine, batch: None)
        engine.run([0])

        def save() -> Task:
            engine.state.iteration += 1
            handler(engine)
            return self.remove_files

        return save

    def ignite_resume(self) -> Task:
        from ignite.handlers import Checkpoint

        self.ignite_save()()
        file = next(self.file.parent.glob("*checkpoint*.pt"))
        parts = {"model": self.model, "optimizer": self.optimizer}

        def resume() -> None:
            Checkpoint.load_objects(parts, torch.load(file, weights_only=True))

        return resume


WAYS: dict[tuple[str, str], Callable[[Bench], Task]] = {
    ("save", "torch.save and fsync"): Bench.torch_save,
    ("save", "trainer_hooks"): Bench.ours_save,
    ("save", "lightning"): Bench.lightning_save,
    ("save", "ignite"): Bench.ignite_save,
    ("hold", "clone of the state"): Bench.clone,
    ("hold", "trainer_hooks, later saves"): lambda bench: bench.ours_hold(is_first=False),
    ("hold", "trainer_hooks, first save"): lambda bench: bench.ours_hold(is_first=True),
    ("hold", "lightning AsyncCheckpointIO"): Bench.lightning_hold,
    ("resume", "torch.load and load_state_dict"): Bench.torch_load,
    ("resume", "trainer_hooks"): Bench.ours_resume,
    ("resume", "lightning"): Bench.lightning_resume,
    ("resume", "ignite"): Bench.ignite_resume,
}


def memory() -> tuple[int, int]:
    """Return the bytes that this process holds now, and the most that it held."""
    lines = Path("/proc/self/status").read_text().splitlines()
    found = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith("Vm")}
    return int(found["VmRSS"]) * 1024, int(found["VmHWM"]) * 1024


def main(task: str, name: str, gigabytes: float, repeats: int, folder: Path) -> dict[str, Any]:
    """Do the task in turns with its baseline; return the seconds of each and the peak by size."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    bench = Bench(gigabytes, folder)
    do = WAYS[task, name](bench)
    baseline = next(way for (of, _), way in WAYS.items() if of == task)
    do_plain = do if WAYS[task, name] is baseline else baseline(bench)
    seconds, plain_seconds, peak = [], [], 0
    for _ in range(repeats):
        plain_seconds.append(timed(do_plain))
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")  # the most that was held starts anew
        held, _ = memory()
        seconds.append(timed(do))
        peak = max(peak, memory()[1] - held)
    return {"seconds": seconds, "baseline_seconds": plain_seconds, "peak": peak / bench.size}


def timed(do: Task) -> float:
    """Return the seconds that a task takes, or that it says it took; end it, untimed."""
    os.sync()  # what others left to be written is not ours to wait for
    began = time.perf_counter()
    result = do()
    span = time.perf_counter() - began
    if callable(result):
        result()
    return result if isinstance(result, float) else span


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="bench-", dir=sys.argv[5] or None) as place:
        found = main(*sys.argv[1:3], float(sys.argv[3]), int(sys.argv[4]), Path(place))  # type: ignore[arg-type]
    if len(sys.argv) > 6:
        Path(sys.argv[6]).write_text(json.dumps(found))
    else:
        print(json.dumps(found))
