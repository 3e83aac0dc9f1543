"""Matrix products: matmul, and a linear layer (transposed weights, bias) with its rectifier."""

import numpy as np

from kt_lab.programs.operators.definition import Operator, workload

_MATMUL = """kernel matmul
in a f32 [$m,$k]
in b f32 [$k,$n]
tmp c f32 [$m,$n] heap
out z f32 [$m,$n]
---
$m
| $n
| | c[{0},{1}] = 0
$m
| $n
| | $k
| | | c[{0},{1}] += a[{0},{2}] * b[{2},{1}]
$m
| $n
| | z[{0},{1}] = c[{0},{1}]
"""

_LINEAR_RELU = """kernel linear_relu
in x f32 [$m,$k]
in w f32 [$n,$k]
in b f32 [$n]
tmp c f32 [$m,$n] heap
tmp d f32 [$m,$n] heap
out z f32 [$m,$n]
---
$m
| $n
| | c[{0},{1}] = 0
$m
| $n
| | $k
| | | c[{0},{1}] += x[{0},{2}] * w[{1},{2}]
$m
| $n
| | d[{0},{1}] = c[{0},{1}] + b[{1}]
$m
| $n
| | z[{0},{1}] = max(d[{0},{1}], 0)
"""


def _extents(m, n, k):
    return {"m": m, "n": n, "k": k}


OPERATORS = (
    Operator(
        "matmul",
        "The product of two matrices, both row-major.",
        _MATMUL,
        lambda x: {"z": x["a"] @ x["b"]},
        (
            workload("matmul", _extents(512, 512, 512), "the square that peers time first"),
            workload("matmul", _extents(8, 4096, 4096), "Llama-2 7B projection, decoding batch 8"),
        ),
        _extents(4, 6, 8),
        reduced=lambda extents: extents["k"],
    ),
    Operator(
        "linear_relu",
        "A linear layer: the product with transposed weights, a bias and a rectifier.",
        _LINEAR_RELU,
        lambda x: {"z": np.maximum(x["x"] @ x["w"].T + x["b"], 0)},
        (
            workload("linear_relu", _extents(128, 512, 512), "an MLP of width 512, batch 128"),
            workload("linear_relu", _extents(8, 4096, 4096), "an MLP of width 4096, batch 8"),
        ),
        _extents(4, 6, 8),
        chain=True,
        reduced=lambda extents: extents["k"],
    ),
)
