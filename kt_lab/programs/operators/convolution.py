"""Convolutions 3x3 of stride 1, the zero padding a copy of its own: dense and depthwise."""

import numpy as np

from kt_lab.programs.operators.definition import Operator, workload

_CONV2D = """kernel conv2d
in x f32 [$n,$c,$h,$w]
in f f32 [$k,$c,3,3]
tmp p f32 [$n,$c,$padded_h,$padded_w] heap
tmp y f32 [$n,$k,$h,$w] heap
out z f32 [$n,$k,$h,$w]
---
$n
| $c
| | $padded_h
| | | $padded_w
| | | | p[{0},{1},{2},{3}] = 0
$n
| $c
| | $h
| | | $w
| | | | p[{0},{1},{2}+1,{3}+1] = x[{0},{1},{2},{3}]
$n
| $k
| | $h
| | | $w
| | | | y[{0},{1},{2},{3}] = 0
$n
| $k
| | $h
| | | $w
| | | | $c
| | | | | 3
| | | | | | 3
| | | | | | | y[{0},{1},{2},{3}] += p[{0},{4},{2}+{5},{3}+{6}] * f[{1},{4},{5},{6}]
$n
| $k
| | $h
| | | $w
| | | | z[{0},{1},{2},{3}] = y[{0},{1},{2},{3}]
"""

_DEPTHWISE_CONV2D = """kernel depthwise_conv2d
in x f32 [$n,$c,$h,$w]
in f f32 [$c,3,3]
tmp p f32 [$n,$c,$padded_h,$padded_w] heap
tmp y f32 [$n,$c,$h,$w] heap
out z f32 [$n,$c,$h,$w]
---
$n
| $c
| | $padded_h
| | | $padded_w
| | | | p[{0},{1},{2},{3}] = 0
$n
| $c
| | $h
| | | $w
| | | | p[{0},{1},{2}+1,{3}+1] = x[{0},{1},{2},{3}]
$n
| $c
| | $h
| | | $w
| | | | y[{0},{1},{2},{3}] = 0
$n
| $c
| | $h
| | | $w
| | | | 3
| | | | | 3
| | | | | | y[{0},{1},{2},{3}] += p[{0},{1},{2}+{4},{3}+{5}] * f[{1},{4},{5}]
$n
| $c
| | $h
| | | $w
| | | | z[{0},{1},{2},{3}] = y[{0},{1},{2},{3}]
"""


def _taps(x):
    """Yields every tap (i, j) with the part of the padded image that it multiplies."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    for i in range(3):
        for j in range(3):
            yield i, j, padded[:, :, i : i + x.shape[2], j : j + x.shape[3]]


def _conv2d(x):
    f = x["f"]
    return {
        "z": sum(
            np.einsum("nchw,kc->nkhw", p, f[:, :, i, j], optimize=True)
            for i, j, p in _taps(x["x"])
        )
    }


def _depthwise(x):
    return {"z": sum(p * x["f"][:, i, j, None, None] for i, j, p in _taps(x["x"]))}


def _padded(extents):
    return {"padded_h": extents["h"] + 2, "padded_w": extents["w"] + 2}


def _dense(n, k, c, h, w):
    return {"n": n, "k": k, "c": c, "h": h, "w": w}


def _depth(n, c, h, w):
    return {"n": n, "c": c, "h": h, "w": w}


OPERATORS = (
    Operator(
        "conv2d",
        "Cross-correlation of images with dense 3x3 filters, stride 1, zero padding 1.",
        _CONV2D,
        _conv2d,
        (
            workload("conv2d", _dense(1, 64, 64, 56, 56), "ResNet-50 conv2_x, batch 1"),
            workload("conv2d", _dense(16, 64, 64, 56, 56), "ResNet-50 conv2_x, batch 16"),
        ),
        _dense(2, 3, 2, 4, 5),
        derived=_padded,
        reduced=lambda extents: 9 * extents["c"],
    ),
    Operator(
        "depthwise_conv2d",
        "Cross-correlation of each channel with its own 3x3 filter, stride 1, zero padding 1.",
        _DEPTHWISE_CONV2D,
        _depthwise,
        (
            workload("depthwise_conv2d", _depth(1, 144, 56, 56), "MobileNetV2, batch 1"),
            workload("depthwise_conv2d", _depth(16, 144, 56, 56), "MobileNetV2, batch 16"),
        ),
        _depth(2, 3, 4, 5),
        derived=_padded,
    ),
)
