"""Devices, child processes, memory and terminal output of a process."""
