"""Files of the public hub and of the real Kernel Tuner become landscapes that replay."""

import gzip
import json
import math
from pathlib import Path

import numpy as np
import pytest

from kt_lab.budget import Budget
from kt_lab.errors import ConstraintError, LandscapeError, SpaceError, UsageError
from kt_lab.formats import conditions, read_cache, read_t4
from kt_lab.formats.axes import parameter
from kt_lab.landscape import Landscape
from kt_lab.parameters import Ordered, parameter_from
from kt_lab.runners.replay import ReplayRunner
from kt_lab.search import make_searcher
from kt_lab.space import Choice, Flag, Integer, PowerOfTwo
from kt_lab.trial import Config, Proposal
from kt_lab.tune import tune
from tests.formats.files import CONDITIONS, HUB, assert_same_readings, by_config, hub, t4, write

FIXTURES = Path(__file__).parent / "fixtures"


def _config(x, y, padding):
    return Config(block_size_x=x, block_size_y=y, use_padding=padding, filter_width=15)


def _measured(landscape, config):
    runner = ReplayRunner(landscape, seed=0, compile_lanes=1)
    runner.submit([Proposal(0, config)])
    return runner.next()[1], runner


@pytest.fixture(params=["A100.json", "A100.json.gz", "unclosed.json", "plain.gz"])
def path(request, tmp_path):
    """The hub's cache: plain, gzipped, and as an interrupted run leaves it."""
    data = hub()
    if request.param == "unclosed.json":
        data = json.dumps(data).removesuffix("}}") + ",\n"
    return write(tmp_path / request.param, data)


def test_a_hub_file_is_read_whatever_it_is_packed_in(path):
    found = read_cache(path)
    assert found.space.size == len(found.table) == len(hub()["cache"])
    assert (found.kernel, found.workload) == ("convolution_kernel", "convolution_kernel/4096x4096")
    assert found.gpu == "a100-pcie"
    assert found.manifest["imported"]["closed"] == (path.name != "unclosed.json")
    assert by_config(found)[_config(64, 2, 0)][0] == "launch_error"
    assert by_config(found)[_config(48, 2, 1)][0] == "compile_error"
    assert by_config(found)[_config(48, 1, 1)][0] == "invalid"


def test_latency_is_the_median_of_the_repeats_or_the_published_time(tmp_path):
    path = write(tmp_path / "A100.json", hub())
    record = hub()["cache"]["16,1,0,15"]
    median, mean = (read_cache(path, objective=o) for o in ("times", "time"))
    at = median.space.index(_config(16, 1, 0))
    np.testing.assert_allclose(median.latency_us[at], 1e3 * np.median(record["times"]), rtol=1e-6)
    np.testing.assert_allclose(mean.latency_us[at], 1e3 * record["time"], rtol=1e-6)
    assert mean.latency_us[at] > 1.2 * median.latency_us[at]  # the cold first launch
    assert median.manifest["protocol"]["name"] == "kernel-tuner-cache/times"
    assert mean.manifest["protocol"]["name"] == "kernel-tuner-cache/time"


@pytest.mark.parametrize(("read", "made"), [(read_cache, hub), (read_t4, t4)])
def test_what_an_observer_could_not_measure_is_passed_over(tmp_path, read, made):
    data = made()
    whole = read(write(tmp_path / "a.json", data))
    for at, value in enumerate((math.nan, -math.inf)):
        if made is hub:
            data["cache"]["16,1,0,15"] |= {"gr_voltage": value, "core_activity": [value]}
        else:
            data["results"][at]["measurements"].append({"name": "gr_voltage", "value": value})
    spoiled = read(write(tmp_path / "a.json", data))
    assert_same_readings(whole, spoiled)
    assert spoiled.save(tmp_path / "saved").exists()


