"""Arguments of FSDPStrategy, and the errors for wrong ones."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from trainer_hooks.errors import ModuleError, OptionError
from trainer_hooks.runtime.module_init import materialize
from trainer_hooks.runtime.strategy_options import FSDPStrategy


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"auto_wrap_policy": "Linear"}, ["auto_wrap_policy='Linear'", "a class of layers"]),
        ({"auto_wrap_policy": 0}, ["auto_wrap_policy=0", "positive number"]),
        ({"auto_wrap_policy": {nn.Linear, 3}}, ["a set of those"]),
        ({"activation_checkpointing_policy": True}, ["activation_checkpointing_policy=True"]),
        ({"state_dict_type": "local"}, ["state_dict_type='local'", "'full' or 'sharded'"]),
        ({"tensor_parallel_size": 0}, ["tensor_parallel_size=0", "at least 1"]),
        ({"tensor_parallel_size": 2, "device_mesh": (1, 2)}, ["one of them"]),
    ],
)
def test_options_that_are_wrong_say_so(options, words):
    """A policy, a kind of checkpoint or a size that is none is an error before anything starts."""
    with pytest.raises(OptionError) as raised:
        FSDPStrategy(**options)
    assert all(word in str(raised.value) for word in words), str(raised.value)


def test_a_layer_on_meta_gets_its_first_weights():
    """Memory and first weights are made as where the layer is built at once."""
    torch.manual_seed(1)
    built = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    torch.manual_seed(1)
    with torch.device("meta"):
        late = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    materialize(late, torch.device("cpu"), is_filled=False)
    for name, value in built.state_dict().items():
        assert torch.equal(value, late.state_dict()[name])


def test_shared_parameters_on_meta_are_refused():
    """Two layers with one parameter would get one each."""
    with torch.device("meta"):
        tied = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        tied[1].weight = tied[0].weight
    with pytest.raises(ModuleError, match=r"0\.weight is 1\.weight, too, and is on the meta"):
        materialize(tied, torch.device("cpu"), is_filled=False)
