"""How nodes are given to clients (one file per scheme) and which role each node plays there."""
