"""The commands of the command line: one module each, with `add` for its options and a function that runs it."""
