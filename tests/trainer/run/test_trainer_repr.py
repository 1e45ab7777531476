"""A trainer in one line."""

from __future__ import annotations

import io

from trainer_hooks import Callback
from trainer_hooks.testing import TinyModule


def test_a_trainer_in_one_line(bare) -> None:
    """Its repr has what was given, what it is made of, and how far the training is."""
    seen = []

    class Looks(Callback):
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            seen.append(repr(trainer))

    trainer = bare(Looks(), max_epochs=2, gradient_clip_val=0.5)
    before = repr(trainer)
    assert before.startswith("<Trainer(")
    assert "max_epochs=2, num_sanity_val_steps=0, gradient_clip_val=0.5" in before
    assert before.endswith("cpu, 32-true; callbacks: Looks; nothing was run yet>")
    trainer.fit(TinyModule())
    assert seen[0].endswith("; in fit of TinyModule>")
    assert seen[4].endswith("; in fit of TinyModule, epoch 1, step 4, after 1 batch>")
    assert repr(trainer).endswith("; TinyModule, finished, epoch 2, step 6>")
    assert len(repr(trainer).splitlines()) == 1


def test_a_notebook_shows_it_in_lines(bare) -> None:
    """IPython is given the same, broken where a part ends."""
    from IPython.lib.pretty import RepresentationPrinter

    text = io.StringIO()
    printer = RepresentationPrinter(text)
    trainer = bare()
    printer.pretty(trainer)
    printer.flush()
    assert text.getvalue().splitlines()[1:] == ["  no callbacks;", "  nothing was run yet>"]
    assert text.getvalue().replace(";\n  ", "; ") == repr(trainer)
