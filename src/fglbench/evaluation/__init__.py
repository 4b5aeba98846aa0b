"""Scores of stored predictions and statistics over seeds, without torch; the same for every method."""
