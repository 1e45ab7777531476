"""The processes of one run: their start, and a checkpoint of their parts."""
