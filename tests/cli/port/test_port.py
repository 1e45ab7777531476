"""`trainer-hooks port` changes import lines, and tells what has no counterpart."""

from __future__ import annotations

import os
import sys

import pytest
import warm_python

from trainer_hooks.cli.main import main
from trainer_hooks.compat.not_offered import NotOfferedError

pytestmark = pytest.mark.filterwarnings("ignore")

PROGRAM = '''\
#!/usr/bin/env python
"""A program."""  # with   odd spaces
import  torch
import lightning.pytorch as pl, os
from lightning.pytorch.callbacks import (
    EarlyStopping,  # stops
    ModelCheckpoint as Saver,
)
from pytorch_lightning.utilities.types import STEP_OUTPUT

class Line(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, batch_idx) -> STEP_OUTPUT:
        return self.layer(batch).square().mean()
    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.layer(batch).square().mean())
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

data = [torch.ones(2, 4)] * 3
callbacks = [EarlyStopping("val_loss"), Saver(monitor="val_loss")]
trainer = pl.Trainer(max_epochs=1, accelerator="cpu", callbacks=callbacks)
trainer.fit(Line(), data, data)
print("steps", trainer.global_step)
'''


def ported(tmp_path, text, *options):
    path = tmp_path / "program.py"
    path.write_bytes(text.encode())
    code = main(["port", *options, str(path)])
    return code, path.read_bytes().decode()


@pytest.mark.slow
def test_a_program_runs_by_its_new_import_lines(tmp_path, capsys):
    """Only these lines change, comments and spaces stay, and the program runs."""
    code, text = ported(tmp_path, PROGRAM)
    assert code == 0, capsys.readouterr().out
    expected = (
        PROGRAM.replace("lightning.pytorch as pl", "trainer_hooks.compat.lightning as pl")
        .replace("lightning.pytorch.callbacks", "trainer_hooks.compat.lightning.callbacks")
        .replace("from pytorch_lightning.ut", "from trainer_hooks.compat.lightning.ut")
    )  # fmt: skip
    assert text == expected
    assert "import lines 4, 5, 9 changed" in capsys.readouterr().out
    done = warm_python.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "steps 3" in done.stdout, done.stderr
    assert ported(tmp_path, text) == (0, text)  # there is nothing left to do


