"""The operators of the dojo as TVM's own library (topi) defines them; imported beside TVM only.

Exponential and error function are topi's fast ones, which vectorise: their exact ones call the C
library for every element. The check against the operator's reference decides whether they will do.
"""

from collections.abc import Callable

from tvm import te, tirx, topi

from kt_lab.programs.ir import Program

_EPS = 1e-5


def _bias_gelu(x, b):
    a = x + b
    return 0.5 * a * (1.0 + topi.fast_erf(a * 0.7071067811865476))


def _attention(x, mask):
    """Returns it by a softmax of two dimensions: of three MetaSchedule ends with an error."""
    heads, queries, keys = x.shape

    def score(row, k):
        head, query = tirx.floordiv(row, queries), tirx.floormod(row, queries)
        return x[head, query, k] * 0.125 + mask[query, k]

    found = topi.nn.fast_softmax(te.compute((heads * queries, keys), score), 1)
    return te.compute(x.shape, lambda h, q, k: found[h * queries + q, k])


def _layer_norm(x, g, b):
    """Returns it in two passes: candidates of topi's own, in one, do not compile in time."""
    apart = x - topi.sum(x, 1, keepdims=True) / x.shape[1].astype("float32")
    variance = topi.sum(apart * apart, 1, keepdims=True) / x.shape[1].astype("float32")
    return apart * topi.rsqrt(variance + _EPS) * g + b


def _channel(vector):
    """Returns a vector over channels as it applies to images of flat pixels, [n, c, pixels]."""
    return topi.expand_dims(vector, 1)


def _batch_norm(x, mean, var, g, b):
    return (x - _channel(mean)) * _channel(g * topi.rsqrt(var + _EPS)) + _channel(b)


def _training(x, g, b):
    count = x.shape[0] * x.shape[2]
    mean = topi.sum(x, (0, 2)) / count.astype("float32")
    apart = x - _channel(mean)
    rstd = topi.rsqrt(topi.sum(apart * apart, (0, 2)) / count.astype("float32") + _EPS)
    return mean, rstd, apart * _channel(rstd * g) + _channel(b)


def _depthwise(x, f):
    return topi.nn.depthwise_conv2d_nchw(x, topi.expand_dims(f, 1), 1, 1, 1)


DEFINITIONS: dict[str, Callable] = {
    "multiply": topi.multiply,
    "add_relu": lambda x, y: topi.nn.relu(x + y),
    "bias_gelu": _bias_gelu,
    "row_sum": lambda x: topi.sum(x, 1),
    "softmax": lambda x: topi.nn.fast_softmax(x, 1),
    "attention_scores": _attention,
    "layer_norm": _layer_norm,
    "rms_norm": lambda x, g: topi.nn.rms_norm(x, g, [1], _EPS),
    "batch_norm": _batch_norm,
    "batch_norm_training": _training,
    "matmul": topi.matmul,
    "linear_relu": lambda x, w, b: topi.nn.relu(topi.nn.dense(x, w, b)),
    "conv2d": lambda x, f: topi.nn.conv2d_nchw(x, f, 1, 1, 1),
    "depthwise_conv2d": _depthwise,
}


def function(name: str, program: Program):
    """Returns an operator as TVM's PrimFunc: inputs, then outputs, in the program's order.

    Args:
        name: Of the operator.
        program: Its start program, for names and extents.
    """
    given = [te.placeholder(b.shape, "float32", b.name) for b in program.of_kind("in")]
    made = DEFINITIONS[name](*given)
    outputs = made if isinstance(made, tuple) else (made,)
    return te.create_prim_func([*given, *outputs])
