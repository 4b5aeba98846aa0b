"""The stages of the workflow: one module per stage, each a function from folders to folders."""
