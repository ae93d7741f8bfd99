"""Cartesian grids of generating factors, and the chained restrictions that make concepts dependent.

In dSprites, 3dshapes and MPI3D an image is named by its factor indices, and the last factor varies
fastest: row = ((f0 * n1 + f1) * n2 + f2) ... The gamma variants of the Leakage paper keep part of
such a grid; every step of gamma adds one rule "for this value of one factor, the next factor lies
in that set".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "ChainedRule",
    "FactorGrid",
    "draw_rule_tables",
    "groups_of_equal",
    "keep_rows",
    "reindexed_factors",
]


@dataclass(frozen=True)
class FactorGrid:
    """Names, sizes and kinds of the factors of a full grid; rows are in C order.

    Attributes
    ----------
    names : one name per factor
    sizes : number of values per factor
    kinds : ``categorical`` or ``continuous`` per factor
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    kinds: tuple[str, ...]

    @property
    def n_rows(self) -> int:
        """Number of combinations."""
        return int(np.prod(self.sizes))

    def rows_of(self, factors: NDArray[np.integer]) -> NDArray[np.int64]:
        """Row numbers of factor indices `(n, K)`; an index outside its factor raises ValueError."""
        array = np.asarray(factors)
        if array.ndim != 2 or array.shape[1] != len(self.sizes):
            raise ValueError(
                f"factors must have shape (n, {len(self.sizes)}) in the order {self.names}, "
                f"got {array.shape}."
            )
        for name, size, column in zip(self.names, self.sizes, array.T, strict=True):
            if len(column) and (column.min() < 0 or column.max() >= size):
                raise ValueError(
                    f"factor {name!r} must hold indices 0..{size - 1}, got {column.min()} to "
                    f"{column.max()}."
                )
        return np.ravel_multi_index(tuple(array.T), self.sizes).astype(np.int64)

    def factors_of(self, rows: NDArray[np.integer]) -> NDArray[np.int64]:
        """Factor indices `(n, K)` of row numbers."""
        return np.stack(np.unravel_index(np.asarray(rows), self.sizes), axis=1).astype(np.int64)


@dataclass(frozen=True)
class ChainedRule:
    """For each value of one factor, a random set of values that another factor may take.

    Attributes
    ----------
    given, restricted : positions of the two factors
    cut : values of `given` below it use the lower pool, the others the upper one
    pool, kept : `kept` values are drawn from a pool of `pool` consecutive ones
    offset : first value of the upper pool (the lower one starts at 0)
    """

    given: int
    restricted: int
    cut: int
    pool: int
    kept: int
    offset: int


def draw_rule_tables(
    grid: FactorGrid, rules: Sequence[ChainedRule], *, seed: int
) -> list[NDArray[np.bool_]]:
    """Tables ``allowed[given value, restricted value]``, one per rule, drawn in a fixed order.

    All rules are drawn whatever gamma is, and for each value both a lower and an upper set, so
    that the sets of gamma 2 contain those of gamma 1. The generator is numpy's legacy RandomState,
    whose stream never changes between versions.
    """
    generator = np.random.RandomState(seed)
    tables = []
    for rule in rules:
        n_given = grid.sizes[rule.given]
        lower, upper = (
            [generator.permutation(rule.pool)[: rule.kept] for _ in range(n_given)]
            for _ in range(2)
        )
        table = np.zeros((n_given, grid.sizes[rule.restricted]), dtype=bool)
        for value in range(n_given):
            chosen = lower[value] if value < rule.cut else upper[value] + rule.offset
            table[value, chosen] = True
        tables.append(table)
    return tables


def keep_rows(
    grid: FactorGrid,
    kept_values: Sequence[Sequence[int]],
    rules: Sequence[ChainedRule] = (),
    tables: Sequence[NDArray[np.bool_]] = (),
) -> NDArray[np.int64]:
    """Rows of the grid whose factors take the kept values and obey the rules, ascending."""
    mesh = np.meshgrid(*[np.asarray(values) for values in kept_values], indexing="ij")
    factors = np.stack([axis.ravel() for axis in mesh], axis=1)
    keep = np.ones(len(factors), dtype=bool)
    for rule, table in zip(rules, tables, strict=True):
        keep &= table[factors[:, rule.given], factors[:, rule.restricted]]
    return grid.rows_of(factors[keep])


def reindexed_factors(
    factors: NDArray[Any],
) -> tuple[NDArray[np.int64], tuple[int, ...]]:
    """Factor indices renumbered 0, 1, ... over the values that occur, and how many there are."""
    columns = [np.unique(column, return_inverse=True) for column in factors.T]
    renumbered = np.stack([inverse for _, inverse in columns], axis=1).astype(np.int64)
    return renumbered, tuple(len(values) for values, _ in columns)


def groups_of_equal(keys: NDArray[np.integer]) -> Iterator[NDArray[np.int64]]:
    """Row numbers of each distinct key, in the order of the keys: one group is drawn at a time."""
    order = np.argsort(keys, kind="stable")
    if len(order):
        yield from np.split(order, np.flatnonzero(np.diff(keys[order])) + 1)
