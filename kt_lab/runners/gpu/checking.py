"""Is a launch right? Poisoned outputs, guard bands around them, comparison within tolerance."""

from collections.abc import Mapping
from typing import Any

import torch

from kt_lab.workload import Subject

_BAND = 2**20  # bytes on either side of an output: a stray block of any tile lands in it
_BYTE = 0xA5
_AT_ONCE = 2**24  # elements compared at once: their wide copies must fit beside the rest


class Outputs:
    """The tensors that a kernel writes, each between two bands that it must not touch."""

    def __init__(self, inputs: dict[str, Any], output: Any):
        """Moves every output of `inputs` into a guarded buffer, in place.

        Args:
            inputs: Arguments by name; contiguous outputs are replaced by guarded ones.
            output: What the device module's `output` returned: a tensor or a tuple of them.
        """
        self.guarded: list[torch.Tensor] = []
        for tensor in as_tuple(output):
            names = [name for name, value in inputs.items() if value is tensor]
            if names and tensor.is_contiguous() and not _has_views(inputs, tensor):
                moved = self._guard(tensor)
                inputs.update(dict.fromkeys(names, moved))

    def _guard(self, tensor: torch.Tensor) -> torch.Tensor:
        count = tensor.numel() * tensor.element_size()
        padded = -(-count // 16) * 16
        buffer = torch.full((2 * _BAND + padded,), _BYTE, dtype=torch.uint8, device=tensor.device)
        self.guarded += [buffer[:_BAND].view(torch.int64), buffer[_BAND + count :]]
        moved = buffer[_BAND : _BAND + count].view(tensor.dtype).view(tensor.shape)
        return moved.copy_(tensor)

    def touched(self) -> str:
        """Returns which band was written to, in one line, or an empty string."""
        expected = int.from_bytes(bytes([_BYTE] * 8), "little", signed=True)
        for at, band in enumerate(self.guarded):
            value = expected if band.dtype == torch.int64 else _BYTE
            if bool((band != value).any()):
                side = "before" if at % 2 == 0 else "after"
                return f"the kernel wrote {side} its output"
        return ""


def poison(output: Any) -> None:
    """Fills outputs so that an element left unwritten is noticed: NaN, or 0x5A bytes."""
    for tensor in as_tuple(output):
        value = 0xFF if tensor.is_floating_point() else 0x5A
        if tensor.is_contiguous():
            tensor.view(-1).view(torch.uint8).fill_(value)
        else:
            tensor.fill_(float("nan") if tensor.is_floating_point() else 0x5A)


def difference(output: Any, reference: Any, *, law: Subject) -> str:
    """Returns why an output is wrong, in one line, or an empty string.

    Args:
        output: A tensor or a tuple of them.
        reference: Likewise, of the same shapes.
        law: Its `rtol` and `atol` are the tolerance: |out - ref| <= atol + rtol |ref|. A NaN is
            right only where the reference has one. Integers and flags have no rtol: they must be
            equal unless atol is 1 or more.
    """
    for ours, theirs in zip(as_tuple(output), as_tuple(reference), strict=True):
        step = max(1, _AT_ONCE // max(1, ours[:1].numel())) if ours.dim() else 1
        pairs = zip(ours.split(step), theirs.split(step), strict=True) if ours.dim() else ()
        for mine, wanted in pairs or ((ours, theirs),):
            if told := _apart(mine, wanted, law):
                return told
    return ""


def _apart(ours: torch.Tensor, theirs: torch.Tensor, law: Subject) -> str:
    real = ours.is_floating_point()
    wide = torch.float32 if real and ours.element_size() < 8 else torch.float64
    # No float tells all of 64 bits apart, so integers are subtracted as they are.
    kept = wide if real or theirs.is_floating_point() else torch.int64
    # Any byte reads as one of two flags, poison too.
    whole = ours.view(torch.uint8) if ours.dtype == torch.bool else ours
    ours, theirs = whole.to(kept), theirs.to(kept)
    excess = (ours - theirs).to(wide).abs_() - (law.atol + law.rtol * real * theirs.abs())
    bad = ~((excess <= 0) | (ours == theirs) | (ours.isnan() & theirs.isnan()))
    if not bool(bad.any()):
        return ""
    share = float(bad.float().mean())
    if bool((bad & ours.isnan()).any()):
        return f"an element was not written, or is NaN ({share:.2%} of them are wrong)"
    worst = float(excess[bad].max())
    return f"an element is off by {worst:.3g} more than the tolerance allows ({share:.2%} of them)"


def as_tuple(tensors: Any) -> tuple[torch.Tensor, ...]:
    """Returns one tensor, or several, as a tuple."""
    return tuple(tensors) if isinstance(tensors, tuple | list) else (tensors,)


def _has_views(inputs: Mapping[str, Any], tensor: torch.Tensor) -> bool:
    """Whether another argument looks at the same memory: moving one would part them."""
    mine = tensor.untyped_storage().data_ptr()
    return any(
        isinstance(value, torch.Tensor)
        and value is not tensor
        and value.untyped_storage().data_ptr() == mine
        for value in inputs.values()
    )
