"""Partition schemes: how nodes are given to clients, one file each."""
