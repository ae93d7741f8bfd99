"""Datasets: from files or a renderer to arrays with names."""
