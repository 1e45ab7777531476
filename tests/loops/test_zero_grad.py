"""How gradients are cleared at the start of a window."""

from __future__ import annotations

import torch


def test_gradients_are_gone_when_a_forward_begins(bare, tiny, loader) -> None:
    """No parameter still holds a gradient of the window before when the next one is computed."""
    seen = []

    class Watching(tiny):
        def on_before_backward(self, loss) -> None:
            seen.append([parameter.grad for parameter in self.parameters()])

    bare().fit(Watching(), loader(3))
    assert len(seen) > 1
    assert all(gradient is None for batch in seen for gradient in batch)


def test_an_optimizer_with_a_zero_grad_of_its_own_is_asked(bare, tiny, loader) -> None:
    """An optimizer that overrides `zero_grad`, in its class or on the instance, clears itself."""
    calls = []

    class Own(torch.optim.SGD):
        def zero_grad(self, set_to_none: bool = True) -> None:
            calls.append("class")
            super().zero_grad(set_to_none)

    class WithOwn(tiny):
        def configure_optimizers(self):
            return Own(self.parameters(), lr=0.1)

    class WithPatched(tiny):
        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
            optimizer.zero_grad = lambda set_to_none=True: calls.append("instance")
            return optimizer

    bare(limit_train_batches=2).fit(WithOwn(), loader(3))
    bare(limit_train_batches=2).fit(WithPatched(), loader(3))
    assert calls == ["class", "class", "instance", "instance"]
