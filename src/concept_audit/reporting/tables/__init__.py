"""Tables of the papers: ours beside theirs, one module a table."""
