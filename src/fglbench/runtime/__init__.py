"""Devices, child processes, memory: what a process asks of its machine."""
