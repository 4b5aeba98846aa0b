"""Search of settings by validation scores."""
