"""Commands of the command line, one module each: `add` adds the options, and `run` runs the command."""