def test_a_config_without_repeats_has_its_time(tmp_path):
    data = hub()
    del data["cache"]["16,1,0,15"]["times"]
    found = read_cache(write(tmp_path / "a.json", data))
    at = found.space.index(_config(16, 1, 0))
    assert found.latency_us[at] == pytest.approx(1e3 * data["cache"]["16,1,0,15"]["time"])


def test_the_space_has_the_recorded_members_and_the_laws_that_can_be_told(tmp_path):
    path = write(tmp_path / "a.json", hub())
    free, bound = read_cache(path), read_cache(path, restrictions=CONDITIONS)
    assert by_config(free).keys() == by_config(bound).keys()
    assert [type(p) for p in free.space.parameters] == [Integer, PowerOfTwo, Integer, Integer]
    assert bound.manifest["imported"]["restrictions"] == {
        "constraints": CONDITIONS[:2],
        "membership": CONDITIONS[2:],
    }
    with pytest.raises(SpaceError, match="restriction_1"):
        bound.space.check(_config(64, 4, 0))
    with pytest.raises(SpaceError, match="restricted to"):
        free.space.check(_config(64, 4, 0))
    assert free.space.default == _config(16, 1, 0)  # the first that works
    other = read_cache(path, default=dict(_config(32, 1, 0)))
    assert other.space.default == _config(32, 1, 0)


def test_a_default_that_was_not_recorded_is_refused_not_replaced(tmp_path):
    data = hub()
    del data["cache"]["32,1,0,15"]
    path = write(tmp_path / "k.json", data)
    with pytest.raises(LandscapeError, match="default must be a config that was recorded, got"):
        read_cache(path, default=dict(_config(32, 1, 0)))


def test_the_default_is_the_first_recorded_config_that_works(tmp_path):
    data = hub()
    del data["cache"]["16,1,0,15"]["times"]
    data["cache"]["16,1,0,15"]["time"] = "InvalidConfig"
    assert read_cache(write(tmp_path / "a.json", data)).space.default == _config(16, 1, 1)


def test_conditions_come_from_a_t1_file(tmp_path):
    listed = [{"Parameters": [], "Expression": text} for text in CONDITIONS]
    path = write(tmp_path / "T1.json", {"ConfigurationSpace": {"Conditions": listed}})
    assert conditions(path) == CONDITIONS


@pytest.mark.parametrize(
    ("restriction", "error", "law"),
    [
        ("__import__('os').system('touch owned')", ConstraintError, "got __import__"),
        ("block_sizex < 3", SpaceError, "block_sizex"),
        ("block_sizex / 2 < 3", ConstraintError, "block_sizex"),
        ("block_size_x <", ConstraintError, "one expression, .*leave it out"),
        ("lambda < 3", ConstraintError, "one expression, .*leave it out"),
        ("block_size_x > 32", SpaceError, "restriction_1"),
        (lambda p: p["block_size_x"] < 64, LandscapeError, "restrictions must be a list of texts"),
        ("block_size_x < 64", LandscapeError, "every recorded config must obey"),
    ],
)
def test_a_restriction_that_cannot_hold_is_refused(tmp_path, monkeypatch, restriction, error, law):
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "a.json", hub())
    with pytest.raises(error, match=law):
        read_cache(path, restrictions=[restriction])
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_a_restriction_that_is_not_in_a_list_is_told(tmp_path):
    with pytest.raises(LandscapeError, match="must be a list of texts, got 'block_size_x > 1'"):
        read_cache(write(tmp_path / "a.json", hub()), restrictions="block_size_x > 1")


def test_failures_are_charged_in_replay(tmp_path):
    found = read_cache(write(tmp_path / "a.json", hub()))
    compiled, runner = _measured(found, _config(48, 2, 1))
    assert (compiled.status, compiled.error) == ("compile_error", "CompilationFailedConfig")
    assert compiled.compile_s == pytest.approx(0.548)
    assert runner.now == pytest.approx(0.548 + 0.002)  # and the tuner's own work
    launched, runner = _measured(found, _config(64, 2, 0))
    assert launched.status == "launch_error"
    assert runner.now == pytest.approx(0.564 + 0.042)


