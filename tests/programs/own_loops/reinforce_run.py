"""A policy gradient on a pole, with a loop of its own, in the manner of PyTorch's REINFORCE example."""

import math
import random
import sys

import torch
from torch import nn, optim
from torch.distributions import Categorical

from trainer_hooks import Run
from trainer_hooks.callbacks import ModelCheckpoint

gamma, num_episodes, max_moves = 0.99, 60, 40


class CartPole:
    """The classic pole on a cart, with random pushes."""

    def __init__(self, seed):
        self.np_random = random.Random(seed)

    def reset(self):
        self.state = [self.np_random.uniform(-0.05, 0.05) for _ in range(4)]
        return torch.tensor(self.state)

    def step(self, action):
        x, x_dot, theta, theta_dot = self.state
        force = (10.0 if action == 1 else -10.0) + self.np_random.uniform(-1.0, 1.0)
        temp = (force + 0.05 * theta_dot**2 * math.sin(theta)) / 1.1
        thetaacc = (9.8 * math.sin(theta) - math.cos(theta) * temp) / (
            0.5 * (4.0 / 3.0 - 0.1 * math.cos(theta) ** 2 / 1.1)
        )
        xacc = temp - 0.05 * thetaacc * math.cos(theta) / 1.1
        self.state = [
            x + 0.02 * x_dot,
            x_dot + 0.02 * xacc,
            theta + 0.02 * theta_dot,
            theta_dot + 0.02 * thetaacc,
        ]
        done = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21
        return torch.tensor(self.state), 1.0, done

    def state_dict(self):
        return {"random": list(self.np_random.getstate()[1]), "running": running_reward}

    def load_state_dict(self, saved):
        global running_reward
        self.np_random.setstate((3, tuple(saved["random"]), None))
        running_reward = saved["running"]


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1, self.dropout, self.affine2 = (
            nn.Linear(4, 16),
            nn.Dropout(p=0.2),
            nn.Linear(16, 2),
        )

    def forward(self, x):
        return torch.softmax(self.affine2(torch.relu(self.dropout(self.affine1(x)))), dim=0)


torch.manual_seed(543)
env = CartPole(543)
policy = Policy()
optimizer = optim.Adam(policy.parameters(), lr=1e-2)
running_reward = 10.0

saver = ModelCheckpoint("saved", every_n_train_steps=4, save_top_k=-1)
run = Run(policy, optimizer, max_steps=num_episodes, callbacks=saver, ckpt_path="auto").open()
run.register("env", env)
for i_episode in run.steps():
    state, log_probs, rewards = env.reset(), [], []
    for _ in range(max_moves):
        m = Categorical(policy(state))
        action = m.sample()
        log_probs.append(m.log_prob(action))
        state, reward, done = env.step(action.item())
        rewards.append(reward)
        if done:
            break
    running_reward = 0.05 * sum(rewards) + 0.95 * running_reward
    R, returns = 0.0, []
    for r in rewards[::-1]:
        R = r + gamma * R
        returns.insert(0, R)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + 1e-6)
    loss = torch.stack([-p * r for p, r in zip(log_probs, returns, strict=True)]).sum()
    run.backward(loss)
    run.step()
    print(f"iter {i_episode + 1} reward {sum(rewards)} running {running_reward:.4f}", flush=True)

run.close()
torch.save({**policy.state_dict(), "reward": torch.tensor(running_reward)}, sys.argv[1])
