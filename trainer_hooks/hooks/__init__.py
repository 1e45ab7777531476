"""The hooks: their catalogue, the relay that fires them, and the plugins that bring them."""
