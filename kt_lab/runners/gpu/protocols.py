"""Timing protocols by name: how a sample of latency is taken on a GPU."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

FLUSH_BYTES = 256 * 2**20  # what triton.testing.do_bench writes; five times the L2 of an H200
_HEAD_START_CYCLES = 400_000  # about 0.2 ms: the host queues the first launches meanwhile


@dataclass(frozen=True, slots=True)
class Protocol:
    """A named way to time launches, stored with every landscape.

    Attributes:
        name: Stable identifier.
        rules: The rules with their reasons, in sentences.
    """

    name: str
    rules: str


EVENTS_L2 = Protocol(
    name="cuda-events/l2-flush-256MiB/queued",
    rules=(
        "One sample is the time between two CUDA events around one launch. Before each launch a "
        "256 MiB buffer is written, so that inputs come from device memory as they do in a model "
        "whose other layers ran in between. All launches of a visit are queued behind a short "
        "spin kernel and the flush takes longer than queueing, so the host never starves the "
        "device between the events. Two untimed launches warm up. Samples are kept raw, in order; "
        "the latency is their median."
    ),
)


def time_launches(
    launch: Callable[[], Any], *, repetitions: int, flush: Any, warm_up: int = 2
) -> list[float]:
    """Returns `repetitions` samples in microseconds by the protocol EVENTS_L2.

    Args:
        launch: Enqueues the kernel once on the current stream.
        repetitions: How many timed launches, >= 1.
        flush: A tensor of FLUSH_BYTES bytes to write before each launch.
        warm_up: Untimed launches first.
    """
    import torch

    for _ in range(warm_up):
        launch()
    events = [
        (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
        for _ in range(repetitions)
    ]
    torch.cuda._sleep(_HEAD_START_CYCLES)
    for before, after in events:
        flush.zero_()
        before.record()
        launch()
        after.record()
    torch.cuda.synchronize()
    return [before.elapsed_time(after) * 1e3 for before, after in events]
