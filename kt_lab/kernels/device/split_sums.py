"""Sums that several programs share, in Triton: the last program to arrive adds up all parts."""

import triton
import triton.language as tl


@triton.jit
def join_parts(part, workspace, counters, offsets, inside, sum_id, part_id, parts, size):
    """Leaves one part of a sum in the workspace; the last program to arrive gets the whole.

    The order of addition is that of the parts, whoever comes last, so the sum is deterministic.
    A launch must find the counter of every sum at zero, and leaves it so.

    Args:
        part: This program's part, float32.
        workspace: Room for `parts` x `size` numbers, read and written in this launch only.
        counters: int32, one per sum.
        offsets: Where the part's elements lie among the `size` of all sums; of part's shape.
        inside: Which of them exist, of part's shape.
        sum_id: Which of the sums this is.
        part_id: Which of its parts, 0 <= part_id < parts.
        parts: Programs that share the sum.
        size: Elements of all sums together.

    Returns:
        The whole sum and True in the program that came last; else something and False.
    """
    tl.store(workspace + part_id.to(tl.int64) * size + offsets, part, mask=inside)
    tl.debug_barrier()  # every thread has stored before one of them announces it
    arrived = tl.atomic_add(counters + sum_id, 1, sem="acq_rel", scope="gpu")
    is_last = arrived == parts - 1
    whole = part
    if is_last:
        whole = tl.zeros_like(part)
        source = workspace + offsets
        for _ in range(parts):
            # Other multiprocessors wrote these: read them from L2, past the L1 cache.
            whole += tl.load(source, mask=inside, other=0.0, cache_modifier=".cg")
            source += size
        tl.store(counters + sum_id, 0)  # ready for the next launch
    return whole, is_last
