"""Generate logs what the module makes of prompts."""

from __future__ import annotations

import pytest
import torch

from trainer_hooks import Trainer
from trainer_hooks.callbacks import Generate
from trainer_hooks.errors import ModuleError
from trainer_hooks.loggers import InMemoryLogger
from trainer_hooks.testing import TinyModule


class Writer(TinyModule):
    """Generates texts, and notes how it was asked."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def generate(self, prompts, end="."):
        self.asked.append((list(prompts), self.training, torch.is_grad_enabled()))
        torch.rand(3)
        return [f"{prompt}{end}" for prompt in prompts]


class Tokenizer:
    """Makes a token of each letter, as a tokenizer of transformers is called."""

    def __call__(self, prompts, return_tensors, padding):
        assert (return_tensors, padding) == ("pt", True)
        return {"input_ids": torch.tensor([[ord(letter) for letter in text] for text in prompts])}

    def batch_decode(self, tokens, skip_special_tokens):
        assert skip_special_tokens
        return ["".join(map(chr, row.tolist())) for row in tokens]


class Tokenized(TinyModule):
    """Generates tokens."""

    tokenizer = Tokenizer()

    def generate(self, input_ids, times):
        return input_ids.repeat(1, times)


def trained(folder, module, callback, **options):
    logger = InMemoryLogger()
    trainer = Trainer(
        default_root_dir=folder,
        callbacks=[callback],
        logger=logger,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **{"max_epochs": 2, **options},
    )
    trainer.fit(module)
    return trainer, logger


@pytest.mark.parametrize(
    ("interval", "steps"),
    [("1ep", [3, 6]), (1, [3, 6]), ("2ba", [2, 4, 6]), (lambda clock: clock.batches == 5, [5])],
)
def test_tables_come_at_the_interval(tmp_path, interval, steps):
    """Each time the interval is over, one table with a row for each prompt is logged."""
    _, logger = trained(tmp_path, Writer(), Generate(["a", "b"], interval, end="!"))
    rows = [["a", "a!"], ["b", "b!"]]
    expected = [(step, ["prompt", "generation"], rows) for step in steps]
    assert logger.tables["generations"] == expected


def test_prompts_go_in_batches_in_evaluation_mode(tmp_path):
    """generate is given batch_size prompts at once, in eval mode and without gradients."""
    module = Writer()
    trained(tmp_path, module, Generate(["a", "b", "c"], "1ep", 2), max_epochs=1)
    assert module.asked == [(["a", "b"], False, False), (["c"], False, False)]
    assert module.layer.training


def test_a_tokenizer_is_used(tmp_path):
    """Prompts go through the module's tokenizer, and tokens back."""
    _, logger = trained(tmp_path, Tokenized(), Generate("ab", "2ep", times=2))
    assert logger.tables["generations"] == [(6, ["prompt", "generation"], [["ab", "abab"]])]


def test_what_it_draws_is_put_back(tmp_path):
    """Random numbers are the same after a training with and without it."""
    drawn = []
    for interval in ("1ba", "99ep"):
        torch.manual_seed(0)
        trained(tmp_path, Writer(), Generate("a", interval))
        drawn.append(torch.rand(1).item())
    assert drawn[0] == drawn[1]


def test_a_module_that_cannot_generate_is_refused(tmp_path):
    """It is a ModuleError before anything is trained; so is another number of texts."""
    with pytest.raises(ModuleError, match="module TinyModule of Generate"):
        trained(tmp_path, TinyModule(), Generate("a", "1ep"))
    module = Writer()
    module.generate = lambda prompts: []
    with pytest.raises(ModuleError, match="0 generations of Writer for 1 prompts"):
        trained(tmp_path, module, Generate("a", "1ep"))
