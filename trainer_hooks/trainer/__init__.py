"""The Trainer and the Tuner."""
