"""Pieces that several backbones share."""
