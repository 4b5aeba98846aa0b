"""Files that one stage writes and another stage reads."""
