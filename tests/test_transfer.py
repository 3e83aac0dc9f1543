"""Priors from recorded landscapes: whose they are, and never the target's own."""

import math
from dataclasses import replace

import pytest

from kt_lab import kernels
from kt_lab.errors import UnknownName, UsageError
from kt_lab.landscape import load_landscape
from kt_lab.transfer import (
    NEAREST,
    RULES,
    joined,
    known_prior,
    nearby_prior,
    nearest,
    prior_of,
    recorded_prior,
    run_prior,
)
from kt_lab.trial import Config
from kt_lab.workload import Workload


@pytest.fixture(scope="module")
def target():
    return load_landscape("rope/4x4096x32x8x128", gpu="h200")


def sources(prior):
    return {(r.workload, r.gpu) for r in prior.readings}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_takes_the_kernels_recordings_that_it_names(target, rule):
    found = sources(recorded_prior(target, rule=rule))
    assert found
    assert {workload.partition("/")[0] for workload, _ in found} == {"rope"}
    others = {gpu for _, gpu in found} != {"h200"}
    same = target.workload in {workload for workload, _ in found}
    assert (others, same) == {
        "shapes": (False, False),
        "kernel": (True, False),
        "twin": (True, True),
    }[rule]


def test_every_reading_of_a_source_is_told_the_fastest_first_and_failures_last(target):
    source = load_landscape("int4_gemm/1x2048x2048x2048", gpu="h200")
    readings = prior_of([source], target=target).readings
    assert len(readings) == source.space.size
    assert readings[0].config == source.best
    known = [r.latency_us for r in readings if r.latency_us is not None]
    assert known == sorted(known)
    failed = [r.config for r in readings[len(known) :]]
    assert failed
    assert all(source.status[source.index(config)] != "ok" for config in failed)


def test_the_targets_own_recording_is_refused(target):
    with pytest.raises(UsageError, match="must not hold the recording that is searched"):
        prior_of([target], target=target)


def test_a_copy_of_the_targets_recording_under_another_name_is_refused(target):
    copy = load_landscape("rope/4x4096x32x8x128", gpu="h200")
    copy.manifest = target.manifest | {"workload": "rope/elsewhere"}
    with pytest.raises(UsageError, match="rope/elsewhere"):
        prior_of([copy], target=target)


def test_an_unknown_rule_is_an_error(target):
    with pytest.raises(UnknownName, match="kernel, shapes, twin"):
        recorded_prior(target, rule="friends")


def test_an_earlier_run_tells_the_last_reading_of_each_config_the_fastest_first():
    a, b, c = (Config(X=x) for x in range(3))
    read = [(a, 3.0), (b, None), (c, 2.0), (a, 1.5)]
    prior = run_prior({("rope/other", "h200"): read}, workload="rope/mine", gpu="h200")
    assert [(r.config, r.latency_us) for r in prior.readings] == [(a, 1.5), (c, 2.0), (b, None)]
    assert sources(prior) == {("rope/other", "h200")}


def test_a_failure_that_a_table_tells_as_nan_is_a_failure():
    """Its config was tried as one that worked, and the readings around it were out of order."""
    a, b, c = (Config(X=x) for x in range(3))
    read = [(a, 3.0), (b, math.nan), (c, 2.0)]
    prior = run_prior({("rope/other", "h200"): read}, workload="rope/mine", gpu="h200")
    assert [(r.config, r.latency_us) for r in prior.readings] == [(c, 2.0), (a, 3.0), (b, None)]


def test_a_run_of_the_target_itself_is_refused():
    with pytest.raises(UsageError, match="rope/mine on h200; leave it out"):
        run_prior({("rope/mine", "h200"): [(Config(X=1), 1.0)]}, workload="rope/mine", gpu="h200")


def test_a_reading_tells_how_far_its_shape_is_from_the_searched_one():
    read = [(Config(X=1), 1.0)]
    names = ("softmax/4096x2560", "softmax/1024x640", "softmax/mine", "rope/4x4096x32x8x128")
    prior = run_prior(
        {(name, "h200"): read for name in names}, workload="softmax/4096x640", gpu="h200"
    )
    assert [r.octaves for r in prior.readings] == [2.0, 2.0, math.inf, math.inf]
    (own,) = run_prior({("mine/8x16", "h200"): read}, workload="mine/16x32", gpu="h200").readings
    assert own.octaves == 2.0  # of a kernel that is in no registry


