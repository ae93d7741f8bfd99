"""Drawn imitations of the image datasets: same factors, shapes and array names, always flagged."""