def test_a_working_config_costs_what_was_recorded(tmp_path):
    found = read_cache(write(tmp_path / "a.json", hub()))
    runner = ReplayRunner(found, seed=0, compile_lanes=1)
    runner.submit([Proposal(0, _config(16, 1, 0), repetitions=4)])
    measured = runner.next()[1]
    median = measured.latency_us * 1e-6
    times = sum(hub()["cache"]["16,1,0,15"]["times"]) * 1e-3
    assert measured.compile_s == pytest.approx(0.516)
    assert measured.measure_s == pytest.approx(0.042 - times + 4 * median)


def test_searches_replay_and_survive_the_disk(tmp_path):
    found = read_cache(write(tmp_path / "a.json", hub()))
    found.save(tmp_path / "saved")
    loaded = Landscape.load(tmp_path / "saved")
    assert_same_readings(found, loaded)
    budget = Budget(trials=loaded.space.size)
    for name in ("random", "lfbo_pattern"):
        histories = [
            tune(
                make_searcher(name, landscape.space, seed=1, budget=budget),
                ReplayRunner(landscape, seed=1),
                budget=budget,
            )
            for landscape in (found, loaded)
        ]
        assert [t.config for t in histories[0]] == [t.config for t in histories[1]]
    assert histories[0].count("ok") > 0


def test_t4_of_the_hub_says_the_same_as_its_cache(tmp_path):
    folder = tmp_path / "convolution_milo"
    folder.mkdir()
    cache = read_cache(write(tmp_path / "A100.json", hub()))
    found = read_t4(write(folder / "A100_T4.json.gz", t4()))
    assert_same_readings(cache, found)
    assert (found.kernel, found.gpu) == ("convolution_milo", "a100")
    for name in ("compile_s", "timing_overhead_s", "failure_s"):
        np.testing.assert_array_equal(cache.column(name), found.column(name))
    published = read_t4(folder / "A100_T4.json.gz", objective="time")
    assert published.best == read_cache(tmp_path / "A100.json", objective="time").best


@pytest.mark.parametrize(
    ("unit", "scale"),
    [("miliseconds", 1), ("milliseconds", 1), ("microseconds", 1e3), ("s", 1e-3)],
)
def test_t4_times_are_in_the_unit_that_the_file_names(tmp_path, unit, scale):
    data = t4()
    before = read_t4(write(tmp_path / "before.json", data))
    for result in data["results"]:
        times = result["times"]
        result["times"] = {k: v * scale for k, v in times.items() if k != "runtimes"}
        result["times"]["runtimes"] = [t * scale for t in times["runtimes"]]
        if result["invalidity"] == "correct":
            result["measurements"][0]["value"] *= scale
    data["metadata"]["timeunit"] = unit
    after = read_t4(write(tmp_path / "after.json", data))
    np.testing.assert_allclose(before.latency_us, after.latency_us, rtol=1e-6)
    np.testing.assert_allclose(before.column("compile_s"), after.column("compile_s"), rtol=1e-6)


@pytest.mark.parametrize(("unit", "scale"), [("us", 1e3), ("s", 1e-3)])
def test_t4_that_names_a_unit_beside_its_time_alone_has_all_times_in_it(tmp_path, unit, scale):
    data = t4()
    before = write(tmp_path / "before.json", data)
    del data["metadata"]["timeunit"]
    for result in data["results"]:
        result["measurements"][0]["unit"] = unit
        result["times"]["runtimes"] = [t * scale for t in result["times"]["runtimes"]]
        if result["invalidity"] == "correct":
            result["measurements"][0]["value"] *= scale
    after = write(tmp_path / "after.json", data)
    for objective in ({}, {"objective": "time"}):
        found = [read_t4(file, **objective).optimum_us for file in (before, after)]
        assert found[1] == pytest.approx(found[0], rel=1e-6)


