"""Whole vectors in C: the type, how memory is seen through it, functions of all lanes at once.

A compiler keeps a local array in registers only when it sees early on that every access is at a
fixed place. With `omp simd` it does not: gcc 12.2 vectorises after that, and then writes the tile
of a matrix product back to memory in every step. What is written as vectors needs no vectoriser.
The type is an extension that gcc and clang share. Predictive commoning is switched off: it keeps
single numbers from one step for the next (a convolution's neighbouring pixels) where only vectors
should be.
"""

from collections.abc import Iterable

from kt_lab.programs.c_math import function_name
from kt_lab.programs.ir import FUNCTIONS

# KT_V(x[i]) is x[i] .. x[i + KT_LANES - 1]; KT_ALL(x) is x in every lane, -0.0 included.
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
_ACROSS = {"+=": "sum", "max=": "most", "min=": "least"}
# In C a compiler of our day has no ?: of vectors; the others of ir.FUNCTIONS have no short form.
_BY_LANE = {
    "max": "KT_IF(x > y, x, y)",
    "min": "KT_IF(x < y, x, y)",
    "select": "KT_IF(x > 0.0f, y, z)",
    "abs": "(f32_lanes)((i32_lanes)x & 0x7fffffff)",
    "neg": "-x",
}
LANED = frozenset(_BY_LANE)  # the functions of ir.FUNCTIONS that there are of vectors


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
    functions = [_by_lane(name) for name in used if name in _BY_LANE]
    return "\n".join([_TYPES, *functions, *(_reduced(kind) for kind in used if kind in _ACROSS)])


def lane_needs(used: Iterable[str]) -> set[tuple[str, str]]:
    """Returns the functions (name, dtype) of single numbers that these are made of."""
    return {(kind.removesuffix("="), "f32") for kind in used if kind in ("max=", "min=")}


def _by_lane(fn: str) -> str:
    taken = ", ".join(f"f32_lanes {name}" for name in "xyz"[: FUNCTIONS[fn]])
    head = f"static inline f32_lanes {laned(fn)}({taken})"
    return f"{head}\n{{\n    return {_BY_LANE[fn]};\n}}\n"


def _reduced(kind: str) -> str:
    def both(one: str, other: str) -> str:
        if kind == "+=":
            return f"{one} + {other}"
        return f"{function_name(kind.removesuffix('='), 'f32')}({one}, {other})"

    # by halves, so that few of the steps wait for another one
    lines = [f"static inline float {across(kind)}(f32_lanes x)", "{"]
    lines += ["    float xs[KT_LANES];", "    KT_V(xs[0]) = x;"]
    lines += ["    #pragma GCC unroll 8", "    for (int k = 0; k + 8 < KT_LANES; k++)"]
    lines += [f"        xs[k] = {both('xs[k]', 'xs[k + 8]')};"]
    lines += ["    #pragma GCC unroll 4", "    for (int k = 0; k < 4 && KT_LANES > 4; k++)"]
    lines += [f"        xs[k] = {both('xs[k]', 'xs[k + 4]')};"]
    pairs = both("xs[0]", "xs[2]"), both("xs[1]", "xs[3]")
    if kind == "+=":
        pairs = tuple(f"({pair})" for pair in pairs)
    return "\n".join([*lines, f"    return {both(*pairs)};", "}", ""])
