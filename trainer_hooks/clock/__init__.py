"""The progress of a training: counters, the clock made of them, times, and due conditions."""
