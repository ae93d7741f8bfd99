"""Tables of CBX-Bench."""
