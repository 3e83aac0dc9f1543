"""Names, numbers and indices of programs as C writes them."""

import math
import re

from kt_lab.programs.affine import Affine
from kt_lab.programs.ir import Buffer

TYPES = {"f32": "float", "f64": "double"}
# Stores past the caches, for whole lines; ordinary ones where a compiler has none.
STREAMING = """typedef float f32_line __attribute__((vector_size(64), aligned(64), may_alias));
#if defined(__clang__)
#define KT_STREAM(at, line) \\
    __builtin_nontemporal_store(*(const f32_line *)(line), (f32_line *)(at))
#elif defined(__AVX512F__)
#define KT_STREAM(at, line) __builtin_ia32_movntps512((at), *(const f32_line *)(line))
#else
#define KT_STREAM(at, line) (*(f32_line *)(at) = *(const f32_line *)(line))
#endif
#if defined(__SSE2__)
#define KT_STREAMED() __builtin_ia32_sfence()
#else
#define KT_STREAMED() ((void)0)
#endif
"""
# How many threads run a parallel scope.
THREADS = "#ifndef KT_THREADS\n#define KT_THREADS 1\n#endif\n"
# Names that C, or the code round a program, has a use for.
_TAKEN = re.compile(
    r"auto|break|case|char|const|continue|default|do|double|else|enum|extern|float|for|goto|if|"
    r"inline|int|long|register|restrict|return|short|signed|sizeof|static|struct|switch|typedef|"
    r"typeof|asm|union|unsigned|void|volatile|while|linux|unix|"
    r"i\d+|_.*|kt_.*|KT_.*|f32_.*|f64_.*|.*_"
)


def c_name(name: str) -> str:
    """Returns the C name of a buffer, different for different buffers."""
    return f"{name}_" if _TAKEN.fullmatch(name) else name


def c_parameter(buffer: Buffer, qualifier: str = "") -> str:
    """Returns the declaration of a buffer as a parameter; `qualifier` follows the star."""
    const = "const " if buffer.kind == "in" else ""
    return f"{const}{TYPES[buffer.dtype]} *{qualifier}{c_name(buffer.name)}"


def c_number(value: float, dtype: str) -> str:
    """Returns a constant of f32 or f64, infinities included."""
    if math.isinf(value):
        text = "__builtin_inff()" if dtype == "f32" else "__builtin_inf()"
        return f"-{text}" if value < 0 else text
    text = repr(value) + ("f" if dtype == "f32" else "")
    return f"({text})" if value < 0 else text


def c_index(form: Affine, *, wide: bool) -> str:
    """Returns an index; `wide` counts in long, for buffers of more elements than an int counts."""
    terms = []
    for depth in form.depths:
        factor = form.coefficient(depth)
        size = "" if abs(factor) == 1 else f"{abs(factor)} * "
        terms.append(f"{'-' if factor < 0 else '+'} {size}{'(long)' if wide else ''}i{depth}")
    if form.constant or not terms:
        terms.append(f"{'-' if form.constant < 0 else '+'} {abs(form.constant)}")
    return " ".join(terms).removeprefix("+ ")
