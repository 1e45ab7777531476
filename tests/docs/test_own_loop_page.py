"""The loop of the page on own loops in the manners of Accelerate and Fabric, which are run."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent

import pytest
import warm_python
from samples import one_in

PAGE = Path(__file__).parents[2] / "docs" / "own-loop.md"
MANNERS = {
    "accelerate": ("accelerator = Accelerator()", "from accelerate import Accelerator"),
    "lightning_fabric": ("fabric = Fabric()", "from lightning_fabric import Fabric"),
}
"""The first line of each block, and the import that it needs."""

PROGRAM = """
import torch
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset

{imports}

def make():
    torch.manual_seed(0)
    net = torch.nn.Linear(8, 1)
    x = torch.randn(16, 8)
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4)
    return net, torch.optim.Adam(net.parameters(), lr=0.01), loader

net, optimizer, train_loader = make()
for epoch in range(3):
    for x, y in train_loader:
        optimizer.zero_grad()
        mse_loss(net(x), y).backward()
        optimizer.step()
by_hand = net.weight.detach()
net, optimizer, train_loader = make()
val_loader = train_loader

{block}

assert torch.equal(next(net.parameters()).detach().cpu(), by_hand)
print("the same weights")
"""


@pytest.mark.slow
@pytest.mark.parametrize("package", one_in(2, MANNERS))
def test_the_other_manners_train_the_same_weights(package, tmp_path) -> None:
    """Each block on the page is run as it is, and ends as the plain loop does."""
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    first, imports = MANNERS[package]
    found = re.search(
        rf"^    {re.escape(first)}\n(?:    .*\n)+", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert found is not None, first
    program = PROGRAM.format(imports=imports, block=dedent(found[0]))
    done = warm_python.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.endswith("the same weights\n"), done.stderr[-2000:]