@pytest.mark.parametrize("wrong", [1e3, 1e-3])
def test_a_time_that_contradicts_its_repeats_is_refused(tmp_path, wrong):
    data = hub()
    good = next(r for r in data["cache"].values() if r.get("times"))
    good["time"] *= wrong
    with pytest.raises(LandscapeError, match="as long as its repeats, all in one unit"):
        read_cache(write(tmp_path / "a.json", data))


def test_a_restriction_that_cannot_be_computed_for_all_is_left_to_the_members(tmp_path):
    values = [None, 1, 2]
    results = [
        {
            "configuration": {"o": o, "x": x},
            "times": {"compilation": 1.0, "runtimes": [1.0]},
            "invalidity": "correct",
            "measurements": [],
        }
        for o in values
        for x in (1, 2)
    ]
    path = write(tmp_path / "T4.json", {"metadata": {}, "results": results})
    found = read_t4(path, restrictions=["o is None or o < 3", "x < 3"])
    assert found.space.size == 6
    told = {"constraints": ["x < 3"], "membership": ["o is None or o < 3"]}
    assert found.manifest["imported"]["restrictions"] == told


def test_t4_without_runtimes_has_its_measured_time_in_its_unit(tmp_path):
    data = t4()
    first = data["results"][0]
    first["times"]["compilation_time"] = 7.0  # the schema's name comes first
    first["times"]["runtimes"] = []
    first["measurements"][0] |= {"value": 900.0, "unit": "us"}
    found = read_t4(write(tmp_path / "a.json", data))
    at = found.space.index(_config(16, 1, 0))
    assert found.latency_us[at] == pytest.approx(900.0)
    assert found.column("compile_s")[at] == pytest.approx(0.007)


def test_a_config_that_a_search_came_back_to_counts_once(tmp_path):
    data = t4()
    again = json.loads(json.dumps(data["results"][0]))
    again["times"]["compilation"] = 0
    data["results"].append(again)
    found = read_t4(write(tmp_path / "a.json", data))
    assert found.manifest["imported"]["repeated"] == 1
    assert found.column("compile_s")[found.space.index(_config(16, 1, 0))] > 0


def test_a_failed_config_may_have_runtimes_of_zero(tmp_path):
    results, cache = t4(), hub()
    failed = next(r for r in results["results"] if r["invalidity"] == "runtime")
    failed["times"]["runtimes"] = [0]
    cache["cache"]["64,2,0,15"]["times"] = [0.0]
    for read, data in ((read_t4, results), (read_cache, cache)):
        found = read(write(tmp_path / "a.json", data))
        row = found.table.loc[found.space.index(_config(64, 2, 0))]
        assert (row["status"], list(row["samples_us"])) == ("launch_error", []), read
    worked = next(r for r in results["results"] if r["invalidity"] == "correct")
    worked["times"]["runtimes"][0] = 0
    with pytest.raises(LandscapeError, match="mark the config as failed"):
        read_t4(write(tmp_path / "a.json", results))


def test_t4_tells_values_apart_without_writing_them_out(tmp_path, monkeypatch):
    monkeypatch.setattr("kt_lab.formats.t4.to_json", None)
    assert read_t4(write(tmp_path / "a.json", t4())).space.size == len(t4()["results"])
    spelt = t4()
    for result, value in zip(spelt["results"], [15, 15.0] * 99, strict=False):
        result["configuration"]["filter_width"] = value
    with pytest.raises(SpaceError, match=r"15, 15\.0"):  # not one and the same value
        read_t4(write(tmp_path / "a.json", spelt))


