"""Datasets: the catalogue, one loader file per family, and the canonical graph they all become."""
