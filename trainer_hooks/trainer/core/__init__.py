"""Everything of a trainer that outlives a run, and the inputs of one run."""
