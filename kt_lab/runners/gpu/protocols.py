"""Timing protocols by name: how a sample of latency is taken on a GPU."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from kt_lab.errors import KtLabError, UnknownName

FLUSH_BYTES = 256 * 2**20  # what triton.testing.do_bench writes; five times the L2 of an H200
_HEAD_START_CYCLES = 400_000  # about 0.2 ms: the host queues the first launches meanwhile
_BATCH = 8  # launches of one graph: the gap between two graphs is spread over as many
_BARE_EVERY = 4  # graphs of flushes alone, to subtract, among those with launches
_BARE = 3  # of them at least: something else may keep the GPU busy during one
_TURNS = 3  # until it was not busy with something else while all flushes alone were timed


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

    Raises:
        KtLabError: Flushes alone took as long as those with launches, whenever they were timed.
    """
    prepare = prepare or _nothing
    for _ in range(max(1, warm_up)):
        prepare()
        launch()
    full = _graph(lambda: (prepare(), flush.zero_(), launch()))
    bare = _graph(lambda: (prepare(), flush.zero_()))
    bare.replay()
    full.replay()
    for _ in range(_TURNS):
        samples = _less_flushes(full, bare, repetitions)
        if min(samples) > 0:
            return samples
    why = "a flush and a launch must take longer than a flush; stop what else keeps the GPU busy"
    apart = [round(us, 1) for us in samples]
    raise KtLabError(f"{why}, or time by events; got differences of {apart} us")


def _less_flushes(full: Any, bare: Any, repetitions: int) -> list[float]:
    """Returns microseconds per launch of one graph, less the lower median of the other's."""
    import torch

    bares = max(_BARE, -(-repetitions // _BARE_EVERY))
    parts = [-(-bares * i // repetitions) for i in range(repetitions + 1)]  # so many by then
    graphs = [g for a, b in pairwise(parts) for g in (*[bare] * (b - a), full)]
    events = [_pair() for _ in graphs]
    for graph, (before, after) in zip(graphs, events, strict=True):
        before.record()
        graph.replay()
        after.record()
    torch.cuda.synchronize()
    took_ms = {full: [], bare: []}
    for graph, (before, after) in zip(graphs, events, strict=True):
        took_ms[graph].append(before.elapsed_time(after))
    typical = statistics.median_low(took_ms[bare])  # what disturbs one makes it longer
    return [(ms - typical) * 1e3 / _BATCH for ms in took_ms[full]]


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
        "anew before every fourth sample, three times at least (the lower of two middle ones: "
        "what disturbs a write makes it longer). Two events around a single short launch read 2 "
        "to 4 us even if the kernel is empty, and tick coarsely; a graph leaves that out, so "
        "kernels under about 50 us should be timed so. The inputs come from device memory all the "
        "same. The flush's own noise enters every sample, which makes the protocol useless for a "
        "kernel that is short beside it only where the writes vary. Samples are kept raw, in "
        "order; the latency is their median."
    ),
    time=time_graphs,
)
PROTOCOLS = {"events": EVENTS_L2, "graph": GRAPH_L2}


def get_protocol(name: str) -> Protocol:
    """Returns a protocol by its short name ("events", "graph"), or raises UnknownName."""
    if name not in PROTOCOLS:
        raise UnknownName("timing protocol", name, PROTOCOLS)
    return PROTOCOLS[name]