def test_the_nearest_runs_are_those_whose_extents_differ_by_the_fewest_octaves():
    def shape(m, n):
        return Workload("fake", f"{m}x{n}", {"M": m, "N": n}, "float32")

    far = {shape(64, 64): 1, shape(8, 16): 2, shape(16, 32): 3, shape(4, 64): 4}
    assert list(nearest(shape(16, 16), far, count=2)) == [shape(8, 16), shape(16, 32)]
    longer = Workload("fake", "16x16x512", {"M": 16, "N": 16, "K": 512}, "float32")
    assert list(nearest(shape(16, 16), {longer: 1} | far, count=1)) == [shape(8, 16)]


def test_what_is_known_of_a_shape_that_nobody_recorded_is_every_recording_and_the_runs_nearest():
    workload = kernels.workload_of_shape("rope/4x4096x32x8x64")
    recorded = known_prior(workload, gpu="h200", nearby=False)
    assert sources(recorded) == {(w.key, "h200") for w in kernels.workloads("rope")}
    one = load_landscape("rope/4x4096x32x8x128", gpu="h200")
    assert one.manifest["sha256"][:12] in recorded.provenance  # so that a journal would notice
    both = known_prior(workload, gpu="h200")
    nearby = nearby_prior(workload, gpu="h200")
    assert both.readings == recorded.readings + nearby.readings
    assert both.provenance == f"{recorded.provenance}; {nearby.provenance}"
    assert 0 < len(sources(nearby)) <= NEAREST
    assert (workload.key, "h200") not in sources(both)


@pytest.mark.parametrize("spelt", ["NVIDIA H200", "H200"])
def test_a_gpu_and_a_shape_are_known_by_any_of_their_names(spelt):
    workload = kernels.workload_of_shape("softmax/1000x777")
    assert known_prior(workload.key, gpu=spelt) == known_prior(workload, gpu="h200")
    assert nearby_prior(workload.key, gpu=spelt) == nearby_prior(workload, gpu="h200")
    with pytest.raises(UsageError, match="count must be a whole number >= 0, got count=-1"):
        nearby_prior(workload, gpu=spelt, count=-1)


@pytest.mark.parametrize("about", [{"source": "a model"}, {"dtype": "float32"}])
def test_a_shape_of_ones_own_that_a_stored_run_was_at_begins_with_the_others(about):
    """It was refused, with the advice to leave out what the caller had not put in."""
    at = "softmax/2048x640"  # next to a recorded shape
    own = replace(kernels.workload_of_shape(at), **about)
    assert at in {key for key, _ in sources(nearby_prior("softmax/2048x320", gpu="h200"))}
    prior = nearby_prior(own, gpu="h200")
    assert len(sources(prior)) == NEAREST
    assert prior == nearby_prior(at, gpu="h200")


def test_the_targets_own_recording_is_never_among_what_is_known(target):
    workload = kernels.get_workload(target.workload)
    found = sources(known_prior(workload, gpu="h200"))
    assert (target.workload, "h200") not in found
    assert {gpu for _, gpu in found} == {"h200"}


def test_on_a_gpu_without_recordings_those_of_every_gpu_are_known_and_no_runs(target):
    workload = kernels.get_workload(target.workload)
    prior = known_prior(workload, gpu="rtx-4090")
    assert {gpu for _, gpu in sources(prior)} == {"h100", "h200"}
    assert target.workload not in {key for key, _ in sources(prior)}
    assert nearby_prior(workload, gpu="rtx-4090").readings == ()


def test_priors_without_readings_leave_no_trace_in_what_is_joined(target):
    some = recorded_prior(target, rule="twin")
    nothing = run_prior({}, workload=target.workload, gpu="h200")
    assert joined(nothing, some, nothing) == some
    assert joined() == nothing
