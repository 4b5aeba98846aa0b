"""Partition schemes, which assign nodes to clients; one file each."""