def test_check_changes_nothing(tmp_path, capsys):
    """It reports the same, and no file is touched."""
    code, text = ported(tmp_path, PROGRAM, "--check")
    assert (code, text) == (0, PROGRAM)
    told = capsys.readouterr().out
    assert "program.py: import lines 4, 5, 9 would change" in told
    assert "1 file to be ported; 0 places without a counterpart" in told


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("import pytorch_lightning", "import trainer_hooks.compat.lightning as pytorch_lightning"),
        ("import lightning as L", "import trainer_hooks.compat.lightning as L"),
        ("from lightning import pytorch as pl", "from trainer_hooks.compat import lightning as pl"),
        (
            "from lightning import pytorch",
            "from trainer_hooks.compat import lightning as pytorch",
        ),
        (
            "from lightning import pytorch as pl, seed_everything",
            "from trainer_hooks.compat.lightning import pytorch as pl, seed_everything",
        ),
        (
            "from lightning import LightningModule, seed_everything",
            "from trainer_hooks.compat.lightning import LightningModule, seed_everything",
        ),
        ("from pytorch_lightning import *", "from trainer_hooks.compat.lightning import *"),
        (
            "import pytorch_lightning.callbacks as cb",
            "import trainer_hooks.compat.lightning.callbacks as cb",
        ),
        (
            "from pytorch_accelerated import Trainer, TrainerCallback",
            "from trainer_hooks.compat.accelerated import Trainer, TrainerCallback",
        ),
        ("from composer import Callback", "from trainer_hooks.compat.composer import Callback"),
        (
            "import lightning.pytorch.utilities.types",
            "import trainer_hooks.compat.lightning as lightning",
        ),
        (
            "import pytorch_lightning.loggers.wandb, os",
            "import trainer_hooks.compat.lightning as pytorch_lightning, os",
        ),
        ("import composer.models", "import trainer_hooks.compat.composer as composer"),
        (
            "from lightning_fabric.utilities.seed import seed_everything",
            "from trainer_hooks.compat.lightning.fabric.utilities.seed import seed_everything",
        ),
        ("from .lightning import x", "from .lightning import x"),
        ("import lightning_utilities", "import lightning_utilities"),
        ("from composers import x", "from composers import x"),
    ],
)
def test_each_form_of_an_import(tmp_path, line, expected, capsys):
    """A name keeps what it is called in the file; other packages stay as they are."""
    code, text = ported(tmp_path, f"{line}\n")
    assert (code, text) == (0, f"{expected}\n"), capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "import pytorch_lightning as pl\n\nprint(pl.strategies.DeepSpeedStrategy())\n",
            "program.py:3: pytorch_lightning.strategies.DeepSpeedStrategy: take FSDPStrategy",
        ),
        (
            "from lightning.pytorch.plugins import (\n    DeepSpeedPrecision,\n)\n",
            "program.py:2: lightning.pytorch.plugins.DeepSpeedPrecision: pass Trainer(precision=",
        ),
        (
            "from lightning.fabric import Fabric\n",
            "program.py:1: lightning.fabric.Fabric: there is no Fabric here: train with the",
        ),
        (
            "import lightning.pytorch.none\n",
            "program.py:1: lightning.pytorch.none: there is nothing of that name here",
        ),
        (
            "import lightning.pytorch.utilities\n\nlightning.pytorch.utilities.none\n",
            "program.py:3: lightning.pytorch.utilities.none: there is nothing of that name here",
        ),
        (
            "import lightning.pytorch as pl\n\ndef f():\n    import polars as pl\n\npl.DataFrame\n",
            "program.py:6: lightning.pytorch.DataFrame: there is nothing of that name here",
        ),
        (
            "from lightning.pytorch import callbacks\ncallbacks.NoSuch\n",
            "program.py:2: lightning.pytorch.callbacks.NoSuch: there is nothing of that name here",
        ),
        ("def (:\n", "program.py: it cannot be read as Python: invalid syntax, line 1"),
    ],
)
def test_what_has_no_counterpart_is_told_with_its_place(tmp_path, text, told, capsys):
    """File, line, the name as it is there, and what to do; the exit code is 1."""
    code, after = ported(tmp_path, text)
    assert told in capsys.readouterr().out
    assert code == 1
    if "Python" in told:
        assert after == text


def test_the_names_of_a_dotted_import_are_there(tmp_path, capsys):
    """`import a.b.c` binds `a`: what the file reaches from it works afterwards."""
    text = (
        "import lightning.pytorch.utilities.types\n"
        "import pytorch_lightning.callbacks\n"
        "import composer.callbacks\n"
        "print(lightning.pytorch.utilities.types.STEP_OUTPUT is not None,\n"
        "      issubclass(pytorch_lightning.callbacks.timer.Timer, lightning.pytorch.Callback),\n"
        "      composer.callbacks.memory_monitor.MemoryMonitor.__name__)\n"
    )
    code, made = ported(tmp_path, text)
    assert code == 0, capsys.readouterr().out
    exec(made, {})
    assert capsys.readouterr().out.splitlines()[-1] == "True True MemoryMonitor"


def test_attributes_of_classes_are_not_looked_up(tmp_path, capsys):
    """Nor those of a name that a function's own import takes."""
    text = (
        "from lightning.pytorch import Trainer\n"
        "from lightning.pytorch.callbacks import ModelCheckpoint\n"
        "from lightning.pytorch.trainer.states import RunningStage\n"
        "import lightning.pytorch as pl\n"
        "ModelCheckpoint.CHECKPOINT_NAME_LAST = 'latest'\n"
        "print(RunningStage.TRAINING, Trainer.fit)\n"
        "def f():\n    import polars as pl\n    return pl.DataFrame\n"
    )
    code, _ = ported(tmp_path, text)
    assert code == 0, capsys.readouterr().out


