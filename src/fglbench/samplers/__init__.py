"""Samplers: one file per sampler; `base` holds the contract."""
