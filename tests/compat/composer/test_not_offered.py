"""What is not here, and what is wrong, is an error at the line that uses it, with what to do."""

from __future__ import annotations

import importlib
import re

import pytest
import torch

from trainer_hooks.compat import composer
from trainer_hooks.compat.composer import Callback, ComposerModel, Evaluator, State, Time
from trainer_hooks.compat.composer import not_offered as absent
from trainer_hooks.compat.composer.models import ComposerClassifier


@pytest.mark.parametrize("name", sorted(absent.OPTIONS))
def test_an_option_that_is_not_here(make, name) -> None:
    """Each is taken at values that ask for nothing, and any other is an error with a way out."""
    taken, advice = absent.OPTIONS[name]
    make(**{name: taken[0]})
    if advice:
        with pytest.raises(ValueError, match=f"Trainer\\({name}="):
            make(**{name: object()})


def test_algorithms_are_refused_with_a_word(make) -> None:
    """An algorithm is named, with what to write instead."""
    with pytest.raises(ValueError, match=r"algorithms are Composer's own methods of training"):
        make(algorithms=[object()])


@pytest.mark.parametrize("name", sorted(absent.STATE))
def test_an_attribute_of_state_that_is_not_here(make, name) -> None:
    """Each says what to use instead."""
    with pytest.raises(AttributeError, match=f"State.{name} is not in trainer_hooks: "):
        getattr(make().state, name)


@pytest.mark.parametrize("name", sorted(absent.TRAINER))
def test_a_member_of_the_trainer_that_is_not_here(make, name) -> None:
    """Each says what to use instead."""
    with pytest.raises(AttributeError, match=f"Trainer.{name} is not in trainer_hooks: "):
        getattr(make(), name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "name"),
    [
        ("", "Algorithm"),
        (".algorithms", "BlurPool"),
        (".algorithms", "EMA"),
        (".algorithms.mixup", "MixUp"),
        (".profiler", "JSONTraceHandler"),
        (".functional", "apply_blurpool"),
        (".core", "AlgorithmPass"),
        (".models", "HuggingFaceModel"),
    ],
)
def test_a_name_that_is_not_here(package, name) -> None:
    """Reading and importing it are errors that say what to use."""
    path = f"trainer_hooks.compat.composer{package}"
    with pytest.raises(ImportError, match=rf"composer(.\w+)*\.{name} is not in trainer_hooks: "):
        exec(f"from {path} import {name}")
    module = importlib.import_module(path)
    with pytest.raises(AttributeError, match=rf"composer(.\w+)*\.{name} is not in trainer_hooks: "):
        getattr(module, name)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("EMA", "trainer_hooks.callbacks.EMAWeightAveraging"),
        ("SWA", "trainer_hooks.callbacks.StochasticWeightAveraging"),
        ("LayerFreezing", "trainer_hooks.callbacks.BackboneFinetuning"),
        ("LabelSmoothing", "torch.nn.functional.cross_entropy"),
        ("GradientClipping", "torch.nn.utils.clip_grad_norm_"),
        ("SAM", "write the change into the model, the loader or a callback"),
    ],
)
def test_an_algorithm_names_the_nearest_thing(name, nearest) -> None:
    """The advice is a thing that is there, and the general one for other algorithms."""
    with pytest.raises(ImportError, match=re.escape(nearest)):
        exec(f"from trainer_hooks.compat.composer.algorithms import {name}")
    package, _, thing = nearest.rpartition(".")
    if " " not in nearest:
        assert hasattr(importlib.import_module(package), thing)


@pytest.mark.parametrize("package", ["", ".core", ".loggers", ".models", ".optim", ".callbacks"])
def test_each_listed_name_is_there(package) -> None:
    """What a package lists can be imported, and a name that nobody knows cannot."""
    module = importlib.import_module(f"trainer_hooks.compat.composer{package}")
    for name in module.__all__:
        getattr(module, name)
    with pytest.raises(AttributeError):
        module.no_such_name  # noqa: B018 - asked for to fail


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": torch.nn.Linear(1, 1), "optimizers": None}, "must be a ComposerModel"),
        ({"max_duration": "0.5dur"}, "a share of the training says nothing"),
        ({"max_duration": "5"}, "no unit"),
        ({"device": "tpu"}, "must be 'cpu', 'gpu' or 'mps'"),
        ({"precision": "amp_fp8"}, "FP8 is not available"),
        ({"precision": "fp31"}, "Did you mean 'fp32'"),
        ({"autoresume": True}, "Pass save_folder"),
        ({"maximum_duration": 3}, "there is no option 'maximum_duration'"),
        ({"scale_schedule_ratio": 2.0}, "has no effect without schedulers"),
        ({"schedulers": lambda state: 1.0, "scale_schedule_ratio": 2.0}, "Let it take .state, ssr"),
        ({"eval_dataloader": [Evaluator(label="a", dataloader=[]), []]}, "were given together"),
        ({"eval_dataloader": [[], []]}, "two of them have the label 'eval'"),
    ],
)
def test_a_wrong_option(make, options, message) -> None:
    """It is refused when the trainer is made, with its name and what to do."""
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_two_optimizers_are_refused(make, net) -> None:
    """One is taken, as in Composer."""
    several = [torch.optim.SGD(net.parameters(), lr=0.1) for _ in range(2)]
    with pytest.raises(ValueError, match="one is taken"):
        make(optimizers=several)


