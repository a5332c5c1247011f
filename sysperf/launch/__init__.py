"""Starting a program in the right place: what the command is, where it runs best, and the one `exec` that does it."""
