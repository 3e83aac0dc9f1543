"""Offline inspection: what binaries need, what can be dropped, and what is left of a space."""

import json
import re
import subprocess
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from kt_lab import cli
from kt_lab.commands import inspect as command
from kt_lab.errors import SpaceError, UnknownName, UsageError
from kt_lab.inspect import TARGETS, Inspection, compiled, diff, get_target, inspect_space
from kt_lab.inspect.difference import stripped
from kt_lab.kernels import get_kernel, get_workload
from kt_lab.landscape import landscapes, load_landscape
from kt_lab.runners.gpu import compiling
from kt_lab.runners.gpu.resources import amd_resources, cuda_resources
from kt_lab.runners.workers import Outcome, Workers, Zygote
from kt_lab.space import (
    Choice,
    Config,
    Constraint,
    Integer,
    ParameterSpace,
    PowerOfTwo,
)
from kt_lab.workload import Subject, Workload

SUBJECT = Subject(
    Workload("total", "65536", {"N": 65536}, "float32"),
    str(Path(__file__).with_name("inspected_kernel.py")),
    rtol=0.0,
    atol=0.0,
)
SPACE = ParameterSpace(
    [
        PowerOfTwo("BLOCK", 1024, 16384),
        Integer("STAGES", 1, 5),
        Choice("PTX", ("", "=r,r", "=f,f")),  # constraints of inline assembly
        Choice("UNUSED", (1, 0)),
        Choice("MAXNREG", (0, 32)),
        PowerOfTwo("num_warps", 4, 32),
        Choice("PROGRAMS", (1, 2, 0)),  # none: cannot be planned
    ],
    default={
        "BLOCK": 1024,
        "STAGES": 1,
        "PTX": "",
        "UNUSED": 0,
        "MAXNREG": 0,
        "num_warps": 4,
        "PROGRAMS": 1,
    },
)
DEFAULT = SPACE.default
VARIANTS = {
    "default": {},
    "twin": {"UNUSED": 1},
    "elsewhere": {"PROGRAMS": 2},
    "ptx": {"PTX": "=r,r"},
    "lost": {"PTX": "=f,f"},
    "wide": {"num_warps": 32},
    "spilled": {"BLOCK": 16384, "MAXNREG": 32},
    "large": {"BLOCK": 16384, "STAGES": 5},
}
# What becomes of inline assembly that a target does not know: older Tritons may take their process
# down instead of saying so.
TRITON = tuple(map(int, version("triton").split(".")[:2]))
REFUSED = {"compile_error"} if TRITON >= (3, 9) else {"compile_error", "crashed"}
CONFIGS = {name: Config({**DEFAULT, **changes}) for name, changes in VARIANTS.items()}


@pytest.fixture(scope="module", autouse=True)
def _one_zygote():
    """Lets every pool of this file fork from one zygote: torch and triton are imported once."""
    with Zygote(preload=[compiling.__name__]) as zygote, pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "Workers", partial(Workers, zygote=zygote))
        yield


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("triton")


def _inspected(cache, target, names=tuple(CONFIGS)):
    rows = SPACE.rows([CONFIGS[name] for name in names])
    return inspect_space(SUBJECT, SPACE, target=target, rows=rows, workers=2, cache=cache)


@pytest.fixture(scope="module")
def hopper(cache):
    return _inspected(cache, "sm_90")


@pytest.fixture(scope="module")
def mi300(cache):
    return _inspected(cache, "gfx942")


def _row(inspection, name):
    return inspection.table.loc[inspection.space.index(CONFIGS[name])]


# -- what binaries need ---------------------------------------------------------------------------


