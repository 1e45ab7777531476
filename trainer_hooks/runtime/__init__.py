"""What a run stands on: device, precision, ranks, random numbers."""
