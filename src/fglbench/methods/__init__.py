"""Federated learning methods, one file each."""
