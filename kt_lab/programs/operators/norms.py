"""Normalisations of rows and of channels: layer, RMS, batch (inference and training)."""

import numpy as np

from kt_lab.programs.operators.definition import Operator, workload

_EPS = 1e-5

_LAYER_NORM = """kernel layer_norm
in x f32 [$rows,$cols]
in g f32 [$cols]
in b f32 [$cols]
tmp s f32 [$rows] heap
tmp m f32 [$rows] heap
tmp c f32 [$rows,$cols] heap
tmp v f32 [$rows] heap
tmp r f32 [$rows] heap
out z f32 [$rows,$cols]
---
$rows
| s[{0}] = 0
$rows
| $cols
| | s[{0}] += x[{0},{1}]
$rows
| m[{0}] = s[{0}] / $cols
$rows
| $cols
| | c[{0},{1}] = x[{0},{1}] - m[{0}]
$rows
| v[{0}] = 0
$rows
| $cols
| | v[{0}] += c[{0},{1}] * c[{0},{1}]
$rows
| r[{0}] = rsqrt(v[{0}] / $cols + 1e-05)
$rows
| $cols
| | z[{0},{1}] = c[{0},{1}] * r[{0}] * g[{1}] + b[{1}]
"""

_RMS_NORM = """kernel rms_norm
in x f32 [$rows,$cols]
in g f32 [$cols]
tmp s f32 [$rows] heap
tmp r f32 [$rows] heap
out z f32 [$rows,$cols]
---
$rows
| s[{0}] = 0
$rows
| $cols
| | s[{0}] += x[{0},{1}] * x[{0},{1}]
$rows
| r[{0}] = rsqrt(s[{0}] / $cols + 1e-05)
$rows
| $cols
| | z[{0},{1}] = x[{0},{1}] * r[{0}] * g[{1}]
"""

_BATCH_NORM = """kernel batch_norm
in x f32 [$n,$c,$pixels]
in mean f32 [$c]
in var f32 [$c]
in g f32 [$c]
in b f32 [$c]
tmp a f32 [$c] heap
out z f32 [$n,$c,$pixels]
---
$c
| a[{0}] = g[{0}] * rsqrt(var[{0}] + 1e-05)
$n
| $c
| | $pixels
| | | z[{0},{1},{2}] = (x[{0},{1},{2}] - mean[{1}]) * a[{1}] + b[{1}]
"""

_BATCH_NORM_TRAINING = """kernel batch_norm_training
in x f32 [$n,$c,$pixels]
in g f32 [$c]
in b f32 [$c]
tmp s f32 [$c] heap
tmp m f32 [$c] heap
tmp d f32 [$n,$c,$pixels] heap
tmp v f32 [$c] heap
tmp r f32 [$c] heap
out mean f32 [$c]
out rstd f32 [$c]
out z f32 [$n,$c,$pixels]
---
$c
| s[{0}] = 0
$c
| $n
| | $pixels
| | | s[{0}] += x[{1},{0},{2}]
$c
| m[{0}] = s[{0}] / $count
$c
| mean[{0}] = m[{0}]
$c
| $n
| | $pixels
| | | d[{1},{0},{2}] = x[{1},{0},{2}] - m[{0}]
$c
| v[{0}] = 0
$c
| $n
| | $pixels
| | | v[{0}] += d[{1},{0},{2}] * d[{1},{0},{2}]
$c
| r[{0}] = rsqrt(v[{0}] / $count + 1e-05)
$c
| rstd[{0}] = r[{0}]
$c
| $n
| | $pixels
| | | z[{1},{0},{2}] = d[{1},{0},{2}] * r[{0}] * g[{0}] + b[{0}]
"""


def _layer_norm(x):
    c = x["x"] - x["x"].mean(axis=1, keepdims=True)
    v = (c * c).mean(axis=1, keepdims=True)
    return {"z": c / np.sqrt(v + _EPS) * x["g"] + x["b"]}


def _rms_norm(x):
    mean = (x["x"] * x["x"]).mean(axis=1, keepdims=True)
    return {"z": x["x"] / np.sqrt(mean + _EPS) * x["g"]}


def _batch_norm(x):
    mean, a, b = (v[:, None] for v in (x["mean"], x["g"] / np.sqrt(x["var"] + _EPS), x["b"]))
    return {"z": (x["x"] - mean) * a + b}


def _batch_norm_training(x):
    mean, var = x["x"].mean(axis=(0, 2)), x["x"].var(axis=(0, 2))
    z = _batch_norm({**x, "mean": mean, "var": var})["z"]
    return {"mean": mean, "rstd": 1 / np.sqrt(var + _EPS), "z": z}


def _variance(rng, shape):
    return rng.uniform(0.5, 2.0, shape)


def _channels(n, c, h, w):
    return {"n": n, "c": c, "h": h, "w": w}


def _pixels(extents):
    pixels = extents["h"] * extents["w"]
    return {"pixels": pixels, "count": pixels * extents["n"]}


_STEM, _STAGE = _channels(16, 64, 112, 112), _channels(1, 64, 56, 56)

OPERATORS = (
    Operator(
        "layer_norm",
        "Layer normalisation of rows with gain and bias, two passes, eps 1e-5.",
        _LAYER_NORM,
        _layer_norm,
        (
            workload("layer_norm", {"rows": 512, "cols": 1024}, "BERT-large, 512 tokens"),
            workload("layer_norm", {"rows": 8192, "cols": 1024}, "BERT-large, 16x512 tokens"),
        ),
        {"rows": 4, "cols": 6},
        reduced=lambda extents: extents["cols"],
    ),
    Operator(
        "rms_norm",
        "Root-mean-square normalisation of rows with gain, eps 1e-5.",
        _RMS_NORM,
        _rms_norm,
        (
            workload("rms_norm", {"rows": 128, "cols": 4096}, "Llama-2 7B, 128 tokens"),
            workload("rms_norm", {"rows": 4096, "cols": 4096}, "Llama-2 7B, context 4096"),
        ),
        {"rows": 4, "cols": 6},
        chain=True,
        reduced=lambda extents: extents["cols"],
    ),
    Operator(
        "batch_norm",
        "Batch normalisation by given statistics (inference), eps 1e-5.",
        _BATCH_NORM,
        _batch_norm,
        (
            workload("batch_norm", _STAGE, "ResNet-50 conv2_x, batch 1"),
            workload("batch_norm", _STEM, "ResNet-50 conv1, batch 16"),
        ),
        _channels(2, 3, 2, 4),
        derived=_pixels,
        special={"var": _variance},
    ),
    Operator(
        "batch_norm_training",
        "Batch normalisation by the batch's own statistics, which are results too; eps 1e-5.",
        _BATCH_NORM_TRAINING,
        _batch_norm_training,
        (
            workload("batch_norm_training", _STAGE, "ResNet-50 conv2_x, batch 1"),
            workload("batch_norm_training", _STEM, "ResNet-50 conv1, batch 16"),
        ),
        _channels(2, 3, 2, 4),
        derived=_pixels,
        reduced=lambda extents: extents["n"] * extents["h"] * extents["w"],
    ),
)
