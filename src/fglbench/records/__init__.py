"""The files that one stage writes and another reads."""