def test_registers_and_stack_are_what_cuobjdump_reads_from_the_same_binary(hopper, cache):
    tool = Path(find_spec("triton").origin).parent / "backends/nvidia/bin/cuobjdump"
    told = set()
    for cubin in cache.rglob("*.cubin"):
        done = subprocess.run(
            [str(tool), "-res-usage", str(cubin)], capture_output=True, text=True, check=True
        )
        registers, stack = re.search(r"REG:(\d+) STACK:(\d+)", done.stdout).groups()
        told.add((int(registers), int(stack)))
        assert cuda_resources(cubin.read_bytes())["registers"] == int(registers)
    binaries = hopper.table.drop_duplicates("specialisation")
    assert len(binaries) == len(CONFIGS) - 1  # `elsewhere` needs no binary of its own
    assert told == set(zip(binaries["registers"], binaries["stack_bytes"], strict=True))


def test_a_kernel_short_of_registers_spills_and_others_do_not(hopper):
    spilled = _row(hopper, "spilled")
    assert spilled["registers"] == 32
    assert spilled["spills"] == spilled["stack_bytes"] // 4 > 0
    assert _row(hopper, "default")["spills"] == 0


def test_amd_counts_are_those_that_the_assembler_comments_on(mi300, cache):
    told = set()
    for path in cache.rglob("*.amdgcn"):
        text = path.read_text()
        comments = dict(re.findall(r"^; (\w+): (\d+)$", text, re.M))
        found = amd_resources(text)
        assert found["stack_bytes"] == int(comments["ScratchSize"])
        told.add((int(comments["TotalNumVgprs"]), int(comments["NumAgprs"])))
    good = mi300.table[mi300.ok]
    assert set(zip(good["registers"], good["agprs"], strict=True)) <= told
    assert (good["registers"] > 0).all()
    assert (good["sgprs"] > 0).all()
    assert _row(mi300, "default")["threads"] == 4 * 64


@pytest.mark.parametrize("binary", [b"", b"\x7fELF\x01", b"no binary at all"])
def test_a_file_that_is_no_cubin_says_nothing(binary):
    assert cuda_resources(binary) == {}


# -- failures are statuses ------------------------------------------------------------------------


def test_what_a_target_cannot_do_is_a_status_with_a_reason(hopper, mi300):
    large = _row(hopper, "large")
    assert large["status"] == "launch_error"
    assert large["shared_bytes"] > 227 * 1024
    assert large["error"].endswith("bytes of shared memory, sm_90 allows 232,448")
    assert all(_row(hopper, name)["status"] == "ok" for name in ("ptx", "lost", "wide"))
    wide, ptx, lost = (_row(mi300, name) for name in ("wide", "ptx", "lost"))
    assert wide["status"] == "launch_error"
    assert wide["error"] == "needs 2,048 threads, gfx942 allows 1,024"
    assert ptx["status"] in REFUSED
    assert ptx["error"]
    assert pd.isna(ptx["registers"])
    assert lost["status"] in REFUSED
    left_out = "inline assembly that gfx942 does not know was left out"
    assert lost["error"] == left_out or (lost["status"] == "crashed" and "ended" in lost["error"])
    assert "launch_error: needs N threads, gfx942 allows N" in mi300.failures
    assert sum(mi300.failures.values()) == (~mi300.ok).sum()


def test_hopeless_are_failures_and_what_spills_beyond_the_callers_limit(hopper):
    def at(name):
        return hopper.space.index(CONFIGS[name])

    assert set(np.flatnonzero(hopper.hopeless())) == {at("large")}
    spilled = 4 * int(_row(hopper, "spilled")["spills"])
    assert set(np.flatnonzero(hopper.hopeless(max_spill_bytes=spilled))) == {at("large")}
    limited = hopper.hopeless(max_spill_bytes=spilled - 1)
    assert set(np.flatnonzero(limited)) == {at("large"), at("spilled")}


