"""Gradient of an embedding table: tiles of tokens, and whether equal tokens are added first."""

import numpy as np

from kt_lab.space import Choice, Constraint, Integer, ParameterSpace, PowerOfTwo
from kt_lab.workload import Kernel, Workload

_SHARED_BYTES = 227 * 1024  # per program on Hopper (CUDA programming guide, capability 9.0)
_SMS = 132  # multiprocessors of an H100 or H200 SXM; only scales what counts as a full wave


def _next_power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


def frequencies(vocabulary: int) -> np.ndarray:
    """Returns how likely each token is, the most frequent first, shape (vocabulary,), sum 1.

    Words follow 1 / (rank + 2.7), rank 1, 2, ..: Zipf's law as Mandelbrot corrected it (1953).
    The first merges of a byte-pair vocabulary are its most frequent ones, so rank is token id.
    """
    weights = 1.0 / (np.arange(1, vocabulary + 1) + 2.7)
    return weights / weights.sum()


def distinct_tokens(workload: Workload) -> float:
    """Returns how many different tokens are expected among T draws of a vocabulary of V."""
    v, t = workload.extents["V"], workload.extents["T"]
    return float(-np.expm1(t * np.log1p(-frequencies(v))).sum()) if v > 1 else 1.0


def space(workload: Workload) -> ParameterSpace:
    """Returns the search space of table[token[i]] += gradient[i], T gradients of D elements.

    A program adds BLOCK_T rows, BLOCK_D columns a step, TRIPS steps, num_stages in flight. With
    COMBINE "tile", rows of equal tokens within a tile are added first, by a product with the
    matrix of what equals what on tensor cores, and each token takes one atomic; with "none" each
    row takes its own. FIRST says whether neighbouring programs share tokens ("columns" vary
    first) or columns.
    """
    t, d = workload.extents["T"], workload.extents["D"]
    small = t * d <= 2**20  # less than a wave of work: small tiles
    widest = min(max(_next_power_of_two(d), 64), 1024)
    parameters = (
        PowerOfTwo("BLOCK_T", 1, max(min(_next_power_of_two(t), 128), 16), role="tile"),
        PowerOfTwo("BLOCK_D", 32 if small else 64, widest, role="tile"),
        PowerOfTwo("TRIPS", 1, 8 if d <= 1024 else 4),
        Choice("COMBINE", ("none", "tile")),
        Choice("FIRST", ("columns", "tokens")),
        PowerOfTwo("num_warps", 1, 8, role="warps"),
        Integer("num_stages", 1, 3, role="stages"),
    )
    default = {
        "BLOCK_T": 4,
        "BLOCK_D": min(widest, 256),
        "TRIPS": 1,
        "COMBINE": "none",
        "FIRST": "columns",
        "num_warps": 1 if widest < 256 else 4,
        "num_stages": 1,
    }
    programs = -(-t // 4) * -(-d // default["BLOCK_D"])
    return ParameterSpace(
        parameters,
        constraints=_constraints(
            min(_SMS // 2 if small else _SMS // 4, programs), least=2 if small else 4
        ),
        default=default,
        constants={"T": t, "D": d},
    )


def _constraints(fewest: int, *, least: int) -> tuple[Constraint, ...]:
    return (
        Constraint(
            "tile_has_work",
            f"BLOCK_T * BLOCK_D >= {least} * 32 * num_warps",
            f"a tile needs at least {least} gradients a thread",
        ),
        Constraint(
            "tile_fits",
            "BLOCK_T * BLOCK_D <= 64 * 32 * num_warps",
            "a tile may have at most 64 gradients a thread",
        ),
        Constraint(
            "combined_tile",
            "COMBINE == 'none' or BLOCK_T >= 16 and BLOCK_D <= 256 and num_warps >= 2",
            "tensor cores add up at least 16 rows of at most 256 columns",
        ),
        Constraint(
            "plain_tile",
            "COMBINE == 'tile' or BLOCK_T <= 32",
            "rows that are added one by one gain nothing from a tall tile",
        ),
        Constraint(
            "enough_programs",
            f"cdiv(T, BLOCK_T) * cdiv(cdiv(D, BLOCK_D), TRIPS) >= {fewest}",
            f"the gradients must be shared by at least {fewest} programs",
        ),
        Constraint(
            "trips_have_work",
            "TRIPS == 1 or TRIPS <= cdiv(D, BLOCK_D)",
            "a program cannot take more steps than a row has",
        ),
        Constraint(
            "stages_need_trips",
            "num_stages == 1 or num_stages <= TRIPS",
            "a program cannot have more steps in flight than it takes",
        ),
        Constraint(
            "stages_fit",
            f"num_stages * BLOCK_T * BLOCK_D * 2 <= {_SHARED_BYTES}",
            "the gradients in flight must fit the shared memory of a program",
        ),
    )


def bytes_moved(workload: Workload) -> int:
    """Returns bytes: bfloat16 gradients, int64 tokens, float32 rows of expected tokens, once."""
    t, d = workload.extents["T"], workload.extents["D"]
    return 2 * t * d + 8 * t + 4 * d * round(distinct_tokens(workload))


def flops(workload: Workload) -> int:
    """Returns operations: one addition per gradient."""
    return workload.extents["T"] * workload.extents["D"]


def _workload(v: int, t: int, d: int, source: str) -> Workload:
    extents = {"V": v, "T": t, "D": d}
    return Workload("embedding_backward", f"{v}x{t}x{d}", extents, "bfloat16", source)


KERNEL = Kernel(
    name="embedding_backward",
    description="table[token[i]] += gradient[i], bfloat16 gradients, zeroed float32 table",
    workloads=(
        _workload(50257, 16384, 768, "GPT-2; tokens and width of TritonBench embedding, 32 x 512"),
        _workload(128256, 8192, 2048, "Llama-3.2-1B, 8,192 tokens"),
        _workload(151936, 4096, 896, "Qwen2.5-0.5B (7 x 128 columns), 4,096 tokens"),
        _workload(30522, 512, 768, "BERT-base, one sequence of 512 tokens"),
    ),
    space=space,
    bytes_moved=bytes_moved,
    flops=flops,
    # The most frequent token takes some 450 standard normal gradients here, whose sum of about
    # 20 is rounded in float32 at each of them, in the order that the atomics happen to take: 450
    # errors of at most 2^-19 = 2e-6. One lost gradient changes an element by about 1.
    rtol=1e-4,
    atol=2e-3,
)
