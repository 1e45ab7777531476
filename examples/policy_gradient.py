"""Learn by policy gradient, in a loop of your own.

An agent balances a pole on a cart. It plays a number of moves, and REINFORCE makes the moves that
were followed by a longer balance more likely. The loop is an ordinary one; `Run` gives it bars,
loggers and checkpoints.

A checkpoint cannot see the variables of a loop, so what changes outside of the net is registered:
here the pole, whose state would be lost in a kill. The moves are drawn from torch's random numbers,
which are saved in any case.
"""

import argparse

import torch
from torch import nn
from torch.distributions import Categorical

from trainer_hooks import Run, seed_everything
from trainer_hooks.callbacks import ModelCheckpoint


class Pole:
    """A pole on a cart that is pushed to the left (0) or to the right (1)."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.state = torch.empty(4).uniform_(-0.05, 0.05)  # place, speed, angle, its speed
        self.moves = 0

    def push(self, action: int) -> bool:
        """Move on by a fiftieth of a second; return whether the pole fell."""
        place, speed, angle, turning = self.state.tolist()
        force = 10.0 if action == 1 else -10.0
        sine, cosine = torch.sin(self.state[2]).item(), torch.cos(self.state[2]).item()
        pull = (force + 0.05 * turning**2 * sine) / 1.1
        bend = (9.8 * sine - cosine * pull) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        push = pull - 0.05 * bend * cosine / 1.1
        change = torch.tensor([speed, push, turning, bend]) * 0.02
        self.state = self.state + change
        self.moves += 1
        return abs(place) > 2.4 or abs(angle) > 0.21 or self.moves >= 200

    def state_dict(self):
        return {"state": self.state, "moves": self.moves}

    def load_state_dict(self, state_dict):
        self.state, self.moves = state_dict["state"], state_dict["moves"]


def play(policy: nn.Module, pole: Pole, moves: int):
    """Return the log probability of each move, its discounted reward, and the lengths of games."""
    chances, rewards, lengths, start = [], torch.zeros(moves), [], 0
    for move in range(moves):
        choice = Categorical(logits=policy(pole.state))
        action = choice.sample()
        chances.append(choice.log_prob(action))
        fell = pole.push(int(action))
        if fell or move == moves - 1:
            reward = 0.0
            for past in range(move, start - 1, -1):
                reward = rewards[past] = 1.0 + 0.98 * reward
            start = move + 1
        if fell:
            lengths.append(float(pole.moves))
            pole.reset()
    return torch.stack(chances), rewards, torch.tensor(lengths or [float(pole.moves)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--folder", default="runs/policy_gradient")
    args = parser.parse_args()

    seed_everything(1)
    policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
    run = Run(
        policy,
        torch.optim.Adam(policy.parameters(), lr=0.01),
        max_steps=args.steps,
        default_root_dir=args.folder,
        callbacks=[ModelCheckpoint(every_n_train_steps=5)],
        log_every_n_steps=5,
        ckpt_path="auto",
    )
    pole = run.register("pole", Pole())
    with run:
        for _ in run.steps():
            chances, rewards, lengths = play(policy, pole, moves=200)
            advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
            run.backward(-(chances * advantages).mean())
            run.step()
            run.log("moves", lengths.mean(), prog_bar=True)
    print(f"the pole stood for {lengths.mean():.0f} moves")


if __name__ == "__main__":
    main()