def test_one_framework_can_be_chosen(tmp_path):
    """The lines of the others stay."""
    text = "from composer import Callback\nimport pytorch_lightning as pl\n"
    assert ported(tmp_path, text, "--from", "composer")[1] == (
        "from trainer_hooks.compat.composer import Callback\nimport pytorch_lightning as pl\n"
    )


def test_a_folder_is_gone_through(tmp_path, capsys):
    """All its Python files are ported, but none of hidden folders and environments."""
    line = "import pytorch_lightning as pl\n"
    for name in ("a.py", "b/c.py", ".hidden/d.py", "env/e.py", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(line)
    (tmp_path / "env/pyvenv.cfg").touch()
    (tmp_path / "a.py").chmod(0o755)
    assert main(["port", str(tmp_path)]) == 0
    changed = [path.name for path in sorted(tmp_path.rglob("*.*")) if path.is_file()
               and "trainer_hooks" in path.read_text()]  # fmt: skip
    assert changed == ["a.py", "c.py"]
    assert (tmp_path / "a.py").stat().st_mode & 0o777 == 0o755
    assert "2 files ported" in capsys.readouterr().out


def test_bad_input_is_told_in_one_line(tmp_path, capsys, monkeypatch):
    """A path that is not there, and libcst that is not installed."""
    assert main(["port", str(tmp_path / "none")]) == 2
    assert "none': there is no such file or folder" in capsys.readouterr().err
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["port", str(tmp_path)]) == 2
    assert "pip install 'trainer-hooks[port]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "from lightning.pytorch.callbacks import GPUStatsMonitor, Timer as T\n",
            (
                "from trainer_hooks.compat.lightning.callbacks import Timer as T\n"
                "from trainer_hooks.compat.missing.lightning.callbacks import GPUStatsMonitor"
                "  # lightning.pytorch.callbacks.GPUStatsMonitor is not in trainer_hooks: "
            ),
        ),
        (
            "try: from lightning import Fabric as F, Trainer\nfinally: pass\n",
            (
                "try: from trainer_hooks.compat.lightning import Trainer; "
                "from trainer_hooks.compat.missing.lightning import Fabric as F\nfinally: pass\n"
            ),
        ),
        (
            "if 1:\n    from pytorch_lightning.loops import (\n      Loop,\n    )  # noqa\n",
            (
                "if 1:\n    from trainer_hooks.compat.missing.lightning.loops import Loop"
                "  # noqa  # pytorch_lightning.loops.Loop is not in trainer_hooks: "
            ),
        ),
        (
            (
                "from lightning.pytorch.strategies import (\n    DDPStrategy,\n"
                "    DeepSpeedStrategy,\n)\n"
            ),
            (
                "from trainer_hooks.compat.lightning.strategies import (\n    DDPStrategy,\n)\n"
                "from trainer_hooks.compat.missing.lightning.strategies import DeepSpeedStrategy  #"
            ),
        ),
        (
            "import lightning.pytorch.none as none, os\n",
            "import trainer_hooks.compat.missing.lightning.none as none, os  # ",
        ),
        (
            "from lightning.pytorch.none import *\n",
            "from trainer_hooks.compat.missing.lightning.none import *  # ",
        ),
    ],
)
def test_a_name_without_a_counterpart_is_imported_as_a_stand_in(tmp_path, text, expected):
    """In a line that says so; the file is imported, and porting it again changes nothing."""
    code, made = ported(tmp_path, text)
    assert code == 1
    assert made.startswith(expected)
    exec(made, {})
    assert ported(tmp_path, made) == (0, made)


