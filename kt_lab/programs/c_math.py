"""The functions of programs in C: inline, branch-free, so that a vector scope vectorises them.

The f32 ones are polynomials on a reduced range, fitted to the least relative error (Lawson's
weights), with as few divisions as can be: one takes as long as a dozen products. A test holds them
to these deviations from float64 over the whole range:
    exp   1.5e-7 relative, results below 2e-38 are 0; -inf gives 0, 89 and more gives inf
    log   1.5e-7 relative, subnormal numbers too; 0 gives -inf, a negative number NaN
    tanh  1.5e-7 relative
    erf   2e-7 relative
    1 + erf  3e-7 absolute: one polynomial where erf needs two
    gelu  3e-7 of the larger of 1 and the result: exact GELU whole, shorter still, for its terms of
        erf are small where x is; -inf gives 0, the limit, where the formula has NaN
NaN stays NaN. exp is computed beyond its range too, and its edges are chosen last: a clamp before
the polynomial is threaded into that choice by gcc 12.2, which more than doubled the comparisons.
They rely on the order of operations as written: a compiler must not re-associate
(-ffast-math breaks the rounding by a large constant in exp). The f64 ones are the C library's.
"""

from collections.abc import Iterable

from kt_lab.programs.ir import FUNCTIONS

# Of f32 only, and no functions of programs.
PLUS_ERF = "plus_erf"  # 1 + erf(x)
GELU = "gelu"  # x (1 + erf(x sqrt(1/2))) / 2
_BITS = "typedef union { float f; unsigned u; } f32_bits;\n"

