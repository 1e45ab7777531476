"""Every public path of Composer is there, or says what to use instead."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from named_paths import NamedPaths
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from trainer_hooks.compat.composer import utils
from trainer_hooks.compat.composer.utils import dist, reproducibility

PACKAGE = "trainer_hooks.compat.composer"
PATHS = NamedPaths(PACKAGE)
NAMES = json.loads(
    (Path(__file__).parents[3] / "docs/composer_names.json").read_text(encoding="utf-8")
)


def test_each_public_path_of_composer_is_there_or_says_what_to_use():
    """Names by attributes and by imports; a module that is refused as an attribute is imported."""
    paths = [(module, name) for module, names in NAMES["paths"].items() for name in names]
    # of older releases, on the page of callbacks
    there, missing = PATHS.outcomes([*paths, ("callbacks.grad_monitor", "GradMonitor")])
    assert not missing
    assert there >= 195


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        ("algorithms.BlurPool", "write the change into the model"),
        ("callbacks.HealthChecker", "SystemMetricsMonitor"),
        ("models.resnet.composer_resnet", "ComposerClassifier"),
        ("datasets.cifar.build_cifar10_dataloader", "plain torch"),
        ("utils.object_store.S3ObjectStore", "s3://"),
    ],
)
def test_the_line_that_imports_a_refused_name_says_what_to_use(path, advice):
    """Also from a module that is not here at all."""
    module, _, name = path.rpartition(".")
    with pytest.raises(ImportError, match=rf"composer.{path} is not in trainer_hooks: .*{advice}"):
        exec(f"from {PACKAGE}.{module} import {name}")


def test_only_what_is_used_is_loaded():
    """Importing the package loads its tables alone, and a chain of modules those that are files."""
    program = f"""
import sys
import trainer_hooks.compat
def loaded_by(line):
    before = set(sys.modules)
    exec(line)
    files = [n for n in set(sys.modules) - before if getattr(sys.modules[n], "__file__", None)]
    return ",".join(sorted(n.removeprefix("{PACKAGE}") for n in files if "compat" in n))
print(loaded_by("import {PACKAGE} as composer"))
print(loaded_by("composer = sys.modules['{PACKAGE}']; composer.callbacks.memory_snapshot"))
print("torch" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        (",.modules,trainer_hooks.compat.not_offered,trainer_hooks.compat.virtual_modules"),
        ".callbacks",
        "False",
    ]


def test_a_sampler_gives_each_process_its_share(make):
    """`dist.get_sampler` in a program of Composer, and the shares of two processes."""
    data = TensorDataset(torch.randn(10, 4), torch.randint(0, 3, (10,)))
    sampler = dist.get_sampler(data, shuffle=True, drop_last=True)
    assert isinstance(sampler, DistributedSampler)
    trainer = make(train_dataloader=DataLoader(data, batch_size=2, sampler=sampler))
    trainer.fit()
    assert trainer.state.timestamp.sample > 0
    shares = [set(dist.get_sampler(data, num_replicas=2, rank=rank)) for rank in (0, 1)]
    assert shares[0] | shares[1] == set(range(10))


def test_collectives_of_one_process(monkeypatch):
    """They return their own value; of several without a process group they are an error."""
    tensor = torch.ones(2)
    dist.barrier()
    dist.all_reduce(tensor)
    dist.broadcast(tensor, src=0)
    dist.broadcast_object_list([1])
    dist.initialize_dist("cpu")
    assert not dist.is_initialized()
    assert dist.is_available()
    assert dist.all_gather(tensor)[0] is tensor
    assert dist.all_gather_object("a") == ["a"]
    assert (dist.get_node_rank(), dist.get_local_world_size()) == (0, 1)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=r"dist.barrier\(\): there are 2 processes .* Trainer"):
        dist.barrier()


def test_helpers():
    """Addresses, collections, devices, modes and random states, as in Composer."""
    assert utils.parse_uri("s3://bucket/a/b.pt") == ("s3", "bucket", "a/b.pt")
    assert utils.parse_uri("oci://bucket@space/a") == ("oci", "bucket", "a")
    assert utils.parse_uri(Path("/a/b")) == ("", "", "/a/b")
    assert utils.parse_uri("a/{rank}.pt") == ("", "", "a/{rank}.pt")
    assert utils.map_collection([1, 2], str) == ["1", "2"]
    assert utils.map_collection({"a": 1}, str) == {"a": "1"}
    assert utils.map_collection((1,), str) == ("1",)
    assert utils.get_device("cpu").torch_device == torch.device("cpu")
    assert 0 < utils.get_free_tcp_port() < 2**16
    assert not utils.is_notebook()
    model = torch.nn.Linear(1, 1)
    with utils.model_eval_mode(model):
        assert not model.training
    assert model.training
    assert 0 <= reproducibility.get_random_seed() <= reproducibility.MAX_SEED
    states = reproducibility.get_rng_state()
    first = torch.rand(3)
    with reproducibility.seed_context(1):
        drawn = torch.rand(2)
    with reproducibility.seed_context(1):
        assert torch.equal(torch.rand(2), drawn)
    reproducibility.load_rng_state(states)
    assert torch.equal(torch.rand(3), first)
