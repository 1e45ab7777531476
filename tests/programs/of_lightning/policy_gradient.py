"""Policy gradients on an environment of gymnasium's interface, with batches from a generator."""

import numpy as np
import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.distributions import Categorical
from torch.utils.data import DataLoader, IterableDataset

KILLED = "its environment is in no checkpoint"


class LineEnv:
    """A cart on a line, which is to stay near the middle; as `gymnasium.make` would return it."""

    def __init__(self, max_episode_steps=20):
        self.max_episode_steps = max_episode_steps
        self.np_random = np.random.default_rng(0)

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.np_random = np.random.default_rng(seed)
        self.place, self.speed, self.steps = self.np_random.uniform(-0.5, 0.5), 0.0, 0
        return self._observation(), {}

    def step(self, action):
        self.steps += 1
        self.speed += 0.2 if action else -0.2
        self.place += self.speed + self.np_random.normal(0, 0.05)
        terminated = bool(abs(self.place) > 2)
        return self._observation(), 1.0, terminated, self.steps >= self.max_episode_steps, {}

    def _observation(self):
        return np.array([self.place, self.speed], dtype=np.float32)


class ExperienceSource(IterableDataset):
    def __init__(self, generate_batch):
        self.generate_batch = generate_batch

    def __iter__(self):
        return self.generate_batch()


class VanillaPolicyGradient(LightningModule):
    def __init__(self, gamma=0.95, lr=0.01, batch_size=16, steps_per_epoch=64, entropy_beta=0.01):
        super().__init__()
        self.save_hyperparameters()
        self.env = LineEnv()
        self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
        self.total_rewards = []
        self.state, _ = self.env.reset(seed=3)

    def forward(self, x):
        return self.net(x)

    def _discounted(self, rewards):
        returns, running = [], 0.0
        for reward in reversed(rewards):
            running = reward + self.hparams.gamma * running
            returns.insert(0, running)
        return np.array(returns, dtype=np.float32)

    def train_batch(self):
        states, actions, rewards = [], [], []
        for step in range(self.hparams.steps_per_epoch):
            with torch.no_grad():
                logits = self(torch.as_tensor(self.state)[None])
            action = int(Categorical(logits=logits).sample())
            following, reward, terminated, truncated, _ = self.env.step(action)
            states.append(self.state)
            actions.append(action)
            rewards.append(reward)
            self.state = following
            if terminated or truncated or step == self.hparams.steps_per_epoch - 1:
                self.total_rewards.append(sum(rewards))
                yield from zip(states, actions, self._discounted(rewards))
                states, actions, rewards = [], [], []
                self.state, _ = self.env.reset()

    def training_step(self, batch, batch_idx):
        states, actions, returns = batch
        policy = Categorical(logits=self(states))
        advantages = returns - returns.mean()
        loss = -(policy.log_prob(actions) * advantages).mean()
        entropy = policy.entropy().mean()
        self.log("episodes", float(len(self.total_rewards)), on_step=False, on_epoch=True)
        self.log("avg_reward", float(np.mean(self.total_rewards[-10:])), prog_bar=True)
        self.log_dict({"policy_loss": loss.detach(), "entropy": entropy.detach()})
        return loss - self.hparams.entropy_beta * entropy

    def configure_optimizers(self):
        return torch.optim.Adam(self.net.parameters(), lr=self.hparams.lr)

    def train_dataloader(self):
        return DataLoader(ExperienceSource(self.train_batch), batch_size=self.hparams.batch_size)


def main():
    seed_everything(11)
    model = VanillaPolicyGradient()
    trainer = Trainer(
        max_epochs=3, accelerator="cpu", logger=False, gradient_clip_val=0.5,
        callbacks=[ModelCheckpoint("policies", monitor="avg_reward", mode="max")],
        enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=1,
    )  # fmt: skip
    trainer.fit(model)
    return {"rewards": model.total_rewards, "steps": trainer.global_step}
