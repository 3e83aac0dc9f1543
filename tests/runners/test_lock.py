"""One run at a time on a GPU, with real processes and real signals."""

import json
import os
import signal
import stat
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from kt_lab.errors import GpuBusy, UsageError
from kt_lab.runners.gpu import facts
from kt_lab.runners.gpu.lock import GpuLock, holder

UUID = "GPU-5ca1ab1e-0000-1111"
HOLDING = (
    "import sys\n"
    "from kt_lab.runners.gpu.lock import GpuLock\n"
    f"with GpuLock({UUID!r}, what='timing softmax'):\n"
    "    print('held', flush=True)\n"
    "    sys.stdin.read()\n"
)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("KT_LAB_LOCKS", str(tmp_path))
    return tmp_path


@contextmanager
def another_process():
    """A process that holds the GPU until its stdin is closed."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout.readline() == "held\n"
        yield child
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()


def test_a_busy_gpu_says_who_holds_it_and_what_to_do():
    with another_process() as child:
        with pytest.raises(GpuBusy) as caught:
            GpuLock(UUID, what="tuning")
        found = holder(UUID)
    text = str(caught.value)
    assert f"process {child.pid} on " in text
    assert "for timing softmax" in text
    assert f"since {found['since']}" in text
    assert "wait_s=60" in text
    assert f"stop process {child.pid}" in text
    assert (found["pid"], found["what"]) == (child.pid, "timing softmax")
    assert isinstance(caught.value, UsageError)


def test_a_killed_holder_frees_the_gpu_and_its_name_is_overwritten(folder):
    with another_process() as child:
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert str(child.pid) in (folder / f"kt_lab-{UUID}.lock").read_text()
        assert holder(UUID) is None
        with GpuLock(UUID, what="now"):
            assert holder(UUID)["pid"] == os.getpid()
            assert json.loads((folder / f"kt_lab-{UUID}.lock").read_text())["what"] == "now"


def test_a_second_lock_in_one_process_is_refused_as_its_own():
    with GpuLock(UUID, what="a cell that ran before"):
        with pytest.raises(GpuBusy, match="this very process") as caught:
            GpuLock(UUID, what="the cell again")
        assert "a cell that ran before" in str(caught.value)
        assert "close the runner" in str(caught.value)
    GpuLock(UUID, what="afterwards").close()


def test_closing_frees_and_may_be_repeated():
    lock = GpuLock(UUID, what="one")
    lock.close()
    lock.close()
    assert holder(UUID) is None
    GpuLock(UUID, what="two").close()


def test_waiting_ends_when_the_holder_does():
    with another_process() as child:
        threading.Timer(0.1, child.stdin.close).start()
        with GpuLock(UUID, what="patient", wait_s=30):
            assert holder(UUID)["what"] == "patient"


def test_waiting_in_vain_ends_in_the_same_error():
    with another_process(), pytest.raises(GpuBusy, match=r"after 0\.05 s of waiting"):
        GpuLock(UUID, what="impatient", wait_s=0.05)


def test_ctrl_c_ends_the_wait_and_leaves_no_claim():
    with another_process() as child:
        striking = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - it must not strike before
            striking.start()
            GpuLock(UUID, what="interrupted", wait_s=60)
        assert holder(UUID)["pid"] == child.pid
    GpuLock(UUID, what="afterwards").close()


def test_a_started_process_does_not_inherit_the_lock():
    lock = GpuLock(UUID, what="parent")
    waiting = "import sys; sys.stdin.read()"
    child = subprocess.Popen(
        [sys.executable, "-c", waiting], stdin=subprocess.PIPE, close_fds=False
    )
    try:
        lock.close()
        GpuLock(UUID, what="next").close()
    finally:
        child.communicate()


def test_each_gpu_has_its_own_lock_that_any_user_may_take(folder):
    before = os.umask(0o077)
    try:
        with GpuLock(UUID, what="one"), GpuLock("MIG-2", what="other"):
            pass
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()]
    assert modes == [0o666, 0o666]


def test_nobody_holds_a_gpu_that_was_never_locked():
    assert holder("GPU-never") is None


def test_a_look_at_the_holder_does_not_stand_in_the_way():
    with another_process() as child:
        child.stdin.close()
        child.wait()
        stop = threading.Event()

        def look():
            while not stop.is_set():
                holder(UUID)

        thread = threading.Thread(target=look)
        thread.start()
        try:
            for _ in range(200):
                GpuLock(UUID, what="briefly", wait_s=1).close()
        finally:
            stop.set()
            thread.join()


@pytest.mark.parametrize("missing", ["nowhere", "file"])
def test_a_folder_that_cannot_hold_locks_is_named(folder, monkeypatch, missing):
    (folder / "file").touch()
    monkeypatch.setenv("KT_LAB_LOCKS", str(folder / missing))
    with pytest.raises(UsageError, match="KT_LAB_LOCKS") as caught:
        GpuLock(UUID, what="x")
    assert str(folder / missing) in str(caught.value)


def test_a_uuid_with_slashes_stays_in_the_folder_and_an_empty_one_is_refused(folder):
    with GpuLock("MIG-GPU-5ca1/1/0", what="x"):
        assert [path.name for path in folder.iterdir()] == ["kt_lab-MIG-GPU-5ca1_1_0.lock"]
    with pytest.raises(UsageError, match="uuid"):
        GpuLock("", what="x")


def test_a_negative_wait_is_refused():
    with pytest.raises(UsageError, match="wait_s"):
        GpuLock(UUID, what="x", wait_s=-1)


def test_processes_that_see_one_gpu_each_do_not_wait_for_each_other(monkeypatch):
    """Also where NVML tells no identity: to each its GPU is index 0."""
    monkeypatch.setattr(facts, "gpu_uuid", lambda _: None)
    names = []
    for visible in ("2", "3", "GPU-5ca1ab1e", "1,0"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        names.append(facts.lock_name())
    assert len(set(names)) == 4
    assert facts.lock_name(1) == "index-0"
    assert facts.lock_name(7) == "index-7"  # no such GPU: others must be asked what is wrong
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert facts.lock_name(2) == names[0]
    monkeypatch.setattr(facts, "gpu_uuid", lambda _: UUID)
    assert facts.lock_name(2) == UUID
