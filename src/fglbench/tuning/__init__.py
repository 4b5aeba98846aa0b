"""Searches of settings by validation scores."""
