"""Drawing functions, one file for each figure of a paper: rows in, `matplotlib` figure out."""
