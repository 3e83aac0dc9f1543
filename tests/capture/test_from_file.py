"""Commands on kernels that a file of the user's captures: recorded, tuned, inspected."""

import json

import pytest

from kt_lab.landscape import load_landscape
from tests.capture.test_variety import CELL
from tests.record.test_record import SERVICES as RECORDING
from tests.runners.live_fakes import SERVICES as LIVE

FILE = f"""{CELL}
wide = ParameterSpace(
    [PowerOfTwo("BLOCK", 16, 256), PowerOfTwo("num_warps", 1, 8)],
    default={{"BLOCK": 32, "num_warps": 4}},
)
mine = capture(doubled, **usual | {{"space": wide, "extents": [{{"n": 100}}, {{"n": 1000}}]}})

@triton.jit
def planted(x, out, n, FAULT: tl.constexpr, VARIANT: tl.constexpr):
    at = tl.arange(0, 16)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)

faults = ParameterSpace(
    [
        Choice("FAULT", ("none", "compile_error")),
        Integer("VARIANT", 0, 9),
        Integer("PROGRAMS", 1, 2),
    ],
    default={{"FAULT": "none", "VARIANT": 9, "PROGRAMS": 1}},
)

def programs(meta):
    return (meta["PROGRAMS"],)

more = usual | {{"space": faults, "grid": programs}}
simulated = capture(planted, **more, extents={{"n": 16}})
if __name__ == "__main__":
    raise SystemExit("a command imports the file, and does not run it")
"""
RUN = """
import contextlib
import io
import os
from functools import partial
from kt_lab import cli
from kt_lab.commands import dispatch as dispatch_command
from kt_lab.commands import recheck as recheck_command
from kt_lab.commands import record as record_command
from kt_lab.commands import tune as tune_command
from kt_lab.record import Recording, SessionRecording
from kt_lab.runners.gpu.runner import GpuRunner

record_command.Recording = partial(Recording, services=recording)
record_command.SessionRecording = partial(SessionRecording, services=recording)
for command in (dispatch_command, recheck_command, tune_command):
    command.GpuRunner = partial(GpuRunner, services=live)
dispatch_command.gpu_arch = lambda _: "sm_90"

def said(*argv):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(argv)
    return [code, out.getvalue(), err.getvalue()]
"""


@pytest.fixture(scope="module")
def said(notebook, tmp_path_factory):
    root = tmp_path_factory.mktemp("own")
    (root / "kernels.py").write_text(FILE)
    (root / "nothing.py").write_text("kernel = None\n")
    notebook(RUN, recording=RECORDING, live=LIVE)

    def call(*argv, source="kernels.py"):
        return notebook("said(*argv)", argv=[*argv, "--from", str(root / source)])

    return call


def test_any_shape_is_recorded_and_timed_again(said, notebook, tmp_path):
    command = ("record", "doubled/777", "--directory", str(tmp_path), "--contention", "0")
    code, told, _ = said(*command, "--workers", "1")
    assert code == 0, told
    assert f"MB stay in {tmp_path / 'triton_cache'}" in told
    landscape = load_landscape(tmp_path / "doubled" / "test" / "777.parquet")
    assert (landscape.workload, landscape.space.size) == ("doubled/777", 20)
    notebook("os.environ['KT_LAB_DATA'] = folder", folder=str(tmp_path))
    try:
        again = ("record", "doubled/777", "--directory", str(tmp_path), "--session", "again")
        code, told, errors = said(*again, "--workers", "1")
    finally:
        notebook("del os.environ['KT_LAB_DATA']")
    assert code == 0, errors
    assert (tmp_path / "sessions").exists()


def test_its_name_alone_means_all_its_workloads(said, tmp_path):
    command = ("record", "doubled", "--directory", str(tmp_path), "--contention", "0")
    assert said(*command, "--workers", "1", "--limit", "4")[0] == 0
    names = {path.name for path in (tmp_path / "doubled" / "test").glob("*.parquet")}
    assert names == {"100.parquet", "1000.parquet"}


def test_it_is_tuned_and_its_winner_stored(said, tmp_path):
    command = ("tune", "planted/12", "--trials", "5", "--workers", "1")
    code, told, errors = said(*command, "--directory", str(tmp_path))
    assert code == 0, errors
    assert "5 trials" in told
    (winner,) = (tmp_path / "winners").rglob("*.json")
    assert "planted" in winner.parts
    code, told, errors = said("recheck", "planted/12", "--directory", str(tmp_path / "winners"))
    assert code == 0, errors
    assert "1 of 1 winners hold" in told


def test_a_table_of_its_shapes_is_decided(said, tmp_path):
    command = ("dispatch", "planted/12", "planted/14", "--workers", "1", "--json")
    code, told, errors = said(*command, "--trials", "9", "--directory", str(tmp_path))
    assert code == 0, errors
    table = json.loads(told)
    assert (table["kernel"], table["key"]) == ("planted", ["n", "dtype"])
    assert {path.stem for path in tmp_path.rglob("*.json")} == {"12", "14"}


def test_it_is_compiled_for_a_gpu_that_is_not_there(said):
    code, told, errors = said("inspect", "doubled/64", "--limit", "2", "--workers", "1")
    assert code == 0, errors
    assert "doubled/64" in told


@pytest.mark.parametrize(
    ("argv", "source", "law"),
    [
        (["tune", "doubled/8"], "nowhere.py", "--from must name a Python file that is there"),
        (["tune", "doubled/8"], "nothing.py", "must capture a kernel at its top level, got none"),
        (
            ["tune", "halved/8"],
            "kernels.py",
            "got 'halved'; known: doubled, planted",
        ),
        (["record", "doubled", "softmax"], "kernels.py", "one captured kernel at a time"),
        (["dispatch", "doubled/8", "--space", "pr3952"], "kernels.py", "got pr3952 with --from"),
        (["inspect", "doubled/2x2"], "kernels.py", "must have the extents n"),
    ],
)
def test_what_does_not_fit_is_one_sentence(said, argv, source, law):
    code, _, errors = said(*argv, source=source)
    assert code == 2
    assert law in errors
    assert errors.count("\n") == 1
