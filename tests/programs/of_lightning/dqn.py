"""Reinforcement learning: a DQN that plays while it is trained; its data is an IterableDataset."""

from collections import OrderedDict, deque, namedtuple

import numpy as np
import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from torch import nn
from torch.optim import Adam
from torch.utils.data import DataLoader
from torch.utils.data.dataset import IterableDataset

Experience = namedtuple("Experience", ["state", "action", "reward", "done", "new_state"])

KILLED = "its replay buffer is in no checkpoint"


class Walk:
    """A walk on a line that ends at either side."""

    def reset(self):
        self.place = 0
        return np.array([self.place, 1.0], dtype=np.float32)

    def step(self, action):
        self.place += 1 if action else -1
        done = abs(self.place) >= 4
        return np.array([self.place, 1.0], dtype=np.float32), float(self.place == 4), done


class ReplayBuffer:
    def __init__(self, capacity):
        self.buffer = deque(maxlen=capacity)

    def __len__(self):
        return len(self.buffer)

    def append(self, experience):
        self.buffer.append(experience)

    def sample(self, batch_size):
        indices = np.random.choice(len(self.buffer), batch_size, replace=False)
        states, actions, rewards, dones, next_states = zip(*(self.buffer[i] for i in indices))
        return (
            np.array(states), np.array(actions), np.array(rewards, dtype=np.float32),
            np.array(dones, dtype=bool), np.array(next_states),
        )  # fmt: skip


class RLDataset(IterableDataset):
    def __init__(self, buffer, sample_size=20):
        self.buffer = buffer
        self.sample_size = sample_size

    def __iter__(self):
        states, actions, rewards, dones, new_states = self.buffer.sample(self.sample_size)
        for i in range(len(dones)):
            yield states[i], actions[i], rewards[i], dones[i], new_states[i]


class Agent:
    def __init__(self, env, replay_buffer):
        self.env = env
        self.replay_buffer = replay_buffer
        self.reset()

    def reset(self):
        self.state = self.env.reset()

    def get_action(self, net, epsilon, device):
        if np.random.random() < epsilon:
            return np.random.randint(2)
        q_values = net(torch.tensor(np.array([self.state])).to(device))
        return int(torch.max(q_values, dim=1)[1].item())

    @torch.no_grad()
    def play_step(self, net, epsilon=0.0, device="cpu"):
        action = self.get_action(net, epsilon, device)
        new_state, reward, done = self.env.step(action)
        self.replay_buffer.append(Experience(self.state, action, reward, done, new_state))
        self.state = new_state
        if done:
            self.reset()
        return reward, done


class DQNLightning(LightningModule):
    def __init__(
        self, batch_size=4, lr=1e-2, gamma=0.99, sync_rate=3, replay_size=50,
        warm_start_steps=50, eps_last_frame=20, eps_start=1.0, eps_end=0.01, episode_length=12,
    ):  # fmt: skip
        super().__init__()
        self.save_hyperparameters()
        self.env = Walk()
        self.net = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))
        self.target_net = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))
        self.buffer = ReplayBuffer(self.hparams.replay_size)
        self.agent = Agent(self.env, self.buffer)
        self.total_reward = 0
        self.episode_reward = 0
        self.populate(self.hparams.warm_start_steps)

    def populate(self, steps):
        for _ in range(steps):
            self.agent.play_step(self.net, epsilon=1.0)

    def forward(self, x):
        return self.net(x)

    def dqn_mse_loss(self, batch):
        states, actions, rewards, dones, next_states = batch
        values = self.net(states).gather(1, actions.long().unsqueeze(-1)).squeeze(-1)
        with torch.no_grad():
            next_values = self.target_net(next_states).max(1)[0]
            next_values[dones] = 0.0
        return nn.MSELoss()(values, next_values * self.hparams.gamma + rewards)

    def get_epsilon(self, start, end, frames):
        if self.global_step > frames:
            return end
        return start - (self.global_step / frames) * (start - end)

    def training_step(self, batch, nb_batch):
        device = self.get_device(batch)
        epsilon = self.get_epsilon(
            self.hparams.eps_start, self.hparams.eps_end, self.hparams.eps_last_frame
        )
        self.log("epsilon", epsilon)
        reward, done = self.agent.play_step(self.net, epsilon, device)
        self.episode_reward += reward
        loss = self.dqn_mse_loss(batch)
        if done:
            self.total_reward = self.episode_reward
            self.episode_reward = 0
        if self.global_step % self.hparams.sync_rate == 0:
            self.target_net.load_state_dict(self.net.state_dict())
        self.log_dict({"reward": float(reward), "train_loss": loss})
        self.log("total_reward", float(self.total_reward), prog_bar=True)
        self.log("steps", float(self.global_step), logger=False, prog_bar=True)
        return OrderedDict({"loss": loss})

    def configure_optimizers(self):
        return Adam(self.net.parameters(), lr=self.hparams.lr)

    def train_dataloader(self):
        dataset = RLDataset(self.buffer, self.hparams.episode_length)
        return DataLoader(dataset=dataset, batch_size=self.hparams.batch_size)

    def get_device(self, batch):
        return batch[0].device.index if self.on_gpu else "cpu"


def main():
    seed_everything(3)
    model = DQNLightning()
    trainer = Trainer(
        accelerator="auto", devices=1, max_epochs=6, val_check_interval=50, logger=False,
        enable_checkpointing=False,
    )  # fmt: skip
    trainer.fit(model)
    return {"total_reward": model.total_reward, "played": len(model.buffer)}
