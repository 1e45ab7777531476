"""The loops: training, evaluation, prediction, and the steps that they run on a batch."""
