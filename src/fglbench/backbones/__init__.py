"""Backbones: the local models, each computing all clients at once on stacked parameters."""
