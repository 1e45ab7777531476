"""The command `demo`: a real training that is killed, resumed and compared."""
