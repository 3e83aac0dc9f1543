"""Whole vectors in C: the type, how memory is seen through it, functions of all lanes at once.

A compiler keeps a local array in registers only when it sees early on that every access is at a
fixed place. With `omp simd` it does not: gcc 12.2 vectorises after that, and then writes the tile
of a matrix product back to memory in every step. What is written as vectors needs no vectoriser.
The type is an extension that gcc and clang share. Predictive commoning is switched off: it keeps
single numbers from one step for the next (a convolution's neighbouring pixels) where only vectors
should be.
"""

from collections.abc import Iterable

from kt_lab.programs.ir import FUNCTIONS

# KT_V(x[i]) is x[i] .. x[i + KT_LANES - 1]; KT_ALL(x) is x in every lane, -0.0 included.
# KT_MAX(x, y) and KT_MIN(x, y) give y when either is NaN, as the instructions do that gcc 12.2
# does not find in a KT_IF. KT_SWAPPED(x, n) has in lane k what x has in lane k ^ n.
_TYPES = """#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-predictive-commoning")
#endif
#if defined(__AVX512F__)
#define KT_LANES 16
#elif defined(__AVX__)
#define KT_LANES 8
#else
#define KT_LANES 4
#endif
typedef float f32_lanes __attribute__((vector_size(4 * KT_LANES)));
typedef float f32_lanes_at __attribute__((vector_size(4 * KT_LANES), aligned(4), may_alias));
typedef int i32_lanes __attribute__((vector_size(4 * KT_LANES)));
#define KT_V(x) (*(f32_lanes_at *)&(x))
#define KT_ALL(x) ((x) - (f32_lanes){0})
#define KT_IF(c, x, y) ((f32_lanes)(((c) & (i32_lanes)(x)) | (~(c) & (i32_lanes)(y))))
"""
_EXTREMES = """#if !defined(__GNUC__) || defined(__clang__) || !defined(__SSE__)
#define KT_MAX(x, y) KT_IF((x) > (y), x, y)
#define KT_MIN(x, y) KT_IF((x) < (y), x, y)
#elif defined(__AVX512F__)
#define KT_MAX(x, y) __builtin_ia32_maxps512_mask(x, y, y, -1, 4)
#define KT_MIN(x, y) __builtin_ia32_minps512_mask(x, y, y, -1, 4)
#elif defined(__AVX__)
#define KT_MAX(x, y) __builtin_ia32_maxps256(x, y)
#define KT_MIN(x, y) __builtin_ia32_minps256(x, y)
#else
#define KT_MAX(x, y) __builtin_ia32_maxps(x, y)
#define KT_MIN(x, y) __builtin_ia32_minps(x, y)
#endif
"""
_SWAPPED = """#if !defined(__GNUC__) || defined(__clang__)
static inline f32_lanes KT_SWAPPED(f32_lanes x, int n)
{
    f32_lanes y;
    for (int k = 0; k < KT_LANES; k++)
        y[k] = x[k ^ n];
    return y;
}
#elif KT_LANES == 16
#define KT_ORDER (i32_lanes){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
#elif KT_LANES == 8
#define KT_ORDER (i32_lanes){0, 1, 2, 3, 4, 5, 6, 7}
#else
#define KT_ORDER (i32_lanes){0, 1, 2, 3}
#endif
#if defined(KT_ORDER)
#define KT_SWAPPED(x, n) __builtin_shuffle(x, KT_ORDER ^ (n))
#endif
"""
# As f32_exp is, but for its edges. AVX-512 has an instruction for p 2^n, which knows what is
# infinite and here gives 0 where x is small; NaN is not. Numbers below 2^-126 would take it many
# times as long. Elsewhere the edges are where it begins: 2^(n-1) is 0 at the least x, and what
# comes of the largest is infinite.
_EXP = """static inline f32_lanes f32_lanes_exp(f32_lanes x)
{
#if defined(__GNUC__) && !defined(__clang__) && defined(__AVX512F__)
#define KT_SCALED
#else
    x = KT_MAX(KT_ALL(-87.34f), x);
    x = KT_MIN(KT_ALL(89.0f), x);
#endif
    f32_lanes scale = x * 1.44269502f + 12582912.0f;
    f32_lanes n = scale - 12582912.0f;
    f32_lanes r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
    f32_lanes p = KT_ALL(0.00138146021f);
    p = p * r + 0.00836871545f;
    p = p * r + 0.0416683879f;
    p = p * r + 0.166665206f;
    p = p * r + 0.499999934f;
#if defined(KT_SCALED)
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    unsigned short kept = __builtin_ia32_cmpps512_mask(x, KT_ALL(-86.9f), 0x16, -1, 4);
    return __builtin_ia32_scalefps512_mask(p, n, KT_ALL(0.0f), kept, 4);
#else
    p = p * (r * r) + r;
    scale = (f32_lanes)(((i32_lanes)scale + 126) << 23);
    return (2.0f * p + 2.0f) * scale;
#endif
}
"""
_ACROSS = {"+=": "sum", "max=": "most", "min=": "least"}
# In C a compiler of our day has no ?: of vectors.
_BY_LANE = {
    "max": "KT_MAX(x, y)",
    "min": "KT_MIN(x, y)",
    "select": "KT_IF(x > 0.0f, y, z)",
    "abs": "(f32_lanes)((i32_lanes)x & 0x7fffffff)",
    "neg": "-x",
}
LANED = frozenset({"exp", *_BY_LANE})  # the functions of ir.FUNCTIONS that there are of vectors


def laned(fn: str) -> str:
    """Returns the C name of a function of LANED."""
    return f"f32_lanes_{fn}"


def across(kind: str) -> str:
    """Returns the C name of the function that reduces the lanes of a vector to one number."""
    return f"f32_lanes_{_ACROSS[kind]}"


def lane_definitions(used: Iterable[str]) -> str:
    """Returns the C text of vectors, always in the same order.

    Args:
        used: Functions of LANED, and updates (ir.UPDATES) that reduce the lanes.
    """
    used = sorted(set(used))
    across_lanes = [kind for kind in used if kind in _ACROSS]
    parts = [_TYPES, _EXTREMES, *([_SWAPPED] if across_lanes else [])]
    parts += [_EXP if name == "exp" else _by_lane(name) for name in used if name in LANED]
    return "\n".join([*parts, *map(_reduced, across_lanes)])


def _by_lane(fn: str) -> str:
    taken = ", ".join(f"f32_lanes {name}" for name in "xyz"[: FUNCTIONS[fn]])
    head = f"static inline f32_lanes {laned(fn)}({taken})"
    return f"{head}\n{{\n    return {_BY_LANE[fn]};\n}}\n"


def _reduced(kind: str) -> str:
    both = {"+=": "x + {}", "max=": "KT_MAX(x, {})", "min=": "KT_MIN(x, {})"}[kind]
    lines = [f"static inline float {across(kind)}(f32_lanes x)", "{"]
    for apart in (8, 4, 2, 1):
        test = f"if (KT_LANES > {apart})\n        " if apart > 2 else ""
        lines.append(f"    {test}x = {both.format(f'KT_SWAPPED(x, {apart})')};")
    return "\n".join([*lines, "    return x[0];", "}", ""])
