"""Tables of the leakage paper."""
