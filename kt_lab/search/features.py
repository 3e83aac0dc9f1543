"""What a model of latency sees of a config: its parameters, and the quantities made of them."""

import ast
from collections.abc import Callable, Iterator

import numpy as np

from kt_lab.constraints import Constraint
from kt_lab.errors import ConstraintError
from kt_lab.space import Parameter, ParameterSpace

_WIDE = 4  # an axis whose largest value is this multiple of its smallest is logarithmic
_ALIKE = 0.9999  # correlation from which a quantity tells nothing beside another one

_Columns = dict[str, np.ndarray]  # every parameter's values and every constant, by name


class Features:
    """Turns rows of value indices into numbers, about 0 to 1.

    Every parameter with more than one value is a group of columns: one column for an ordered
    parameter, in logarithms where it spans much; else one per alternative, scaled so that any two
    alternatives are one apart. Quantities that no single axis shows add a group each, as
    logarithms: by their roles, the product of the tiles and that product per warp, which is what
    a thread holds; and both sides of every comparison in the space's constraints that combine
    several parameters, for whoever wrote the law that `stages * BLOCK_M * BLOCK_K` fits, or that
    `cdiv(M, BLOCK_M)` covers the processors, named what the latency depends on.

    Attributes:
        groups: For each column the number of its group, shape (columns,).
    """

    def __init__(self, space: ParameterSpace, rows: np.ndarray):
        """Chooses the quantities that differ over the space, and not all alike.

        Args:
            space: Whose rows are turned.
            rows: Members that stand for it, shape (n, parameters): they set the scales.
        """
        self._space = space
        self._values = [np.asarray(p.values, dtype=_type(p)) for p in space.parameters]
        self._tables = [
            (i, _table(p)) for i, p in enumerate(space.parameters) if p.cardinality > 1
        ]
        single = [t[rows[:, i], 0] for i, t in self._tables if t.shape[1] == 1]
        known = [column for column in single if np.ptp(column)]
        self._scaled: list[tuple[Callable, float, float]] = []
        columns = self._columns(rows)
        for quantity in (*_role_sums(space), *_law_sides(space)):
            column = _evaluated(quantity, columns)
            if _differs(column, rows, known):
                known.append(column)
                self._scaled.append((quantity, column.min(), np.ptp(column)))
        widths = [t.shape[1] for _, t in self._tables] + [1] * len(self._scaled)
        self.groups = np.repeat(np.arange(len(widths)), widths)
        self._ordered = np.repeat(np.equal(widths, 1), widths)
        self._centre, self._deviation = 0.0, 1.0
        made = self.effects(self(rows))
        self._centre = made.mean(axis=0)
        self._deviation = np.where(np.ptp(made, axis=0) > 0, made.std(axis=0), 1.0)

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Returns floats of shape (n, columns) for value indices of shape (n, parameters)."""
        columns = self._columns(rows)
        found = [table[rows[:, i]] for i, table in self._tables]
        for quantity, low, span in self._scaled:
            found.append(((_evaluated(quantity, columns) - low) / span)[:, None])
        return np.hstack(found) if found else np.zeros((len(rows), 0))

    def effects(self, x: np.ndarray) -> np.ndarray:
        """Returns what a sum of one curve per column is made of, standardised.

        Args:
            x: Features, shape (n, columns).

        Returns:
            Every column, and the squares of those that stand alone for a parameter or a quantity,
            with mean 0 and deviation 1 over the rows that set the scales.
        """
        made = np.hstack([x, (x[:, self._ordered] - 0.5) ** 2])
        return (made - self._centre) / self._deviation

    def _columns(self, rows: np.ndarray) -> _Columns:
        named = zip(self._space.names, self._values, rows.T, strict=True)
        return self._space.constants | {name: values[at] for name, values, at in named}


def _type(parameter: Parameter) -> type:
    whole = all(isinstance(v, int) and not isinstance(v, bool) for v in parameter.values)
    return np.int64 if whole else object


def _table(parameter: Parameter) -> np.ndarray:
    """Returns what stands for each value of a parameter, shape (values, columns)."""
    if not parameter.ordered:
        return np.eye(parameter.cardinality) / np.sqrt(2.0)
    values = np.asarray(parameter.values, dtype=float)
    if values[0] >= 0 and values[-1] >= _WIDE * max(values[0], 1.0):
        values = np.log2(values if values[0] > 0 else 1.0 + values)
    return ((values - values[0]) / np.ptp(values))[:, None]


def _role_sums(space: ParameterSpace) -> Iterator[Callable[[_Columns], np.ndarray]]:
    """Yields the product of the tiles, and that product per warp."""
    sized = [p for p in space.parameters if p.ordered and p.values[0] > 0]
    tiles = [p.name for p in sized if p.role == "tile"]
    warps = [p.name for p in sized if p.role == "warps"][:1]
    for below in ([], warps) if tiles else ():
        yield (
            lambda columns, below=below: (
                sum(np.log2(columns[name].astype(float)) for name in tiles)
                - sum(np.log2(columns[name].astype(float)) for name in below)
            )
        )


def _law_sides(space: ParameterSpace) -> Iterator[Callable[[_Columns], np.ndarray]]:
    """Yields what is compared in the constraints, where it combines several parameters."""
    met = set()
    for constraint in space.constraints:
        nodes = ast.walk(ast.parse(constraint.canonical, mode="eval"))
        for comparison in (node for node in nodes if isinstance(node, ast.Compare)):
            for node in (comparison.left, *comparison.comparators):
                if isinstance(node, ast.BinOp | ast.Call) and ast.unparse(node) not in met:
                    met.add(ast.unparse(node))
                    side = Constraint("side", ast.unparse(node))
                    if len(side.names.intersection(space.names)) > 1:
                        yield lambda columns, side=side: np.log2(
                            1.0 + np.abs(side.value(columns, kind=float))
                        )


def _evaluated(quantity: Callable[[_Columns], np.ndarray], columns: _Columns) -> np.ndarray:
    """Returns a quantity, shape (n,); empty when it is no number."""
    try:
        return quantity(columns)
    except ConstraintError:
        return np.empty(0)


def _differs(column: np.ndarray, rows: np.ndarray, known: list[np.ndarray]) -> bool:
    """Whether a quantity is finite, not the same everywhere, and no known one once more."""
    if column.shape != (len(rows),) or not np.isfinite(column).all() or not np.ptp(column):
        return False
    return all(abs(np.corrcoef(column, other)[0, 1]) < _ALIKE for other in known)
