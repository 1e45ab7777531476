"""The loops: training, evaluation, prediction."""