def test_a_config_that_cannot_be_planned_is_a_status_and_the_others_are_compiled(cache):
    left = Config({**DEFAULT, "PROGRAMS": 0})
    rows = SPACE.rows([DEFAULT, left, CONFIGS["twin"]])
    found = inspect_space(SUBJECT, SPACE, rows=rows, workers=1, cache=cache)
    row = found.table.loc[found.space.index(left)]
    assert row["status"] == "launch_error"
    assert row["error"] == "could not be planned: ValueError: nothing to launch"
    assert pd.isna(row[["specialisation", "grid", "registers", "compile_s"]]).all()
    assert found.summary()["specialisations"] == 2
    assert found.summary()["ok"] == 2
    assert found.summary()["compile_s"] > 0
    assert left not in set(SPACE.configs(found.keep()))
    alone = inspect_space(SUBJECT, SPACE, rows=SPACE.rows([left]), workers=1, cache=cache)
    assert alone.summary()["ok"] == alone.summary()["specialisations"] == 0


def test_parameters_named_like_columns_stand_beside_them(cache):
    more = [Choice("threads", (7, 9)), Choice("status", ("slow",)), Choice("config", (0,))]
    parameters, default = [*SPACE.parameters, *more], {"threads": 7, "status": "slow", "config": 0}
    space = ParameterSpace(parameters, default={**DEFAULT, **default})
    rows = space.rows([space.default, {**space.default, "threads": 9}])
    found = inspect_space(SUBJECT, space, rows=rows, workers=1, cache=cache)
    table = found.table.reset_index()
    assert table.columns.is_unique
    assert table["p_threads"].tolist() == [7, 9]
    assert table["threads"].tolist() == [128, 128]
    assert table["p_status"].tolist() == ["slow", "slow"]
    assert found.ok.tolist() == [True, True]
    assert found.summary()["launches"] == 1


