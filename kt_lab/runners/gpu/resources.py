"""What one thread and one program of a compiled kernel need, read from the binary or its text."""

import re
import struct
from collections.abc import Iterator

# Attributes of the section .nv.info, as `cuobjdump -elf` names them; each holds the index of a
# function's symbol and a value.
_REGCOUNT, _MIN_STACK_SIZE = 0x2F, 0x12
_SIZED = 0x04  # format of an attribute whose length follows; the others are 4 bytes in all
_WORD = 4  # bytes of a 32-bit register

# Keys of the code object's metadata (LLVM, "User Guide for AMDGPU Backend", code object V5).
# Vector registers count accumulators in from gfx90a on. Scalar registers spill into lanes of
# vector registers, not into memory.
_AMD = {
    "registers": "vgpr_count",
    "agprs": "agpr_count",
    "sgprs": "sgpr_count",
    "spills": "vgpr_spill_count",
    "sgpr_spills": "sgpr_spill_count",
    "stack_bytes": "private_segment_fixed_size",
}


def cuda_resources(cubin: bytes) -> dict[str, int]:
    """Returns registers, spills and stack_bytes of a thread; empty if the cubin does not say.

    Spills are counted as Triton counts them on a GPU: local memory in 32-bit words, which is the
    stack, because Triton's kernels have no arrays of their own. Takes less than 0.1 ms.

    Args:
        cubin: A 64-bit ELF file with one kernel, as ptxas writes it.
    """
    found: dict[int, int] = {}
    for attribute, value in _nv_info(cubin):
        found[attribute] = max(value, found.get(attribute, 0))  # of the kernel and its callees
    if _REGCOUNT not in found:
        return {}
    stack = found.get(_MIN_STACK_SIZE, 0)
    return {"registers": found[_REGCOUNT], "spills": stack // _WORD, "stack_bytes": stack}


def _nv_info(cubin: bytes) -> Iterator[tuple[int, int]]:
    """Yields (attribute, value) of the module's .nv.info section."""
    if cubin[:5] != b"\x7fELF\x02":
        return
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names_at = struct.unpack_from("<HHH", cubin, 0x3A)
    heads = [struct.unpack_from("<I20xQQ", cubin, table + i * size) for i in range(count)]
    names = heads[names_at][1]
    for name, start, length in heads:
        if not cubin.startswith(b".nv.info\0", names + name):
            continue
        at = start
        while at + 4 <= start + length:
            kind, attribute, short = struct.unpack_from("<BBH", cubin, at)
            at += 4
            if kind == _SIZED:
                if attribute in (_REGCOUNT, _MIN_STACK_SIZE):
                    yield attribute, struct.unpack_from("<I", cubin, at + 4)[0]
                at += short


def amd_resources(amdgcn: str) -> dict[str, int]:
    """Returns registers, spills and stack_bytes of a thread, and what is AMD's own.

    Args:
        amdgcn: Assembly of one kernel, with its metadata.
    """
    metadata = amdgcn.rpartition("\t.amdgpu_metadata")[2]
    counts = {key: int(n) for key, n in re.findall(r"^[ -]+\.(\w+): +(\d+)$", metadata, re.M)}
    return {name: counts[key] for name, key in _AMD.items() if key in counts}