def test_a_stand_in_fails_at_the_line_that_uses_it(tmp_path):
    """With what to write instead; annotations, checks of types and classes of its kind hold."""
    text = (
        "from lightning.pytorch.plugins import DeepSpeedPrecision\n"
        "def f(a: DeepSpeedPrecision, b: DeepSpeedPrecision | None): pass\n"
        "def g(c: 'list[DeepSpeedPrecision]'): pass\n"
        "assert not isinstance(f, DeepSpeedPrecision)\n"
        "assert not issubclass(int, (str, DeepSpeedPrecision))\n"
    )
    _, made = ported(tmp_path, text)
    exec(made, scope := {})
    exec("class A(DeepSpeedPrecision, dict): pass", scope)
    for line in ("DeepSpeedPrecision()", "DeepSpeedPrecision.x", "A()",
                 "if DeepSpeedPrecision: pass", "list(DeepSpeedPrecision)"):  # fmt: skip
        with pytest.raises(NotOfferedError, match=r"pass Trainer\(precision="):
            exec(line, scope)


def test_an_import_that_may_fail_keeps_what_it_falls_back_to(tmp_path, capsys):
    """A program that does without a name, or knows an older path of it, is left to do so."""
    text = (
        "try:\n    from lightning.pytorch.strategies import DeepSpeedStrategy\n"
        "except (ImportError, AttributeError):\n    DeepSpeedStrategy = None\n"
        "try:\n    import lightning.pytorch.none as pl\n"
        "except ImportError:\n    pl = None\n"
        "try:\n    import lightning.pytorch as pl\n"
        "except ImportError:\n    pl = None\n"
        "known = DeepSpeedStrategy is None and pl.Trainer\n"
    )
    code, made = ported(tmp_path, text)
    assert code == 0, capsys.readouterr().out
    exec(made, scope := {})
    assert scope["known"]


def test_a_name_that_the_file_makes_itself_is_no_framework_s(tmp_path, capsys):
    """Arguments, local variables, loops and later assignments of a name that was imported."""
    text = (
        "from lightning.pytorch import callbacks, loggers\n"
        "import lightning.pytorch as pl\n"
        "def f(callbacks):\n    return callbacks.mine\n"
        "def g():\n    loggers = object()\n    return lambda: loggers.mine\n"
        "print([loggers.mine for loggers in ()])\n"
        "class A:\n    callbacks = ()\n    def f(self):\n        return self.callbacks.mine\n"
        "pl.Trainer\n"
        "import polars as pl\n"
        "pl.DataFrame\n"
        "def h():\n    return pl.DataFrame\n"
    )
    code, _ = ported(tmp_path, text)
    assert code == 0, capsys.readouterr().out


def test_a_name_that_is_used_before_its_import_is_seen(tmp_path, capsys):
    """In a function that stands above the import, and in the arguments of a call."""
    text = (
        "def f():\n    return g(pl.NoSuch)\n"
        "import lightning.pytorch as pl\n"
        "pl.callbacks.NoSuch()\n"
        "getattr(pl, 'NoSuchEither')\n"
        "getattr(pl, 'NoSuchEither', None)\n"
    )
    ported(tmp_path, text)
    told = capsys.readouterr().out
    assert "program.py:2: lightning.pytorch.NoSuch: " in told
    assert "program.py:4: lightning.pytorch.callbacks.NoSuch: " in told
    assert "program.py:5: lightning.pytorch.NoSuchEither: " in told
    assert "3 places" in told


