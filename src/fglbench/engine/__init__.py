"""The stacked engine: local training of all clients at once, round by round."""
