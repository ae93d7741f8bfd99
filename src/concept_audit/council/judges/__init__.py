"""Judges: whatever answers a prompt about an explanation. One protocol, in `base`."""