@pytest.mark.parametrize(("read", "name"), [(read_cache, ""), (read_t4, "_T4")])
def test_what_the_real_kernel_tuner_wrote_is_read(read, name):
    """The fixtures are made by write_with_kernel_tuner.py: C, five repeats, three failures."""
    found = read(FIXTURES / f"vector_add{name}.json", restrictions=["UNROLL < 8 or threads == 1"])
    assert found.space.size == 9
    assert found.best == Config(UNROLL=4, threads=1, style="plain")
    statuses = found.table["status"].value_counts().to_dict()
    assert statuses == {"ok": 4, "invalid": 4, "compile_error": 1}
    assert found.gpu == "vector-add"  # the device's name is blank: the file's
    raw = json.loads((FIXTURES / "vector_add.json").read_text())["cache"]
    for config, (status, samples) in by_config(found).items():
        if status == "ok":
            times = raw[",".join(map(str, config.values()))]["times"]
            np.testing.assert_allclose(samples[0], 1e3 * np.asarray(times), rtol=1e-6)


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([16, 32, 64], "PowerOfTwo", (16, 32, 64)),
        ([4, 1, 2], "PowerOfTwo", (1, 2, 4)),
        ([0, 1], "Integer", (0, 1)),
        ([15], "Integer", (15,)),
        ([16, 32, 48, 64], "Integer", (16, 32, 48, 64)),
        ([0, 1, 4, 8], "Ordered", (0, 1, 4, 8)),
        ([0, 1, 2**52], "Ordered", (0, 1, 2**52)),
        ([0.5, 0.1], "Ordered", (0.1, 0.5)),
        ([True, False], "Flag", (False, True)),
        ([True], "Choice", (True,)),
        (["b", "a", None, 3], "Choice", ("b", "a", None, 3)),
    ],
)
def test_values_become_the_narrowest_kind(values, kind, expected):
    found = parameter("x", values)
    assert (type(found).__name__, found.values) == (kind, expected)
    assert isinstance(found, Choice | Flag) or found.ordered


def test_ordered_numbers_have_their_neighbours_in_the_list():
    found = parameter("x", [8, 0, 1, 4])
    assert [found.values[i] for i in found.neighbours(found.index(4))] == [1, 8]
    assert found.encode(np.arange(4)).ravel().tolist() == [0.0, 1.0, 4.0, 8.0]
    assert parameter_from(json.loads(json.dumps(found.describe()))) == found
    with pytest.raises(SpaceError, match="ascending numbers"):
        Ordered("x", (1, 1))


def test_a_space_too_large_to_enumerate_has_the_recorded_members(tmp_path):
    data = hub()
    for at in range(6):
        name = f"extra_{at}"
        data["tune_params_keys"] = [*data["tune_params_keys"], name]
        data["tune_params"][name] = list(range(10))
    data["cache"] = {
        f"{key},{','.join('0' * 6)}": record | {f"extra_{at}": 0 for at in range(6)}
        for key, record in hub()["cache"].items()
    }
    found = read_cache(write(tmp_path / "a.json", data))
    assert found.space.cartesian_size > 10**6
    found.save(tmp_path / "saved")
    assert Landscape.load(tmp_path / "saved").best == found.best


def test_an_unknown_objective_names_the_known_ones(tmp_path):
    path = write(tmp_path / "a.json", hub())
    with pytest.raises(UsageError, match="times or time, got 'GFLOP/s'"):
        read_cache(path, objective="GFLOP/s")


def test_names_fit_folders(tmp_path):
    data = hub() | {"kernel_name": "../../k<float, 4>", "device_name": " ", "problem_size": "?"}
    found = read_cache(write(tmp_path / "MI250X.json.gz", data))
    assert (found.workload, found.gpu) == ("k-float-4/unknown", "mi250x")
    assert gzip.decompress((tmp_path / "MI250X.json.gz").read_bytes())
    assert HUB["cache"] == {}


def test_a_config_whose_names_stand_in_another_order_is_the_same_config(tmp_path):
    data = t4()
    twice = dict(data["results"][0])
    twice["configuration"] = dict(reversed(twice["configuration"].items()))
    once = read_t4(write(tmp_path / "once.json", data))
    again = read_t4(write(tmp_path / "twice.json", data | {"results": [*data["results"], twice]}))
    assert again.table["samples_us"].tolist() == once.table["samples_us"].tolist()
