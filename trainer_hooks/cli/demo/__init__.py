"""The command `demo`: a real training that is interrupted, resumed and compared."""
