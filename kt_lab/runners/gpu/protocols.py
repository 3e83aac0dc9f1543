"""Timing protocols by name: how a sample of latency is taken on a GPU."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kt_lab.errors import UnknownName

FLUSH_BYTES = 256 * 2**20  # what triton.testing.do_bench writes; five times the L2 of an H200
_HEAD_START_CYCLES = 400_000  # about 0.2 ms: the host queues the first launches meanwhile
_BATCH = 8  # launches of one graph: the gap between two graphs is spread over as many
_BARE_EVERY = 4  # graphs of flushes alone, to subtract, among those with launches


@dataclass(frozen=True, slots=True)
class Protocol:
    """A named way to time launches, stored with every sample.

    Attributes:
        name: Stable identifier.
        rules: The rules with their reasons, in sentences.
        time: The function that takes the samples: (launch, *, repetitions, flush, warm_up,
            prepare) -> microseconds, one per repetition.
    """

    name: str
    rules: str
    time: Callable[..., list[float]]


def _nothing() -> None:
    """Stands for no preparation."""


def time_launches(
    launch: Callable[[], Any],
    *,
    repetitions: int,
    flush: Any,
    warm_up: int = 2,
    prepare: Callable[[], Any] | None = None,
) -> list[float]:
    """Returns `repetitions` samples in microseconds by the protocol EVENTS_L2.

    Args:
        launch: Enqueues the kernel once on the current stream.
        repetitions: How many timed launches, >= 1.
        flush: A tensor of FLUSH_BYTES bytes to write before each launch.
        warm_up: Untimed launches first.
        prepare: Called before every launch and its flush, untimed.
    """
    import torch

    prepare = prepare or _nothing
    for _ in range(warm_up):
        prepare()
        launch()
    events = [_pair() for _ in range(repetitions)]
    torch.cuda._sleep(_HEAD_START_CYCLES)
    for before, after in events:
        prepare()
        flush.zero_()
        before.record()
        launch()
        after.record()
    torch.cuda.synchronize()
    return [before.elapsed_time(after) * 1e3 for before, after in events]


def time_graphs(
    launch: Callable[[], Any],
    *,
    repetitions: int,
    flush: Any,
    warm_up: int = 2,
    prepare: Callable[[], Any] | None = None,
) -> list[float]:
    """Returns `repetitions` samples in microseconds by the protocol GRAPH_L2.

    Args:
        launch: Enqueues the kernel once on the current stream.
        repetitions: How many graphs of launches are timed, >= 1.
        flush: A tensor of FLUSH_BYTES bytes to write before each launch.
        warm_up: Untimed launches first; one at least, as nothing may be loaded during capture.
        prepare: Called before every launch and its flush, and subtracted with the flush.
    """
    import torch

    prepare = prepare or _nothing
    for _ in range(max(1, warm_up)):
        prepare()
        launch()
    full = _graph(lambda: (prepare(), flush.zero_(), launch()))
    bare = _graph(lambda: (prepare(), flush.zero_()))
    bare.replay()
    full.replay()
    with_launches = [_pair() for _ in range(repetitions)]
    without = [_pair() for _ in range(-(-repetitions // _BARE_EVERY))]
    for i, (before, after) in enumerate(with_launches):
        if i % _BARE_EVERY == 0:
            first, last = without[i // _BARE_EVERY]
            first.record()
            bare.replay()
            last.record()
        before.record()
        full.replay()
        after.record()
    torch.cuda.synchronize()
    flushes = sorted(first.elapsed_time(last) for first, last in without)
    typical = flushes[len(flushes) // 2]
    return [(b.elapsed_time(a) - typical) * 1e3 / _BATCH for b, a in with_launches]


def captured(call: Callable[[], Any]) -> Callable[[], Any]:
    """Returns what replays a CUDA graph of one call, so that its host time is not timed.

    A call of compiled Python may keep the host busy for longer than a flush takes. The GPU then
    waits between the events, and the reading is the host's.

    Args:
        call: Enqueues work on the current stream, and has nothing left to compile or to load.
    """
    import torch

    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):  # buffers that the first calls make may not be made in a graph
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(aside)
    return _graph(call, times=1).replay


def _graph(step: Callable[[], Any], *, times: int = _BATCH):
    import torch

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            step()
    return graph


def _pair():
    import torch

    return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)


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
    time=time_launches,
)
GRAPH_L2 = Protocol(
    name="cuda-graph/l2-flush-256MiB/batch-8",
    rules=(
        "One sample is an eighth of the time of a CUDA graph that holds eight times (write 256 "
        "MiB, launch), less the median time of a graph of the eight writes alone, which is timed "
        "anew before every fourth sample. Two events around a single short launch read 2 to 4 us "
        "even if the kernel is empty, and tick coarsely; a graph leaves that out, so kernels "
        "under about 50 us should be timed so. The inputs come from device memory all the same. "
        "The flush's own noise enters every sample, which makes the protocol useless for a kernel "
        "that is short beside it only where the writes vary. Samples are kept raw, in order; the "
        "latency is their median."
    ),
    time=time_graphs,
)
PROTOCOLS = {"events": EVENTS_L2, "graph": GRAPH_L2}


def get_protocol(name: str) -> Protocol:
    """Returns a protocol by its short name ("events", "graph"), or raises UnknownName."""
    if name not in PROTOCOLS:
        raise UnknownName("timing protocol", name, PROTOCOLS)
    return PROTOCOLS[name]
