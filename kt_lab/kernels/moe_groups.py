"""Groups of tokens, one per expert: where each ends, for a named skew. Data, not luck.

The ends depend on the extents only, and are computed without a random generator whose stream
might change, so that every recording of a workload is about the same groups.
"""

import hashlib
from functools import cache

from kt_lab.errors import UsageError
from kt_lab.workload import Workload

EQUAL, RANDOM, HEAVY, ONE_HOT, SPARSE, RAGGED = 1, 2, 3, 4, 5, 6  # values of the extent SKEW
SKEWS = {
    EQUAL: "groups as equal as multiples of 16 tokens allow",
    RANDOM: "ends drawn among the multiples of 16, as torchao's benchmark draws them",
    HEAVY: "a few groups have most tokens: shares fall as 1 / rank, in shuffled order",
    ONE_HOT: "one group, the middle one, has all tokens",
    SPARSE: "every other group is empty, the others are equal",
    RAGGED: "ends drawn among all numbers: no multiples of anything, groups may be empty",
}
_ALIGNMENT = 16  # tokens; FP8 products of groups need their ends so


def group_ends(workload: Workload) -> tuple[int, ...]:
    """Returns the end of each of GROUPS groups of TOKENS tokens, ascending; the last is TOKENS.

    Args:
        workload: With the extents TOKENS, GROUPS and SKEW, one of SKEWS.

    Raises:
        UsageError: SKEW is none of these.
    """
    tokens, groups, skew = (workload.extents[name] for name in ("TOKENS", "GROUPS", "SKEW"))
    if skew not in SKEWS:
        raise UsageError(f"SKEW must be one of {', '.join(map(str, SKEWS))}, got SKEW={skew}")
    return _ends(tokens, groups, skew)


def aligned(workload: Workload) -> bool:
    """Whether every group starts and ends at a multiple of 16 tokens."""
    return all(end % _ALIGNMENT == 0 for end in group_ends(workload))


@cache
def _ends(tokens: int, groups: int, skew: int) -> tuple[int, ...]:
    if skew == EQUAL:
        ends = _shared(tokens, [1] * groups)
    elif skew == RANDOM:
        inner = range(_ALIGNMENT, tokens, _ALIGNMENT)
        ends = [*sorted(_drawn(inner, groups - 1)), tokens]
    elif skew == HEAVY:
        ranks = _drawn(range(1, groups + 1), groups)
        ends = _shared(tokens, [5040 // min(rank, 5040) for rank in ranks])
    elif skew == ONE_HOT:
        ends = [0] * (groups // 2) + [tokens] * (groups - groups // 2)
    elif skew == SPARSE:
        ends = _shared(tokens, [1 - i % 2 for i in range(groups)])
    else:
        ends = [*sorted(_drawn(range(tokens + 1), groups - 1)), tokens]
    return tuple([0] * (groups - len(ends)) + list(ends))


def _shared(tokens: int, weights: list[int]) -> list[int]:
    """Returns ends of shares in proportion to weights, in multiples of 16 tokens but the last."""
    whole, upto, ends = sum(weights), 0, []
    for weight in weights:
        upto += weight
        ends.append(tokens * upto // whole // _ALIGNMENT * _ALIGNMENT if upto < whole else tokens)
    return ends


def _drawn(numbers: range, count: int) -> list[int]:
    """Returns `count` of the numbers (all, if there are fewer), in an order that looks random."""
    return sorted(numbers, key=lambda n: hashlib.sha256(f"group {n}".encode()).digest())[:count]
