"""Scores of stored predictions and the statistics over seeds: numpy and scipy only, the same for every method."""