def test_without_an_optimizer_composers_default_is_taken(make) -> None:
    """`DecoupledSGDW(lr=0.1)`, with a warning, as in Composer."""
    with pytest.warns(UserWarning, match="DecoupledSGDW"):
        trainer = make(optimizers=None)
    assert type(trainer.state.optimizers[0]).__name__ == "DecoupledSGDW"


def test_a_fit_that_cannot_be(make, loader) -> None:
    """No data, no length, and options that one fit cannot have for itself."""
    with pytest.raises(ValueError, match="nothing to train on"):
        make(train_dataloader=None).fit()
    trainer = make()
    with pytest.raises(ValueError, match="for all fits of this trainer"):
        trainer.fit(device_train_microbatch_size=2)
    with pytest.raises(ValueError, match="nothing to evaluate"):
        trainer.eval()
    trainer.fit()
    with pytest.raises(ValueError, match="from the first fit on"):
        trainer.fit(duration=1, schedulers=lambda state: 1.0)
    with pytest.raises(RuntimeError, match="there is no folder"):
        trainer.save_checkpoint_to_save_folder()


def test_the_loss_is_the_models(make) -> None:
    """A callback that replaces `state.loss` is told where to do so."""

    class Replaces(Callback):
        def after_loss(self, state, logger):
            state.loss = state.loss * 2

    with pytest.raises(RuntimeError, match=r"Override loss\(\) in the ComposerModel"):
        make(Replaces()).fit()


def test_a_model_that_lacks_something(make) -> None:
    """Each method that a model must have says so, with its arguments."""

    class Empty(ComposerModel):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))

    with pytest.raises(TypeError, match="has no forward: define"):
        make(model=Empty()).fit()

    class NoLoss(Empty):
        def forward(self, batch):
            return self.weight

        def loss(self, outputs, batch):
            return "none"

    with pytest.raises(TypeError, match="it must return a tensor, several, or a dict"):
        make(model=NoLoss()).fit()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: setattr(s, "device_train_microbatch_size", 2), "keeps the size that it began"),
        (lambda s: s.set_dataloader([1], "train"), "keeps the loaders that it began with"),
        (lambda s: setattr(s, "dataloader_len", 1), "keeps the loaders that it began with"),
    ],
)
def test_what_a_fit_would_not_follow_is_refused(make, change, message) -> None:
    """A callback that sets the size of microbatches or the loader is told; nothing is ignored."""

    class Sets(Callback):
        def epoch_start(self, state, logger):
            change(state)

    with pytest.raises(RuntimeError, match=f"at 'epoch_start': a fit {message}"):
        make(Sets()).fit()


def test_a_state_of_nobody() -> None:
    """A state that no trainer goes by cannot stop one."""
    from trainer_hooks.compat.composer.core.precision import Precision
    from trainer_hooks.compat.composer.core.state import Device

    state = State(None, "run", device=Device("cpu"), precision=Precision.FP32)
    with pytest.raises(RuntimeError, match="no trainer goes by this state"):
        state.stop_training()
    assert state.get_elapsed_duration() is None
    with pytest.raises(AttributeError, match="State has no attribute 'nothing'"):
        state.nothing  # noqa: B018 - asked for to fail
    with pytest.raises(ValueError, match="a loader needs a label"):
        state.set_dataloader([1])
    assert (state.seed, state.is_model_ddp) == (0, False)
    assert state.max_duration is None
    state.max_duration = "3ep"
    assert state.max_duration == Time(3, "ep")


def test_an_evaluator_that_is_wrong() -> None:
    """Its arguments are checked when it is made."""
    with pytest.raises(ValueError, match="must be a list of texts"):
        Evaluator(label="a", dataloader=[], metric_names="F1")
    with pytest.raises(ValueError, match="must be a number of samples"):
        Evaluator(label="a", dataloader=[], device_eval_microbatch_size="auto")


@pytest.mark.slow
def test_nothing_of_composer_is_needed() -> None:
    """The package is here without Composer, and is not loaded by `import trainer_hooks`."""
    import subprocess
    import sys

    code = (
        "import sys, trainer_hooks.compat.composer as c\n"
        "import torch; c.Trainer; c.ComposerModel; c.Event; c.loggers.WandBLogger\n"
        "print('composer' in sys.modules, 'wandb' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
    assert composer.__version__
    assert ComposerClassifier(torch.nn.Linear(1, 2), num_classes=2).num_classes == 2