# Each needs the ones before it in _NEEDS.
_FLOAT = {
    "exp": """static inline float f32_exp(float x)
{
    /* e^x = 2^n e^r with n = round(x / log 2) and |r| <= log(2) / 2 */
    f32_bits scale = { .f = x * 1.44269502f + 12582912.0f }; /* 1.5 * 2^23: n in the low bits */
    float n = scale.f - 12582912.0f;
    float r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
    float p = 0.00138146021f;
    p = p * r + 0.00836871545f;
    p = p * r + 0.0416683879f;
    p = p * r + 0.166665206f;
    p = p * r + 0.499999934f;
    p = p * (r * r) + r;
    scale.u = (scale.u + 126u) << 23; /* 2^(n-1), which is finite up to n = 128 */
    p = (2.0f * p + 2.0f) * scale.f;
    p = x > 89.0f ? __builtin_inff() : p;
    return x < -86.9f ? 0.0f : p;
}
""",
    "log": """static inline float f32_log(float x)
{
    /* x = 2^n (1 + f) with 1 + f between sqrt(1/2) and sqrt(2); subnormal x scaled by 2^23 */
    float y = x < 1.17549435e-38f ? x * 8388608.0f : x;
    float n = x < 1.17549435e-38f ? -23.0f : 0.0f;
    f32_bits part = { .f = y };
    unsigned k = part.u - 0x3f3504f3u;
    n += (float)((int)k >> 23);
    part.u = (k & 0x007fffffu) + 0x3f3504f3u;
    float f = part.f - 1.0f;
    float p = -0.0763450127f;
    p = p * f + 0.127615885f;
    p = p * f - 0.131601861f;
    p = p * f + 0.142017567f;
    p = p * f - 0.166233569f;
    p = p * f + 0.200012269f;
    p = p * f - 0.25000821f;
    p = p * f + 0.333333317f;
    p = (p * f - 0.5f) * (f * f) + n * 1.42860677e-6f;
    float finite = n * 0.693145752f + (f + p);
    float edge = x == 0.0f ? -__builtin_inff() : __builtin_nanf("");
    edge = x == __builtin_inff() ? x : edge;
    return x > 0.0f && x < __builtin_inff() ? finite : edge;
}
""",
    "tanh": """static inline float f32_tanh(float x)
{
    float s = x * x;
    float p = -0.00569737828f;
    p = p * s + 0.0206325414f;
    p = p * s - 0.0537377966f;
    p = p * s + 0.133314204f;
    p = p * s - 0.333332812f;
    float near = x + x * (s * p);
    float a = __builtin_fabsf(x);
    float far = __builtin_copysignf(1.0f - 2.0f / (f32_exp(2.0f * a) + 1.0f), x);
    return a < 0.625f ? near : far;
}
""",
    "erf": """static inline float f32_erf(float x)
{
    float s = x * x;
    float g = 6.52740928e-05f; /* erf(x) / x - 1 */
    g = g * s - 0.000756219903f;
    g = g * s + 0.00513127493f;
    g = g * s - 0.0268201716f;
    g = g * s + 0.112826854f;
    g = g * s - 0.376125365f;
    g = g * s + 0.128379151f;
    float near = x + x * g;
    float a = __builtin_fabsf(x);
    float b = a > 3.95f ? 3.95f : a; /* from here on erf is 1 in float */
    float v = 0.000168517494f; /* (1 - erf(b))^(1/8) */
    v = v * b - 0.00267426204f;
    v = v * b + 0.0138406251f;
    v = v * b - 0.0135127231f;
    v = v * b - 0.0586656444f;
    v = v * b - 0.146926433f;
    v = v * b + 1.00135112f;
    v *= v;
    v *= v;
    v *= v;
    float far = __builtin_copysignf(1.0f - v, x);
    return a >= 1.2f ? far : near; /* NaN is near */
}
""",
    PLUS_ERF: """static inline float f32_plus_erf(float x)
{
    float a = __builtin_fabsf(x);
    float b = a > 4.4f ? 4.4f : a; /* from here on erf is 1 in float, and v is 0 */
    float v = -1.99847523e-06f; /* (1 - erf(b))^(1/4) = 1 - b v */
    v = v * b + 2.61355508e-05f;
    v = v * b - 7.62114869e-05f;
    v = v * b - 0.000379112637f;
    v = v * b + 0.00224082964f;
    v = v * b + 0.000918488775f;
    v = v * b - 0.0184473339f;
    v = v * b - 0.0155195734f;
    v = v * b + 0.119374879f;
    v = v * b + 0.282094359f;
    v = 1.0f - b * v;
    v *= v;
    v *= v;
    return x < 0.0f ? v : 2.0f - v;
}
""",
    GELU: """static inline float f32_gelu(float x)
{
    float a = __builtin_fabsf(x);
    float b = a > 5.65f ? 5.65f : a; /* from here on GELU is x or 0 in float, and v is 0 */
    float v = 3.34111072e-06f; /* (erfc(b sqrt(1/2)) / 2)^(1/4) = (5.65 - b) v */
    v = v * b - 3.85875316e-05f;
    v = v * b + 8.33419294e-05f;
    v = v * b + 0.000525771322f;
    v = v * b - 0.000859579019f;
    v = v * b - 0.0094743152f;
    v = v * b - 0.0033459499f;
    v = v * b + 0.148831207f;
    v *= 5.65f - b;
    v *= v;
    v *= v;
    return (x < 0.0f ? 0.0f : x) - b * v;
}
""",
}
_NEEDS = {"tanh": ("exp",)}
_SHORT = {
    "rsqrt": "1.0{f} / __builtin_sqrt{f}(x)",
    "abs": "__builtin_fabs{f}(x)",
    "neg": "-x",
    "sqrt": "__builtin_sqrt{f}(x)",
    "exp": "__builtin_exp{f}(x)",
    "log": "__builtin_log{f}(x)",
    "tanh": "__builtin_tanh{f}(x)",
    "erf": "__builtin_erf{f}(x)",
    "max": "x > y ? x : y",
    "min": "x < y ? x : y",
    "select": "x > 0.0{f} ? y : z",
}


def function_name(fn: str, dtype: str) -> str:
    """Returns the C name of a function of programs at a dtype, f32 or f64."""
    return f"{dtype}_{fn}"


def definitions(used: Iterable[tuple[str, str]]) -> str:
    """Returns the C text that defines some functions, always in the same order.

    Args:
        used: Pairs of a function (ir.FUNCTIONS) and a dtype.
    """
    used = set(used)
    for fn, dtype in sorted(used):
        if dtype == "f32":
            used.update((need, "f32") for need in _NEEDS.get(fn, ()))
    polynomials = [fn for fn in _FLOAT if (fn, "f32") in used]
    parts = [_BITS] if {"exp", "log"} & set(polynomials) else []
    parts += [_FLOAT[fn] for fn in polynomials]
    short = ((fn, dtype) for fn, dtype in sorted(used) if dtype != "f32" or fn not in _FLOAT)
    parts += [_short(fn, dtype) for fn, dtype in short]
    return "\n".join(parts)


def _short(fn: str, dtype: str) -> str:
    kind, suffix = ("float", "f") if dtype == "f32" else ("double", "")
    arguments = ", ".join(f"{kind} {name}" for name in "xyz"[: FUNCTIONS[fn]])
    body = _SHORT[fn].replace("{f}", suffix)
    return (
        f"static inline {kind} {function_name(fn, dtype)}({arguments})\n"
        f"{{\n    return {body};\n}}\n"
    )