def test_names_of_a_star_are_looked_up(tmp_path, capsys):
    """The names that `from framework import *` would bind, and attributes of those."""
    text = (
        "from lightning.pytorch import *\nfrom lightning.pytorch.strategies import *\n"
        "DeepSpeedStrategy()\ncallbacks.NoSuch\nTrainer()\nmine = callback\n"
    )
    ported(tmp_path, text)
    told = capsys.readouterr().out
    assert "program.py:3: lightning.pytorch.strategies.DeepSpeedStrategy: take FSDP" in told
    assert "program.py:4: lightning.pytorch.callbacks.NoSuch: " in told
    assert "2 places" in told


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "import_module('pytorch_lightning.callbacks')",
            "import_module('trainer_hooks.compat.lightning.callbacks')",
        ),
        (
            'importlib.import_module(f"lightning.pytorch.{name}", None)',
            'importlib.import_module(f"trainer_hooks.compat.lightning.{name}", None)',
        ),
        (
            "{'_target_': 'lightning.pytorch.Trainer', 'name': 'lightning.pytorch'}",
            "{'_target_': 'trainer_hooks.compat.lightning.Trainer', 'name': 'lightning.pytorch'}",
        ),
        (
            'dict(class_path="pytorch_lightning.callbacks.EarlyStopping")',
            'dict(class_path="trainer_hooks.compat.lightning.callbacks.EarlyStopping")',
        ),
        (
            "_target_: str = 'lightning.Trainer'",
            "_target_: str = 'trainer_hooks.compat.lightning.Trainer'",
        ),
        (
            "mock.patch('lightning.pytorch.Trainer.fit')",
            "mock.patch('trainer_hooks.compat.lightning.Trainer.fit')",
        ),
        (
            "logging.getLogger('lightning.pytorch.utilities.rank_zero')",
            'logging.getLogger("trainer_hooks")',
        ),
        ("find_spec('lightning')", "find_spec('trainer_hooks.compat.lightning')"),
        ("import_module('lightning_pose')", "import_module('lightning_pose')"),
        ("print('lightning.pytorch.Trainer')", "print('lightning.pytorch.Trainer')"),
    ],
)
def test_a_string_that_is_imported_is_an_import(tmp_path, line, expected, capsys):
    """Paths that Python, Hydra or LightningCLI imports; other strings stay."""
    assert ported(tmp_path, f"{line}\n") == (0, f"{expected}\n"), capsys.readouterr().out


def test_a_string_without_a_counterpart_is_told(tmp_path, capsys):
    """It stays as it is."""
    text = "import importlib\nimportlib.import_module('lightning.pytorch.none')\n"
    assert ported(tmp_path, text) == (1, text)
    assert "program.py:2: lightning.pytorch.none: there is nothing" in capsys.readouterr().out


def test_class_paths_of_configs_change(tmp_path, capsys):
    """Those of Hydra and of LightningCLI; comments, other values and line ends stay."""
    text = (
        "# lightning.pytorch.Trainer: kept\r\n"
        "trainer:\r\n  _target_: lightning.pytorch.Trainer # the trainer\r\n"
        "  callbacks:\r\n"
        "    - class_path: 'pytorch_lightning.callbacks.EarlyStopping'\r\n"
        "    - lightning.pytorch.callbacks.Timer\r\n"
        "  logger: {_target_: lightning.pytorch.loggers.CSVLogger, save_dir: .}\r\n"
        "  strategy: {class_path: lightning.pytorch.strategies.DeepSpeedStrategy}\r\n"
        "  name: lightning.pytorch\r\n  lock: composer.lock\r\n  qubit: lightning.Qubit\r\n"
    )
    path = tmp_path / "config.yaml"
    path.write_bytes(text.encode())
    assert main(["port", str(tmp_path)]) == 1
    told = capsys.readouterr().out
    assert "config.yaml: lines 3, 5, 6, 7 changed" in told
    assert "config.yaml:8: lightning.pytorch.strategies.DeepSpeedStrategy: take FSDP" in told
    assert "1 place without" in told
    compat = "trainer_hooks.compat.lightning"
    expected = (
        text.replace("lightning.pytorch.Trainer #", f"{compat}.Trainer #")
        .replace("pytorch_lightning.callbacks", f"{compat}.callbacks")
        .replace("lightning.pytorch.callbacks.Timer", f"{compat}.callbacks.Timer")
        .replace("lightning.pytorch.loggers", f"{compat}.loggers")
    )
    assert path.read_bytes().decode() == expected


