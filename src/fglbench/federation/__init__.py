"""Data structures of the stacked engine: block-diagonal client graphs, stacked parameters, operations on both."""
