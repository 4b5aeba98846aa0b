"""Code that several tasks, or tasks and methods, share."""
