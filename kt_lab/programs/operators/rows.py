"""Operators along rows: row_sum, softmax, attention_scores."""

import numpy as np

from kt_lab.programs.operators.definition import Operator, workload

_ROW_SUM = """kernel row_sum
in x f32 [$rows,$cols]
tmp s f32 [$rows] heap
out z f32 [$rows]
---
$rows
| s[{0}] = 0
$rows
| $cols
| | s[{0}] += x[{0},{1}]
$rows
| z[{0}] = s[{0}]
"""

_SOFTMAX = """kernel softmax
in x f32 [$rows,$cols]
tmp m f32 [$rows] heap
tmp e f32 [$rows,$cols] heap
tmp s f32 [$rows] heap
out z f32 [$rows,$cols]
---
$rows
| m[{0}] = -inf
$rows
| $cols
| | m[{0}] max= x[{0},{1}]
$rows
| $cols
| | e[{0},{1}] = exp(x[{0},{1}] - m[{0}])
$rows
| s[{0}] = 0
$rows
| $cols
| | s[{0}] += e[{0},{1}]
$rows
| $cols
| | z[{0},{1}] = e[{0},{1}] / s[{0}]
"""

_ATTENTION_SCORES = """kernel attention_scores
in x f32 [$heads,$queries,$keys]
in mask f32 [$queries,$keys]
tmp a f32 [$heads,$queries,$keys] heap
tmp m f32 [$heads,$queries] heap
tmp e f32 [$heads,$queries,$keys] heap
tmp s f32 [$heads,$queries] heap
out z f32 [$heads,$queries,$keys]
---
$heads
| $queries
| | $keys
| | | a[{0},{1},{2}] = x[{0},{1},{2}] * 0.125 + mask[{1},{2}]
$heads
| $queries
| | m[{0},{1}] = -inf
$heads
| $queries
| | $keys
| | | m[{0},{1}] max= a[{0},{1},{2}]
$heads
| $queries
| | $keys
| | | e[{0},{1},{2}] = exp(a[{0},{1},{2}] - m[{0},{1}])
$heads
| $queries
| | s[{0},{1}] = 0
$heads
| $queries
| | $keys
| | | s[{0},{1}] += e[{0},{1},{2}]
$heads
| $queries
| | $keys
| | | z[{0},{1},{2}] = e[{0},{1},{2}] / s[{0},{1}]
"""


def _softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return {"z": e / e.sum(axis=-1, keepdims=True)}


def _causal(_, shape):
    """What is added to the scores: nothing up to a query's own position, -inf after it."""
    return np.triu(np.full(shape, -np.inf), 1)


OPERATORS = (
    Operator(
        "row_sum",
        "The sum of every row of a matrix.",
        _ROW_SUM,
        lambda x: {"z": x["x"].sum(axis=1)},
        (
            workload("row_sum", {"rows": 512, "cols": 1024}, "a bias gradient, hidden size 1024"),
            workload("row_sum", {"rows": 16384, "cols": 1024}, "the same, 16384 tokens"),
        ),
        {"rows": 4, "cols": 6},
        reduced=lambda extents: extents["cols"],
    ),
    Operator(
        "softmax",
        "Softmax over the rows of a matrix, each row's maximum subtracted.",
        _SOFTMAX,
        lambda x: _softmax(x["x"]),
        (
            workload("softmax", {"rows": 512, "cols": 1024}, "512 rows of 1024 classes"),
            workload("softmax", {"rows": 8192, "cols": 1024}, "8192 rows of 1024 classes"),
        ),
        {"rows": 4, "cols": 6},
        reduced=lambda extents: extents["cols"],
    ),
    Operator(
        "attention_scores",
        "Attention weights of all heads: scale (head size 64), causal mask, softmax over keys.",
        _ATTENTION_SCORES,
        lambda x: _softmax(x["x"] * 0.125 + x["mask"]),
        (
            workload(
                "attention_scores",
                {"heads": 12, "queries": 128, "keys": 128},
                "GPT-2 small, context 128",
            ),
            workload(
                "attention_scores",
                {"heads": 12, "queries": 1024, "keys": 1024},
                "GPT-2 small, context 1024",
            ),
        ),
        {"heads": 2, "queries": 3, "keys": 4},
        chain=True,
        reduced=lambda extents: extents["keys"],
        special={"mask": _causal},
    ),
)
