"""Evaluations of one stored run: arrays of its bundles in, rows of results out.

One module for each file in `configs/evaluation`, so that an edited metric touches only the
evaluations that use it. They compute nothing themselves: they pick arrays, call
`concept_audit.metrics` and name the numbers.
"""