def test_workers_compile_also_where_kernels_are_being_interpreted(cache, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(compiled, "Workers", Workers)  # with a zygote that imports Triton now
    assert _inspected(cache, "sm_90", ["default"]).summary()["ok"] == 1


@pytest.mark.parametrize("kind", ["timeout", "crashed", "error"])
def test_a_compiler_that_hangs_or_dies_is_a_status(kind):
    found = compiled.judged(Outcome(kind, None, "why", seconds=3.0), get_target("sm_90"))
    status = "compile_error" if kind == "error" else kind
    assert found == {
        "status": status,
        "error": "why",
        "wall_s": 3.0,
        "compile_s": 3.0,
    }


def test_the_limit_of_shared_memory_is_the_one_that_a_real_gpu_kept():
    limit = TARGETS["sm_90"].shared_bytes
    refused = 0
    for entry in landscapes():
        table = pd.read_parquet(entry.path, columns=["error", "shared_bytes"])
        short = table["error"].astype(str).str.contains("shared memory").to_numpy()
        known = table["shared_bytes"].notna().to_numpy()
        too_much = (table["shared_bytes"] > limit).fillna(False).to_numpy(dtype=bool)
        np.testing.assert_array_equal(too_much[known], short[known], entry.workload)
        refused += int(too_much.sum())
    assert refused > 0


# -- duplicates -----------------------------------------------------------------------------------


def test_configs_of_one_launch_are_duplicates_and_the_grid_counts(hopper):
    default, twin, elsewhere = (_row(hopper, n) for n in ("default", "twin", "elsewhere"))
    assert default["code_hash"] == twin["code_hash"] == elsewhere["code_hash"]
    assert default["specialisation"] != twin["specialisation"]
    assert default["specialisation"] == elsewhere["specialisation"]
    first = hopper.space.index(CONFIGS["twin"])  # UNUSED=1 is listed before 0
    assert default["duplicate_of"] == first
    assert pd.isna(twin["duplicate_of"])
    assert pd.isna(elsewhere["duplicate_of"])
    good = hopper.table[hopper.ok]
    launches = set(zip(good["code_hash"], good["grid"], strict=True))
    assert hopper.duplicates == {
        "ok": len(CONFIGS) - 1,
        "binaries": len({code for code, _ in launches}),
        "launches": len(launches),
    }


def test_what_is_kept_is_one_config_per_launch_the_default_for_its_own(hopper):
    kept = hopper.space.configs(hopper.keep())
    # On NVIDIA the two ways to name an operand of inline assembly come to the same binary.
    dropped = {CONFIGS[name] for name in ("twin", "large", "lost")}
    assert set(kept) == set(CONFIGS.values()) - dropped
    smaller = SPACE.only(hopper.keep())
    assert smaller.default == SPACE.default
    assert smaller.size == len(kept)


# -- restricted spaces ----------------------------------------------------------------------------


def _square(**changes):
    arguments = {
        "parameters": [Integer("a", 0, 11), Choice("b", ("x", "y", "z")), PowerOfTwo("c", 1, 64)],
        "constraints": [Constraint("small", "a * c <= 128")],
        "default": {"a": 3, "b": "y", "c": 8},
    }
    return ParameterSpace(**(arguments | changes))


@pytest.fixture(params=range(4))
def restricted(request):
    """A space, some of its rows and their restriction."""
    rng = np.random.default_rng(request.param)
    space = _square()
    chosen = rng.random(space.size) < (0.02, 0.2, 0.5, 0.95)[request.param]
    rows = space.enumerate()[chosen]
    return space, rows, space.only(rng.permutation(np.concatenate([rows, rows])))


def test_a_restricted_space_has_exactly_its_rows(restricted):
    space, rows, small = restricted
    np.testing.assert_array_equal(small.enumerate(), rows)
    assert small.size == len(rows)
    members = {tuple(r) for r in rows.tolist()}
    everywhere = np.indices((12, 3, 7)).reshape(3, -1).T
    expected = [tuple(r) in members for r in everywhere.tolist()]
    assert small.valid(everywhere).tolist() == expected
    np.testing.assert_array_equal(small.indices(rows), np.arange(len(rows)))
    for config in space.configs(space.enumerate()):
        assert small.contains(config) == (config in set(small.configs(rows)))


def test_a_restricted_space_stays_within_its_rows(restricted):
    space, rows, small = restricted
    assert all(small.contains(c) for c in small.sample(40, rng=np.random.default_rng(1)))
    for row in space.enumerate()[::5]:
        near = space.neighbour_rows(row)
        np.testing.assert_array_equal(small.neighbour_rows(row), near[small.valid(near)])
        repaired = small.repair(row)
        apart = space.distances(row, rows)
        np.testing.assert_array_equal(repaired, rows[np.argmin(apart)])
    seen = set()
    while (config := small.nearest_unseen(space.default, seen)) is not None:
        seen.add(config)
    assert seen == set(small.configs(rows))


def test_a_default_that_is_left_out_is_replaced_by_the_nearest_row(restricted):
    space, rows, small = restricted
    apart = space.distances(space.row(space.default), rows)
    assert small.default == space.config(rows[np.argmin(apart)])
    with_default = space.only(np.vstack([rows, space.row(space.default)]))
    assert with_default.default == space.default


def test_a_restricted_space_survives_description(restricted):
    space, rows, small = restricted
    text = json.dumps(small.describe())
    copy = ParameterSpace.from_description(json.loads(text))
    assert copy.fingerprint == small.fingerprint != space.fingerprint
    assert copy.default == small.default
    np.testing.assert_array_equal(copy.enumerate(), rows)
    assert space.only(rows[:1]).fingerprint != small.fingerprint
    again = small.only(rows)
    assert again is small
    smaller = small.only(rows[1:]) if len(rows) > 1 else small
    assert smaller.fingerprint == space.only(smaller.enumerate()).fingerprint


def test_a_space_that_loses_nothing_is_the_space_itself():
    space = _square()
    assert space.only(space.enumerate()) is space
    assert "members" not in space.describe()


def test_fingerprints_of_recorded_spaces_are_unchanged():
    # Stored studies and landscapes name their space by it.
    workload = get_workload("softmax/4096x640")
    space = get_kernel("softmax").space(workload)
    assert space.fingerprint == "2e2ea7242915fb2a"
    assert space.fingerprint == load_landscape(workload.key).manifest["fingerprint"]


def test_a_huge_space_can_be_restricted_to_rows_that_were_drawn_from_it():
    names = [f"p{i}" for i in range(20)]
    parameters = [Integer(n, 0, 9) for n in names]
    space = ParameterSpace(
        parameters,
        constraints=[Constraint("half", "p0 + p1 < 9")],
        default=dict.fromkeys(names, 0),
    )
    rows = space.sample_rows(50, rng=np.random.default_rng(0))
    small = space.only(rows)
    np.testing.assert_array_equal(small.enumerate(), np.unique(rows, axis=0))
    assert small.valid(rows).all()
    assert not small.contains(space.default)
    copy = ParameterSpace.from_description(small.describe())
    assert copy.fingerprint == small.fingerprint


@pytest.mark.parametrize(
    "rows", [np.empty((0, 3), int), [1, 2, 3], [[0, 0]], [[12, 0, 0]], [[-1, 0, 0]], [[11, 0, 6]]]
)
def test_rows_that_are_no_members_are_refused(rows):
    with pytest.raises(SpaceError, match="a space must be restricted to"):
        _square().only(rows)


def test_a_config_outside_the_restriction_is_told_so():
    small = _square().only([[3, 1, 3], [4, 1, 3]])
    with pytest.raises(SpaceError, match="one of the 2 that the space was restricted to"):
        small.check({"a": 5, "b": "y", "c": 8})
    with pytest.raises(SpaceError, match="packed value indices"):
        ParameterSpace.from_description(small.describe() | {"members": "no"})


# -- differences ----------------------------------------------------------------------------------


def test_equal_code_has_no_difference(cache):
    assert diff(SUBJECT, CONFIGS["default"], CONFIGS["twin"], kind="sass", cache=cache) == ""


def test_different_code_has_a_readable_difference(cache):
    found = diff(SUBJECT, CONFIGS["default"], CONFIGS["wide"], kind="ttgir", cache=cache)
    head, *lines = found.splitlines()
    assert head.startswith("--- BLOCK=1024,STAGES=1,")
    assert any(line.startswith("-") and '"ttg.num-warps" = 4' in line for line in lines)
    assert any(line.startswith("+") and '"ttg.num-warps" = 32' in line for line in lines)
    assert "loc(" not in found


def test_a_config_that_does_not_compile_cannot_be_compared(cache):
    with pytest.raises(UsageError, match=r"must compile for gfx942 .*PTX='=f,f'"):
        diff(SUBJECT, CONFIGS["default"], CONFIGS["lost"], target="gfx942", cache=cache)


def test_a_kind_that_the_target_does_not_have_is_refused_at_once():
    with pytest.raises(UnknownName, match=r"kind of text on gfx942 must be .*amdgcn"):
        diff(SUBJECT, DEFAULT, DEFAULT, target="gfx942", kind="ptx")


@pytest.mark.parametrize(
    ("kind", "text", "kept"),
    [
        ("ttir", '#loc1 = loc("a.py":1:2)\n  %0 = tt.load %x loc(#loc1)\n', "%0 = tt.load %x"),
        ("ttgir", '%0 = f(%x) loc(callsite(#l1 at #l2))\n#loc2 = loc("k"(#l))', "%0 = f(%x)"),
        ("ptx", '\t.file 1 "a.py"\n\t.loc 1 2 3\n\tret; // a.py:7\n\n', "ret;"),
        ("amdgcn", "\t.loc 1 2 3\n\ts_endpgm ; a.py:7\n; %bb.0:\n", "s_endpgm"),
        ("llir", "; ModuleID\n  ret void, !dbg !7\n!7 = !DILocation(line: 3)\n", "ret void"),
        ("sass", "MOV R1, R2;\n", "MOV R1, R2;"),
    ],
)  # fmt: skip
def test_where_code_comes_from_is_stripped(kind, text, kept):
    assert [line.strip() for line in stripped(text, kind)] == [kept]


# -- the command ----------------------------------------------------------------------------------

KEY = "softmax/4096x640"


@pytest.fixture
def told(monkeypatch, hopper):
    """Calls of inspect_space by the command, which is answered without compiling."""
    calls = []

    def answer(subject, _, **options):
        calls.append((subject.workload.key, options))
        target = get_target(options["target"])
        return Inspection(target, hopper.space, hopper.table, elapsed_s=2.0)

    monkeypatch.setattr(command, "inspect_space", answer)
    return calls


def test_the_command_prints_a_row_for_each_workload_and_target(told, tmp_path, capsys):
    table = tmp_path / "table.csv"
    argv = ["inspect", KEY, "--target", "sm_90", "--target", "gfx942", "--limit", "7"]
    assert cli.main([*argv, "--csv", str(table)]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[:6] == ["workload", "target", "configs", "ok", "binaries", "launches"]
    assert [row.split()[:4] for row in rows[:2]] == [
        [KEY, target, str(len(CONFIGS)), str(len(CONFIGS) - 1)] for target in ("sm_90", "gfx942")
    ]
    assert rows[2].startswith(f"{KEY} for sm_90: 1 x launch_error: needs N bytes")
    assert [len(options["rows"]) for _, options in told] == [7, 7]
    frame = pd.read_csv(table)
    assert len(frame) == 2 * len(CONFIGS)
    assert set(frame["target"]) == {"sm_90", "gfx942"}


def test_the_command_prints_json(told, hopper, capsys):
    assert cli.main(["inspect", "softmax", "--json", "--max-spill-bytes", "0"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["workload"] for row in found] == [key for key, _ in told]
    assert found[0]["hopeless"] == 2
    assert found[0]["failures"] == hopper.failures


def test_the_command_compiles_for_real(cache, capsys):
    argv = ["inspect", KEY, "--limit", "1", "--workers", "1", "--cache", str(cache), "--json"]
    assert cli.main(argv) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["configs"] == found["ok"] == found["launches"] == 1
    assert 0 < found["registers_median"] <= 255


def test_the_command_compares_two_configs_named_by_what_they_change(monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(command, "diff", lambda *args, **_: asked.append(args) or "")
    argv = ["inspect", KEY, "--diff", "BLOCK_M=2", "EVICTION=evict_last,num_warps=2"]
    assert cli.main(argv) == 0
    assert capsys.readouterr().out == "the ttgir is the same\n"
    default = dict(get_kernel("softmax").space(get_workload(KEY)).default)
    assert dict(asked[0][1]) == default | {"BLOCK_M": 2}
    assert dict(asked[0][2]) == default | {"EVICTION": "evict_last", "num_warps": 2}


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["softmax/1x"], "a shape of softmax is M x N"),
        (["softmx/1x1"], "did you mean 'softmax'"),
        ([KEY, "--target", "sm_9"], "did you mean 'sm_90'"),
        ([KEY, "--limit", "0"], "--limit must be >= 1, got 0"),
        ([KEY, "--workers", "0"], "--workers must be >= 1, got 0"),
        ([KEY, "--csv", "no/such/folder.csv"], "--csv must name a file"),
        (["softmax", "--diff", "", ""], "one workload for one target"),
        ([KEY, "--diff", "BLOCK=1", ""], "did you mean"),
        ([KEY, "--diff", "BLOCK_M", ""], "must be written NAME=VALUE"),
        ([KEY, "--diff", "BLOCK_M=3", ""], "value of BLOCK_M must be one of"),
        ([KEY, "--diff", "BLOCK_M=32,num_warps=1", ""], "at most 128 elements a thread"),
        ([KEY, "--diff", "", "", "--kind", "amdgcn"], "kind of text on sm_90"),
    ],
)
def test_a_mistake_is_one_sentence(argv, told, capsys):
    assert cli.main(["inspect", *argv]) == 2
    error = capsys.readouterr().err
    assert error.startswith("kt-lab: ")
    assert told in error
    assert error.count("\n") == 1
