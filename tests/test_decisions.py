"""Stored winners: exact, whole, found again, and judged anew."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest

from kt_lab.confirm import Rule
from kt_lab.decisions import Winner, load_winner, matches, recheck, save_winner, winners
from kt_lab.errors import StoreError, UsageError
from kt_lab.trial import Config

DEFAULT = Config(BLOCK=64, WAVES=0, EVICTION="", num_warps=4, num_stages=1)
BEST = Config(BLOCK=128, WAVES=4, EVICTION="evict_last", num_warps=8, num_stages=3)
OTHER = Config(BLOCK=256, WAVES=1, EVICTION="", num_warps=8, num_stages=2)


def make(**changes):
    facts = {
        "kernel": "softmax",
        "workload": "4096x640",
        "kernel_source": "0123456789abcdef",
        "extents": {"M": 4096, "N": 640},
        "dtype": "float16",
        "gpu": "h100",
        "config": BEST,
        "default": DEFAULT,
        "finalists": (BEST, OTHER),
        "apparent_ratio": 1 / 3,
        "ratio": 0.5,
        "low": 0.1 + 0.2,
        "high": 0.625,
        "p_best": 0.97,
        "latency_us": 6.05,
        "default_us": 12.1,
        "protocol": "cuda events, L2 flushed",
        "searcher": "lfbo_pattern",
        "seed": 3,
        "trials": 200,
        "elapsed_s": 41.7,
        "provenance": {"packages": {"triton": "3.6.0"}, "driver": "580.1", "utc": "2026-11-21"},
    }
    return Winner(**facts | changes)


# -- files ----------------------------------------------------------------------------------------


def test_a_winner_comes_back_exactly(tmp_path):
    values = {"A": 1, "B": True, "C": None, "D": (1, ("x", 2.5)), "E": 1.0, "F": ""}
    winner = make(config=Config(values), ratio=None, low=None, high=None)
    path = save_winner(winner, tmp_path)
    assert path == tmp_path / "softmax" / "h100" / "4096x640.json"
    found = load_winner("softmax/4096x640", directory=tmp_path)
    assert found == winner
    assert found.key == "softmax/4096x640"
    for name, value in found.config.items():
        assert type(value) is type(values[name])
    assert found.finalists == (BEST, OTHER)
    assert [type(v) for v in found.finalists[0].values()] == [int, int, str, int, int]


@pytest.mark.parametrize("place", ["softmax/h200/4096x640", "softmax/h100/8192x640"])
def test_a_winner_in_the_place_of_another_is_refused(tmp_path, place):
    path = save_winner(make(), tmp_path)
    moved = tmp_path / f"{place}.json"
    moved.parent.mkdir(exist_ok=True)
    path.rename(moved)
    kernel, gpu, name = place.split("/")
    with pytest.raises(StoreError, match=rf"got softmax/4096x640 \(h100\) in {place}"):
        load_winner(f"{kernel}/{name}", gpu=gpu, directory=tmp_path)


def test_a_later_winner_replaces_the_earlier_and_a_failure_leaves_it(tmp_path, monkeypatch):
    save_winner(make(), tmp_path)
    save_winner(make(seed=4), tmp_path)
    assert load_winner("softmax/4096x640", directory=tmp_path).seed == 4

    def fail(*_):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        with pytest.raises(StoreError, match="no space"):
            save_winner(make(seed=5), tmp_path)
    assert load_winner("softmax/4096x640", directory=tmp_path).seed == 4
    assert [p.name for p in (tmp_path / "softmax" / "h100").iterdir()] == ["4096x640.json"]


def test_the_default_folder_is_beside_the_recorded_data(tmp_path, monkeypatch):
    monkeypatch.setenv("KT_LAB_DATA", str(tmp_path))
    path = save_winner(make())
    assert path.parent == tmp_path / "winners" / "softmax" / "h100"
    assert load_winner("softmax/4096x640") == make()
    assert list(winners()) == [("softmax/4096x640", "h100", path)]


def test_the_folder_of_a_search_tells_its_winners_too(tmp_path):
    """`tune --directory out` stores them in out/winners; others may be told either."""
    path = save_winner(make(), tmp_path / "winners")
    for directory in (tmp_path, tmp_path / "winners"):
        assert list(winners(directory)) == [("softmax/4096x640", "h100", path)]
        assert load_winner("softmax/4096x640", directory=directory) == make()
    assert list(winners(tmp_path / "elsewhere")) == []


def test_a_missing_winner_says_what_there_is(tmp_path):
    with pytest.raises(StoreError, match="none; tune it first; stored: none"):
        load_winner("softmax/4096x640", directory=tmp_path)
    save_winner(make(), tmp_path)
    for workload, gpu in (("softmax/1x1", None), ("softmax/4096x640", "h200"), ("../x", None)):
        with pytest.raises(StoreError, match=r"stored: softmax/4096x640 \(h100\)"):
            load_winner(workload, gpu=gpu, directory=tmp_path)


def test_of_several_gpus_one_must_be_named(tmp_path):
    save_winner(make(), tmp_path)
    save_winner(make(gpu="h200", seed=9), tmp_path)
    with pytest.raises(StoreError, match=r"several; name one with gpu=.*\(h100\).*\(h200\)"):
        load_winner("softmax/4096x640", directory=tmp_path)
    assert load_winner("softmax/4096x640", gpu="h200", directory=tmp_path).seed == 9


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "JSONDecodeError"),
        ('{"schema": 1, "kernel": "soft', "JSONDecodeError"),
        ("[]", "a list instead of an object"),
        ('{"schema": 1}', "'config'"),
        ('{"schema": 7}', "schema 1, got 7"),
        ('{"kernel": "softmax"}', "schema 1, got None"),
    ],
)
def test_a_damaged_or_foreign_file_is_named(tmp_path, text, said):
    path = save_winner(make(), tmp_path)
    path.write_text(text)
    with pytest.raises(StoreError, match=said) as caught:
        load_winner("softmax/4096x640", directory=tmp_path)
    assert "softmax/h100/4096x640.json" in str(caught.value)


@pytest.mark.parametrize("dtype", [None, {}, [], ["float16"], 16])
def test_a_file_whose_dtype_was_edited_is_refused_where_it_is_read(tmp_path, dtype):
    """A table of decisions looked it up in a key, and broke with a TypeError or a ValueError."""
    path = save_winner(make(), tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"dtype": dtype}))
    with pytest.raises(StoreError, match="numbers, a dtype and packages by name, got dtype; rest"):
        load_winner("softmax/4096x640", directory=tmp_path)


def test_a_file_that_lacks_or_adds_a_field_is_refused(tmp_path):
    path = save_winner(make(), tmp_path)
    whole = json.loads(path.read_text())
    for data in ({k: v for k, v in whole.items() if k != "p_best"}, whole | {"mood": "good"}):
        path.write_text(json.dumps(data))
        with pytest.raises(StoreError, match=r"p_best|mood"):
            load_winner("softmax/4096x640", directory=tmp_path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"workload": "../../escape"}, "escape"),
        ({"gpu": ""}, "got ''"),
        ({"kernel": ".hidden"}, "hidden"),
        ({"config": {"BLOCK": np.int64(64)}}, "BLOCK"),
        ({"finalists": ({"MODE": frozenset({1})},)}, "MODE"),
        ({"provenance": {"when": object()}}, "when"),
        ({"trials": np.int64(3)}, "trials"),
    ],
)
def test_what_could_not_be_stored_is_refused_when_it_is_made(changes, said):
    with pytest.raises(UsageError, match=said):
        make(**changes)


# -- use ------------------------------------------------------------------------------------------


def test_triton_gets_its_own_arguments_apart():
    triton = pytest.importorskip("triton")
    found = make().as_triton()
    assert isinstance(found, triton.Config)
    assert found.kwargs == {"BLOCK": 128, "WAVES": 4, "EVICTION": "evict_last"}
    assert (found.num_warps, found.num_stages, found.num_ctas) == (8, 3, 1)
    limited = make(config=Config(BLOCK=64, maxnreg=128)).as_triton()
    assert (limited.kwargs, limited.maxnreg) == ({"BLOCK": 64}, 128)


def test_changes_are_told_one_by_one():
    then = {"kernel_source": "0123456789abcdef", "gpu": "h100", "triton": "3.6.0"}
    assert matches(make(), **then, driver="580.1") == []
    assert matches(make(), **then, driver=None) == []
    (driver,) = matches(make(), **then, driver="590.2")
    assert driver == "the driver is 590.2, and was 580.1 when this winner was found"
    everything = matches(make(), kernel_source="f", gpu="h200", triton="3.7.0", driver="590.2")
    assert len(everything) == 4
    assert matches(make(provenance={}), **then, driver="590.2") == []


class Racer:
    """Reads true latencies with a percent of noise."""

    def __init__(self, latencies, *, noise=0.01):
        self.latencies, self.noise = latencies, noise
        self.rng = np.random.default_rng(0)

    def race(self, configs, *, rounds, repetitions):  # noqa: ARG002
        true = np.asarray([self.latencies[c] for c in configs])
        return true * np.exp(self.noise * self.rng.standard_normal((rounds, len(configs))))


def judged(best, other, default, **changes):
    racer = Racer({BEST: best, OTHER: other, DEFAULT: default})
    return recheck(make(**changes), racer, rule=Rule(), changed=["the driver is new"])


def test_a_winner_that_is_still_faster_holds_with_its_new_ratio():
    found = judged(6.0, 6.5, 12.0)
    assert (found.verdict, found.config) == ("holds", BEST)
    assert found.confirmations[0].low < 0.5 < found.confirmations[0].high
    assert found.changed == ("the driver is new",)
    first, last = f"{BEST} replaces the default: faster", "The stored winner stays: "
    assert found.describe().startswith(f"Stored winner: holds. {first}")
    assert f" {last}" in found.describe()
    assert "the driver is new" in found.describe()


def test_a_winner_that_fell_behind_is_lost_to_the_default():
    found = judged(13.0, 14.0, 12.0)
    assert (found.verdict, found.config) == ("lost to the default", DEFAULT)
    assert found.describe().count(" The default stays: ") == 2


def test_a_better_finalist_is_found_whether_or_not_the_winner_still_beats_the_default():
    for best in (6.0, 13.0):
        found = judged(best, 5.0, 12.0)
        assert (found.verdict, found.config) == ("another finalist is better", OTHER)


def test_a_finalist_that_is_only_as_good_does_not_unseat_the_winner():
    """Being first in a race of equals says nothing."""
    found = [judged(6.0, 6.0 * (1 + sign * 1e-6), 12.0) for sign in (-1, 1)]
    assert {f.verdict for f in found} == {"holds"}


def test_a_winner_that_fails_is_lost():
    racer = Racer({BEST: np.nan, OTHER: 14.0, DEFAULT: 12.0})
    assert recheck(make(), racer).verdict == "lost to the default"


def test_a_default_that_won_is_judged_against_its_finalists():
    assert judged(9.0, 13.0, 12.0, config=DEFAULT, finalists=(OTHER,)).verdict == "holds"
    found = judged(9.0, 8.0, 12.0, config=DEFAULT, finalists=(DEFAULT, OTHER))
    assert (found.verdict, found.config) == ("another finalist is better", OTHER)
    alone = judged(9.0, 8.0, 12.0, config=DEFAULT, finalists=())
    assert (alone.verdict, alone.confirmations) == ("holds", ())


def test_a_winner_does_not_change():
    with pytest.raises(AttributeError):
        make().seed = 1
    assert replace(make(), seed=1).seed == 1
