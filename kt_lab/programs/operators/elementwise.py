"""Element-wise operators: multiply, add_relu, bias_gelu."""

import numpy as np

from kt_lab.programs.error_function import erf
from kt_lab.programs.operators.definition import Operator, workload

_MULTIPLY = """kernel multiply
in x f32 [$elements]
in y f32 [$elements]
out z f32 [$elements]
---
$elements
| z[{0}] = x[{0}] * y[{0}]
"""

_ADD_RELU = """kernel add_relu
in x f32 [$elements]
in y f32 [$elements]
tmp a f32 [$elements] heap
out z f32 [$elements]
---
$elements
| a[{0}] = x[{0}] + y[{0}]
$elements
| z[{0}] = max(a[{0}], 0)
"""

_BIAS_GELU = """kernel bias_gelu
in x f32 [$rows,$cols]
in b f32 [$cols]
tmp a f32 [$rows,$cols] heap
out z f32 [$rows,$cols]
---
$rows
| $cols
| | a[{0},{1}] = x[{0},{1}] + b[{1}]
$rows
| $cols
| | z[{0},{1}] = 0.5 * a[{0},{1}] * (1 + erf(a[{0},{1}] * 0.7071067811865476))
"""


def _bias_gelu(x):
    a = x["x"] + x["b"]
    return {"z": 0.5 * a * (1 + erf(a / np.sqrt(2)))}


_SQUARE = "a square matrix, element by element; the size is this house's choice"

OPERATORS = (
    Operator(
        "multiply",
        "The product of two arrays, element by element.",
        _MULTIPLY,
        lambda x: {"z": x["x"] * x["y"]},
        (
            workload("multiply", {"elements": 65_536}, _SQUARE),
            workload("multiply", {"elements": 16_777_216}, _SQUARE),
        ),
        {"elements": 12},
    ),
    Operator(
        "add_relu",
        "A residual addition and its rectifier.",
        _ADD_RELU,
        lambda x: {"z": np.maximum(x["x"] + x["y"], 0)},
        (
            workload("add_relu", {"elements": 100_352}, "ResNet-50 conv5_x, 2048x7x7, batch 1"),
            workload(
                "add_relu", {"elements": 12_845_056}, "ResNet-50 conv2_x, 256x56x56, batch 16"
            ),
        ),
        {"elements": 12},
        chain=True,
    ),
    Operator(
        "bias_gelu",
        "A bias along the last dimension and the exact (erf) GELU.",
        _BIAS_GELU,
        _bias_gelu,
        (
            workload("bias_gelu", {"rows": 128, "cols": 3072}, "BERT-base FFN, 128 tokens"),
            workload("bias_gelu", {"rows": 4096, "cols": 3072}, "BERT-base FFN, 32x128 tokens"),
        ),
        {"rows": 4, "cols": 6},
        chain=True,
    ),
)
