"""Numeric precision: names, contexts, conversions, and the scaler's state."""

from __future__ import annotations

import pytest
import torch

from trainer_hooks.errors import OptionError
from trainer_hooks.runtime.precision import make_precision

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (None, "32-true"),
        (32, "32-true"),
        ("32", "32-true"),
        ("32-true", "32-true"),
        (64, "64-true"),
        ("64-true", "64-true"),
        ("bf16", "bf16-mixed"),
        ("bf16-mixed", "bf16-mixed"),
        (16, "16-mixed"),
        ("16-mixed", "16-mixed"),
        ("bf16-true", "bf16-true"),
        ("16-true", "16-true"),
    ],
)
def test_every_name_is_understood(given, name):
    """Short and long names, and numbers, mean the same precision."""
    assert make_precision(given, CPU).name == name


@pytest.mark.parametrize("given", ["8", 8, 1.5, "bf16-mixd", True, ["32"]])
def test_an_unknown_precision_is_refused(given):
    """A value that names no precision is answered with those that do."""
    with pytest.raises(OptionError, match="must be one of 16-mixed, 16-true, 32-true, 64-true, "):
        make_precision(given, CPU)


def test_the_nearest_name_is_suggested():
    """A mistyped name is answered with the one that was probably meant."""
    with pytest.raises(OptionError, match="Did you mean 'bf16-mixed'"):
        make_precision("bf16-mixd", CPU)


def test_what_is_not_here_is_said():
    """A precision that only Lightning has is an error with an alternative."""
    with pytest.raises(OptionError, match=r"not available\. Use bf16-mixed, and layers of"):
        make_precision("transformer-engine", CPU)


def test_mps_has_no_double_precision():
    """64 bits on MPS are refused before anything is converted."""
    with pytest.raises(OptionError, match="MPS has no 64-bit"):
        make_precision("64-true", torch.device("mps"))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("64-true", torch.float64), ("bf16-true", torch.bfloat16), ("16-true", torch.float16)],
)
def test_a_true_precision_converts_module_batch_and_new_tensors(name, dtype):
    """Parameters and floating-point inputs take the type, integers stay, the default returns."""
    precision = make_precision(name, CPU)
    module = torch.nn.Linear(1, 1)
    precision.convert_module(module)
    batch = precision.convert_batch({"x": torch.ones(1), "n": torch.ones(1, dtype=torch.int32)})
    assert module.weight.dtype == batch["x"].dtype == dtype
    assert batch["n"].dtype == torch.int32
    with pytest.raises(ZeroDivisionError), precision.forward_context():
        assert torch.ones(1).dtype == dtype
        raise ZeroDivisionError
    assert torch.ones(1).dtype == torch.float32


def test_mixed_precision_computes_in_bf16():
    """Under bf16-mixed a layer's output is bfloat16 and its weights stay as they are."""
    precision = make_precision("bf16-mixed", CPU)
    module = torch.nn.Linear(1, 1)
    with precision.forward_context():
        assert module(torch.ones(1, 1)).dtype == torch.bfloat16
    assert module.weight.dtype == torch.float32


def test_a_scalers_state_comes_back():
    """The scale of 16-mixed is state: another scaler goes on with it."""
    first, second = make_precision("16-mixed", CPU), make_precision("16-mixed", CPU)
    first.scale(torch.ones(()))
    first.scaler.update(new_scale=32.0)
    second.load_state_dict(first.state_dict())
    assert second.state_dict() == first.state_dict()
    assert second.scale(torch.ones(())).item() == 32.0


def test_a_scaled_step_is_the_unscaled_one():
    """Scaling, unscaling once and stepping gives the same as a plain step."""
    weights = []
    for name in ("32-true", "16-mixed"):
        precision = make_precision(name, CPU)
        parameter = torch.nn.Parameter(torch.ones(2))
        optimizer = torch.optim.SGD([parameter], lr=0.5)
        precision.scale((parameter * 3).sum()).backward()
        precision.unscale(optimizer)
        precision.step(optimizer)
        weights.append(parameter.detach())
    assert torch.equal(*weights)


@pytest.mark.parametrize("name", ["32-true", "64-true", "bf16-mixed"])
def test_without_a_scaler_there_is_no_state(name):
    """The other precisions have nothing to save."""
    assert make_precision(name, CPU).state_dict() == {}
