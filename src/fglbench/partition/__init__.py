"""Assignment of nodes to clients (one file per scheme), and the role of each node."""
