"""fglbench: one reproducible benchmark suite for federated graph learning."""

__version__ = "0.1.0"