def test_a_name_that_is_elsewhere_says_where(tmp_path, capsys):
    """A name of another module of the framework, and one that is internal there."""
    ported(tmp_path, "from lightning.pytorch.utilities import rank_zero_debug, _mine, mine\n")
    told = capsys.readouterr().out
    assert "rank_zero_debug: import it from trainer_hooks.compat.lightning.utilities.d" in told
    assert "_mine: it is an internal part of the framework: copy it into your code" in told
    assert ".mine: there is nothing of that name here: write it in your code" in told


def test_methods_that_nothing_calls_and_private_names_are_told(tmp_path, capsys):
    """Of a class that derives from one of the framework's; those that are there are not."""
    text = (
        "import lightning.pytorch as pl\n"
        "from lightning.pytorch.callbacks import ModelCheckpoint, Timer\n"
        "from lightning.pytorch.cli import LightningCLI\n"
        "pl._logger.handlers\n"
        "class Saver(ModelCheckpoint):\n"
        "    def __init__(self): super().__init__(); self._mine = 1; self._mine\n"
        "    def _save_checkpoint(self, trainer, path): self._fs.exists(path); self._helper()\n"
        "    def _helper(self): super()._save_topk_checkpoint(self, self.save_top_k)\n"
        "class Own(pl.Callback):\n"
        "    def on_init_end(self, trainer): pass\n"
        "class Line(LightningCLI):\n"
        "    def after_fit(self): self._run_subcommand('test'); self._prepare_subcommand_kwargs\n"
        "class Net(pl.LightningModule):\n"
        "    def f(self): return self._registered_elsewhere\n"
        "class Clock(Timer):\n"
        "    def _check_time_remaining(self, trainer): super()._check_time_remaining(trainer)\n"
    )
    code, _ = ported(tmp_path, text)
    told = [line for line in capsys.readouterr().out.splitlines() if "program.py:" in line][1:]
    places = [line.partition("program.py:")[2].split(": ")[:2] for line in told]
    saver = "lightning.pytorch.callbacks.ModelCheckpoint"
    assert places == [
        ["7", f"{saver}._fs"],
        ["7", f"{saver}._save_checkpoint"],
        ["8", f"{saver}._save_topk_checkpoint"],
        ["10", "lightning.pytorch.Callback.on_init_end"],
    ]
    assert code == 1
    assert "nothing calls it here: " in told[1]
    assert "on_checkpoint_saved" in told[1]


@pytest.mark.exhaustive
def test_the_result_is_imported_in_a_fresh_process(tmp_path, capsys):
    """With `--try`: the first line that fails is named, in a package too; nothing else is tried."""
    package = tmp_path / "project"
    package.mkdir()
    files = {
        "__init__.py": "",
        "good.py": "from lightning.pytorch import Trainer\nfrom . import __name__ as name\n",
        "bad.py": "import lightning.pytorch as pl\n\nwide = pl.Trainer.max_width\n",
        "ends.py": "import lightning.pytorch\nimport os\nos._exit(3)\n",
        "other.py": "raise RuntimeError('never')\n",
        "main.py": "import pytorch_lightning\nif __name__ == '__main__':\n    raise RuntimeError\n",
    }
    for name, text in files.items():
        (package / name).write_text(text, encoding="utf-8")
    assert main(["port", "--try", str(package)]) == 1
    told = capsys.readouterr().out.replace(f"{package}{os.sep}", "")
    assert "bad.py:3: AttributeError: type object 'Trainer' has no attribute 'max_width'" in told
    assert "ends.py: its import ends the process (3)" in told
    assert "2 files of 4 imported" in told
    (package / "bad.py").write_text("import lightning.pytorch\n", encoding="utf-8")
    assert main(["port", "--try", str(package / "bad.py")]) == 0
