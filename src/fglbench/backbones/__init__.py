"""Backbones: the local models, each of which computes all clients at once on stacked parameters."""
