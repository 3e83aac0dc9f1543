"""One call from workloads to stored decisions, gated, guarded and bound; and their use."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from kt_lab import dispatching
from kt_lab.budget import Budget
from kt_lab.decisions import Winner, load_winner, save_winner, winners
from kt_lab.dispatching import gated_space, here, stored_dispatch, tune_guarded
from kt_lab.errors import StoreError, UnknownName, UsageError
from kt_lab.kernels import get_kernel, get_workload
from kt_lab.kernels.moe_spaces import PUBLISHED, published
from kt_lab.keys import Key
from kt_lab.recorded_gpu import ReplayedGpu, replayed
from kt_lab.runners.gpu.runner import GpuRunner
from kt_lab.space import ParameterSpace
from kt_lab.workload import Workload
from tests.moe_landscapes import latency_us, moe_landscape
from tests.runners import live_fakes as fakes
from tests.runners.tables import config
from tests.stats.exact_landscapes import exact

NOW = {
    "kernel_source": "recorded",
    "gpu": "h200",
    "arch": "sm_90",
    "triton": "3.6.0",
    "driver": "580.1",
}

WON = {"apparent_ratio": 0.9, "ratio": 0.9, "low": 0.89, "high": 0.91, "p_best": 0.99}
WON |= {"latency_us": 1.0, "default_us": 1.1, "protocol": "p", "searcher": "scout", "seed": 0}
WON |= {"trials": 1, "elapsed_s": 1.0}


def never(*_, **__):
    raise AssertionError("a runner was opened")


# -- gating ---------------------------------------------------------------------------------------


UNKNOWN = [(k, a) for k in PUBLISHED for a in ("", "sm_75", "sm_100", "gfx1100")]


@pytest.mark.parametrize(("kernel", "arch"), [*UNKNOWN, ("softmax", "")])
@pytest.mark.parametrize("how", [{}, {"k": 2}])
def test_on_an_unknown_architecture_nothing_is_measured_and_the_original_is_used(
    kernel, arch, how, tmp_path
):
    workloads = get_kernel(kernel).workloads
    found = tune_guarded(workloads, arch=arch, runner_for=never, directory=tmp_path, **how)
    assert (found.winners, dict(found.guarded)) == ((), {})
    assert list(winners(tmp_path)) == []
    for workload in workloads:
        default = get_kernel(kernel).space(workload).default
        assert found.dispatch.config(workload, default) == default
        if kernel in PUBLISHED:
            assert default == published(kernel, "original")[0]


def test_without_a_gpu_the_architecture_is_unknown(monkeypatch):
    monkeypatch.setattr(dispatching, "gpu_arch", lambda: None)
    found = tune_guarded([get_workload("softmax/4096x640")], runner_for=never)
    assert (found.arch, found.winners) == ("", ())


def test_a_known_architecture_has_its_published_space_and_always_the_incumbent():
    workload = get_workload("jagged_rowwise/16640x8192x16x2x1")
    original = published("jagged_rowwise", "original")[0]
    for arch in ("sm_90", "gfx942", "gfx90a"):
        space = gated_space(workload, arch=arch, name="pr3972")
        members = set(space.configs(space.enumerate()))
        assert members == {original, *published("jagged_rowwise", "pr3972")}
        assert space.default == original
    wide = gated_space(workload, arch="sm_90")
    assert wide.fingerprint == get_kernel("jagged_rowwise").space(workload).fingerprint
    assert gated_space(workload, arch="gfx942").size < wide.size
    softmax = get_workload("softmax/4096x640")
    assert gated_space(softmax, arch="sm_90").size > 500
    assert gated_space(softmax, arch="sm_90", name="original").size == 1
    with pytest.raises(UnknownName, match="pr3952"):
        gated_space(workload, arch="sm_90", name="pr9999")
    with pytest.raises(UnknownName, match="published"):
        gated_space(softmax, arch="sm_90", name="pr3952")


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_89", "sm_90", "sm_100", "gfx942"])
@pytest.mark.parametrize("key", ["softmax/4096x640", "matmul/4096x4096x4096"])
def test_a_kernel_without_published_spaces_is_tuned_in_all_of_its_space_anywhere(key, arch):
    workload, opened = get_workload(key), []

    def opens(workload, *, space):  # noqa: ARG001
        opened.append(space.fingerprint)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune_guarded([workload], arch=arch, runner_for=opens)
    assert opened == [get_kernel(workload.kernel).space(workload).fingerprint]


# -- tuning, storing, using -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded():
    names = ("16640x8192x1x1x1", "16640x8192x64x2x1", "32768x2048x32x1x1")
    works = [get_workload(f"jagged_rowwise/{n}") for n in names]
    return works, [moe_landscape(w, seed=i) for i, w in enumerate(works)]


@pytest.fixture(scope="module")
def decided(recorded, tmp_path_factory):
    works, made = recorded
    directory = tmp_path_factory.mktemp("winners")
    given = {"arch": "sm_90", "name": "pr3952", "directory": directory}
    return tune_guarded(works, runner_for=replayed(made), **given), directory


def test_the_truly_fastest_is_found_stored_and_dispatched(recorded, decided):
    works, _ = recorded
    found, directory = decided
    table = stored_dispatch("jagged_rowwise", directory=directory, **NOW)
    assert table == found.dispatch
    for workload, winner in zip(works, found.winners, strict=True):
        listed = published("jagged_rowwise", "pr3952")
        best = min(latency_us(c, workload) for c in listed)
        picked = table.config(workload, winner.default)
        assert latency_us(picked, workload) <= 1.02 * best
        assert winner.default == published("jagged_rowwise", "original")[0]
        assert winner.ratio < 0.99
        assert winner == load_winner(workload.key, directory=directory)
        assert (winner.kernel_source, winner.searcher, winner.trials) == ("recorded", "random", 16)
        assert found.guarded[workload.key].config == picked


def test_a_miss_uses_the_incumbent_and_tunes_nothing(decided):
    _, directory = decided
    table = stored_dispatch("jagged_rowwise", directory=directory, **NOW)
    other = get_workload("jagged_rowwise/16640x1408x16x4x1")
    default = published("jagged_rowwise", "original")[0]
    assert table.config(other, default) == default
    elsewhere = stored_dispatch("jagged_rowwise", directory=directory, **NOW | {"gpu": "h100"})
    assert elsewhere.configs == {}
    assert stored_dispatch("jagged_colwise", directory=directory, **NOW).configs == {}
    with pytest.raises(UnknownName, match="'trition'; did you mean 'triton'"):
        stored_dispatch("jagged_rowwise", directory=directory, **NOW, trition="3.6.0")


@pytest.mark.parametrize(
    ("bound", "value", "said"),
    [
        ("kernel_source", "edited", "the kernel's source is edited, and was recorded"),
        ("arch", "sm_100", "the architecture is sm_100, and was sm_90"),
        ("triton", "3.7.0", "Triton is 3.7.0, and was 3.6.0"),
        ("driver", "590.2", "the driver is 590.2, and was 580.1"),
    ],
)
def test_a_stale_decision_is_refused(decided, bound, value, said):
    with pytest.raises(StoreError, match=said) as caught:
        stored_dispatch("jagged_rowwise", directory=decided[1], **NOW | {bound: value})
    assert "kt-lab recheck jagged_rowwise/16640x8192x1x1x1" in str(caught.value)


def test_a_decision_copied_from_another_gpu_is_refused(decided, tmp_path):
    winner = decided[0].winners[0]
    path = save_winner(winner, tmp_path)
    path.parent.rename(path.parent.with_name("h100"))
    with pytest.raises(
        StoreError, match=r"must be of what its place tells, got .* \(h200\) in .*h100"
    ):
        stored_dispatch("jagged_rowwise", directory=tmp_path, **NOW | {"gpu": "h100"})


def test_an_unconfirmed_decision_is_refused_and_an_unconfirmed_default_is_none(decided, tmp_path):
    winner = replace(decided[0].winners[0], p_best=None, latency_us=None, ratio=None)
    save_winner(winner, tmp_path)
    with pytest.raises(StoreError, match=f"winner of {winner.key} on h200 from a run that ended"):
        stored_dispatch("jagged_rowwise", directory=tmp_path, **NOW)
    save_winner(replace(winner, config=winner.default), tmp_path)
    table = stored_dispatch("jagged_rowwise", directory=tmp_path, **NOW)
    assert table.config(get_workload(winner.key), winner.default) == winner.default


def test_decisions_are_bound_to_the_version_of_triton_that_live_runners_tell(monkeypatch, decided):
    """The package of a Triton that was built from source says 3.6.0+git1a2b3c4."""
    monkeypatch.setitem(sys.modules, "triton", SimpleNamespace(__version__="3.6.0"))
    now = here("jagged_rowwise")
    assert now["triton"] == "3.6.0"
    bound = NOW | {"triton": now["triton"]}
    assert stored_dispatch("jagged_rowwise", directory=decided[1], **bound).configs
    monkeypatch.setitem(sys.modules, "triton", None)
    assert here("jagged_rowwise")["triton"] is None


def test_the_source_that_decisions_are_bound_to_is_that_of_the_files():
    now = here("jagged_rowwise")
    assert len(now["kernel_source"]) == 16
    assert now["kernel_source"] != here("jagged_colwise")["kernel_source"]
    assert now.keys() == NOW.keys()


def lucky(*, gain):
    """The first visit flatters config 5 by 10 %; in the second it gains what it truly gains."""
    one, other = np.full(16, 100.0), np.full(16, 100.0)
    one[5], other[5] = 90.0, 100.0 / (1 + gain)
    return exact(one, other=other)


@pytest.mark.parametrize(("gain", "kept"), [(-0.05, config(0)), (0.05, config(5))])
def test_a_pick_must_win_in_every_process(gain, kept, tmp_path):
    made = lucky(gain=gain)
    workload = Workload("toy", "a", made.manifest["extents"], "float16")
    given = {"spaces": lambda *_, **__: made.space, "arch": "x", "directory": tmp_path}

    def second_visit_first(workload, *, space):  # noqa: ARG001
        opened.append(workload)
        return ReplayedGpu(made, process=len(opened))

    opened = []
    once = tune_guarded([workload], runner_for=second_visit_first, processes=1, **given)
    assert once.winners[0].config == config(5)
    opened = []
    twice = tune_guarded([workload], runner_for=second_visit_first, **given)
    assert len(opened) == 2
    assert twice.guarded["toy/a"].config == config(5)
    assert twice.winners[0].config == kept
    assert twice.dispatch.config(workload, config(0)) == kept


def boards():
    latency = np.full((3, 16), 10.0)
    latency[:2, 5], latency[2, 10] = 5.0, 5.0
    latency[:, 15] = 6.0
    made = [exact(row, "abc"[i], M=16 * (i + 1), N=8) for i, row in enumerate(latency)]
    return [Workload("toy", x.workload[4:], x.manifest["extents"], "float16") for x in made], made


def tuned(directory, **how):
    works, made = boards()
    spaces = {w: x.space for w, x in zip(works, made, strict=True)}
    given = {"spaces": lambda w, **_: spaces[w], "arch": "x", "budget": Budget(trials=32)}
    return tune_guarded(works, runner_for=replayed(made), directory=directory, **given | how)


def test_few_configs_for_many_shapes_are_guarded_one_by_one(tmp_path):
    one = tuned(tmp_path, k=1)
    assert set(one.dispatch.configs.values()) == {config(15)}
    assert [w.ratio for w in one.winners] == pytest.approx([0.6] * 3)
    each = tuned(tmp_path)
    assert list(each.dispatch.configs.values()) == [config(5), config(5), config(10)]


def test_few_configs_for_all_replace_what_was_decided_before_where_the_default_stays_too(tmp_path):
    """What is stored is what was returned, and tells of the search for all of them."""
    each = tuned(tmp_path)
    works, made = boards()
    narrow = {w: x.space for w, x in zip(works, made, strict=True)}
    narrow[works[2]] = made[2].space.only(made[2].space.rows([config(0), config(10)]))
    few = tuned(tmp_path, k=1, spaces=lambda w, **_: narrow[w])
    assert [w.config for w in few.winners] == [config(5), config(5), config(0)]
    stored = [load_winner(w.key, gpu="test", directory=tmp_path) for w in works]
    assert [w.config for w in stored] == [w.config for w in few.winners]
    assert stored[2].config != each.winners[2].config
    assert {(w.searcher, w.trials) for w in stored} == {("scout", 16)}
    assert all(w.elapsed_s > 0 for w in stored)


@pytest.mark.parametrize(
    ("wrong", "law"),
    [
        (
            {"k": 1, "objective": "geomen"},
            "one of geomean, minimax, got kernels toy, objective",
        ),
        ({"key": Key(("Q",))}, "got 'Q'"),
        ({"k": 1, "searcher": "scoot"}, "did you mean 'scout'"),
    ],
)
def test_what_cannot_end_in_a_table_is_refused_before_anything_is_measured(tmp_path, wrong, law):
    def opened(*_, **__):
        raise AssertionError("the GPU was opened")

    works, made = boards()
    spaces = {w: x.space for w, x in zip(works, made, strict=True)}
    given = {"spaces": lambda w, **_: spaces[w], "arch": "x", "budget": Budget(trials=32)}
    with pytest.raises(UsageError, match=law):
        tune_guarded(works, runner_for=opened, directory=tmp_path, **given | wrong)


@pytest.mark.parametrize("k", [None, 1])
def test_a_key_may_name_the_gpu_whether_each_shape_is_tuned_or_all_are(k, tmp_path):
    key = Key(("M", "gpu"))
    found = tuned(tmp_path, k=k, key=key)
    assert set(found.dispatch.configs) == {(16 * (i + 1), "test") for i in range(3)}
    if k:
        assert set(found.dispatch.configs.values()) == {config(15)}
    works = get_kernel("softmax").workloads
    nowhere = tune_guarded(works, arch="", key=key, k=k, runner_for=never, directory=tmp_path)
    assert nowhere.dispatch.configs == {}


def test_workloads_that_share_a_key_and_differ_are_left_to_the_default(tmp_path):
    shared = tuned(tmp_path, key=Key(("N",)))
    assert shared.dispatch.configs == {}
    assert len(shared.winners) == 3
    part = tuned(tmp_path, key=Key(("M <= 32",)))
    assert part.dispatch.configs == {(True,): config(5), (False,): config(10)}


def test_a_group_that_some_shape_cannot_follow_is_guarded_where_it_can(tmp_path):
    works, made = boards()
    spaces = {w: x.space for w, x in zip(works, made, strict=True)}
    last = works[-1]
    spaces[last] = spaces[last].only(spaces[last].rows([config(0), config(1)]))
    given = {"k": 1, "key": Key(("N",)), "spaces": lambda w, **_: spaces[w]}
    found = tuned(tmp_path, **given)
    assert [w.config for w in found.winners] == [config(5), config(5), config(0)]


@pytest.mark.parametrize("how", [{}, {"k": 1}])
@pytest.mark.parametrize("first", [0, 1])
def test_an_optional_extent_of_one_shape_is_in_no_key_whichever_comes_first(first, how, tmp_path):
    works, made = boards()
    spaces = {w.key: x.space for w, x in zip(works, made, strict=True)}
    works[first] = replace(works[first], extents={**works[first].extents, "ROUND": 1})
    given = {"spaces": lambda w, **_: spaces[w.key], "arch": "x", "budget": Budget(trials=32)}
    given |= {"runner_for": replayed(made), "directory": tmp_path}
    found = tune_guarded(works, **given, **how)
    assert found.dispatch.key == Key(("M", "N", "dtype"))
    assert len(found.dispatch.configs) == 3


def test_an_optional_extent_of_a_decision_breaks_no_lookup(tmp_path):
    kernel = get_kernel("moe_weights_reduction")
    plain = kernel.workloads[0]
    space = kernel.space(plain)
    other = space.configs(space.enumerate()[:9])[-1]
    assert other != space.default

    def decide(name, extents, *, config=other):
        about = {"kernel": kernel.name, "workload": name, "extents": extents, "dtype": "bfloat16"}
        about |= {"gpu": "h200", "kernel_source": NOW["kernel_source"], "config": config}
        facts = {name: NOW[name] for name in ("arch", "triton", "driver")}
        winner = Winner(**about, default=space.default, finalists=(), provenance=facts, **WON)
        save_winner(winner, tmp_path)

    decide("2x8192x5120x1", {"E": 2, "N": 8192, "K": 5120, "ROUND": 1})
    alone = stored_dispatch(kernel.name, directory=tmp_path, **NOW)
    assert alone.config(plain, space.default) == space.default
    decide(plain.name, dict(plain.extents))
    both = stored_dispatch(kernel.name, directory=tmp_path, **NOW)
    assert both.key.terms == ("E", "N", "K", "dtype")
    assert both.config(plain, space.default) == other
    decide("other", {**plain.extents, "ROUND": 1}, config=space.default)
    unclear = stored_dispatch(kernel.name, directory=tmp_path, **NOW)
    assert unclear.config(plain, space.default) == space.default


def on_fakes(workload, *, space):
    live = {"kernel": fakes.CALM, "services": fakes.SERVICES, "compile_workers": 2}
    return GpuRunner(workload, space=space, **live)


def guarded_on_fakes(space, rows, directory, runner_for=on_fakes):
    return tune_guarded(
        [fakes.WORKLOAD],
        arch="sm_90",
        runner_for=runner_for,
        spaces=lambda *_, **__: space.only(rows),
        directory=directory,
    )


def test_a_live_runner_is_tuned_by_the_same_call(monkeypatch, tmp_path):
    monkeypatch.setenv("KT_LAB_LOCKS", str(tmp_path))

    space = fakes.CALM_SPACE
    rows = space.rows([fakes.SPACE.default, {"FAULT": "none", "VARIANT": 3, "PROGRAMS": 2}])
    found = guarded_on_fakes(space, rows, tmp_path)
    (winner,) = found.winners
    assert winner.config == space.default, "the fastest that there is"
    assert winner.trials == 2
    assert winner.provenance["gpu"] == "NVIDIA Fake"


def test_a_default_that_is_wrong_is_replaced_by_the_best_that_is_right(monkeypatch, tmp_path):
    monkeypatch.setenv("KT_LAB_LOCKS", str(tmp_path))
    right = {"FAULT": "none", "VARIANT": 3, "PROGRAMS": 1}
    default = dict(right) | {"FAULT": "wrong_result", "VARIANT": 0}  # faster than any right one
    space = ParameterSpace(fakes.CALM_SPACE.parameters, default=default)
    rows = space.rows([default, right, dict(right) | {"VARIANT": 7}])
    opened = []

    def opens(workload, *, space):
        opened.append(workload)
        return on_fakes(workload, space=space)

    found = guarded_on_fakes(space, rows, tmp_path, opens)
    (winner,) = found.winners
    assert (winner.config, winner.default) == (right, default)
    assert len(opened) == 2, "in a second process too"


def test_workloads_of_several_kernels_are_refused():
    several = [get_workload("softmax/4096x640"), get_workload("rms_norm/16x8192")]
    for wrong in (several, []):
        with pytest.raises(UsageError, match="workloads of one kernel, got kernels"):
            tune_guarded(wrong, runner_for=never)
