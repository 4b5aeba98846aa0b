"""Datasets: the catalogue, one loader file per family, and the canonical graph that every loader returns."""
