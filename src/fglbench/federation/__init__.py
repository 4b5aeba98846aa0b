"""The stacked engine: all clients of a round are trained in one pass over one block-diagonal graph."""
