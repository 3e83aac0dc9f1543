"""Runs on a cluster of this machine: the same results, whoever dies and whatever is cut."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing, suppress
from multiprocessing import get_context

import pandas as pd
import pytest
from distributed import Client

from kt_lab import executors, recipes
from kt_lab.budget import Budget
from kt_lab.cells import NOT_REPEATABLE, run_cell
from kt_lab.errors import StoreError, UsageError
from kt_lab.executors import DaskExecutor, as_executor, fingerprint, require_processes, run_checked
from kt_lab.experiment import Experiment, process_pool
from kt_lab.store import read_table

WORKLOAD = "softmax/4096x640"


def experiment(**changes):
    given = {"searchers": ("random", "pattern"), "seeds": 6, "budget": Budget(trials=20)}
    return Experiment("spread", (WORKLOAD,), lanes=(4,), **(given | changes))


@pytest.fixture(scope="module")
def serial():
    return experiment().run()


@pytest.fixture(scope="module")
def client():
    with recipes.local(2, dashboard=False) as client:
        yield client


def same(runs, other):
    drop = list(NOT_REPEATABLE)
    left, right = (r.drop(columns=[n for n in drop if n in r]) for r in (runs, other))
    pd.testing.assert_frame_equal(left, right)
    return True


# -- what is given ----------------------------------------------------------------------------


def test_a_cluster_gives_what_one_process_gives_and_says_who_computed_it(client, serial, tmp_path):
    assert same(experiment().run(executor=client, directory=tmp_path), serial)
    _, facts = read_table(tmp_path / "spread.parquet")
    by = facts["provenance"]["computed_by"]
    assert sum(by.values()) == len(experiment().cells())
    assert f"/{os.getpid()}" not in " ".join(by)
    assert same(experiment().run(executor=client.get_executor()), serial)


def test_what_is_no_executor_is_refused(client):
    with pytest.raises(UsageError, match=r"got LocalCluster; .*get_client"):
        as_executor(client.cluster)


def test_a_patient_executor_stays_patient_when_it_asks_for_gpus(client):
    patient = DaskExecutor(client, patience_s=7200)
    asked = as_executor(patient, resources=recipes.GPU)
    assert (asked.client, asked.patience_s) == (client, 7200)
    future = asked.submit(os.getpid)
    assert not future.done(), "no worker here offers a GPU"
    future.cancel()
    assert as_executor(patient) is patient


def test_searchers_that_own_their_loop_need_a_process_each(client):
    owners = {"kt_genetic": None, "random": None}
    with (
        ThreadPoolExecutor(1) as threads,
        pytest.raises(UsageError, match="got kt_genetic on threads; use process_pool"),
    ):
        require_processes(threads, owners)
    require_processes(as_executor(client), owners)
    shared = as_executor(client)
    shared.workers = lambda: {"tcp://127.0.0.1:1": 2}
    with pytest.raises(UsageError, match="threads_per_worker=1"):
        require_processes(shared, owners)
    require_processes(shared, {"random": None})


@pytest.mark.parametrize("what", ["kt_lab", "landscape", "kernel source", "space"])
def test_a_worker_with_other_code_or_data_is_refused_by_both_names(what):
    cell = experiment().cells()[0]
    mine = fingerprint(cell)
    assert len(mine[what]) > 4
    told = f"another {what} for .*{re.escape(mine[what])} there, old here"
    with pytest.raises(UsageError, match=told):
        run_checked(cell, mine | {what: "old"})


def test_the_code_of_a_run_is_that_of_its_own_searcher(monkeypatch, tmp_path):
    before = {name: executors.code_hash(name, None) for name in ("random", "pattern")}
    changed = tmp_path / "pattern.py"
    changed.write_text("# another algorithm")
    module, find = executors.searcher_kind("pattern", None).__module__, executors._file
    monkeypatch.setattr(executors, "_file", lambda m: changed if m == module else find(m))
    executors._imported.cache_clear()
    after = {name: executors.code_hash.__wrapped__(name, None) for name in before}
    executors._imported.cache_clear()
    assert after["random"] == before["random"]
    assert after["pattern"] != before["pattern"]


def test_the_code_of_a_run_does_not_depend_on_what_a_process_has_loaded():
    program = "from kt_lab.executors import code_hash; print(code_hash('lfbo_tree', None))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == executors.code_hash("lfbo_tree", None), done.stderr


def test_a_different_cluster_is_refused_before_it_computes_anything(client, monkeypatch):
    monkeypatch.setattr(executors, "fingerprint", lambda c: fingerprint(c) | {"landscape": "f00d"})
    with pytest.raises(UsageError, match=r"another landscape .* f00d here"):
        experiment().run(executor=client)


# -- workers that die -------------------------------------------------------------------------


def kill_once(process_of):
    """Returns an on_run that kills a worker with the first run that comes."""
    killed = []

    def on_run(_):
        if not killed:
            killed.append(process_of())
            os.kill(killed[0], signal.SIGKILL)

    return on_run, killed


def test_a_killed_worker_of_a_cluster_costs_nothing_but_time(client, serial, tmp_path):
    pids = client.run(os.getpid)
    on_run, killed = kill_once(lambda: next(iter(pids.values())))
    runs = experiment().run(executor=client, on_run=on_run, directory=tmp_path)
    assert killed
    assert same(runs, serial)


def test_a_result_that_is_lost_while_dask_hands_it_on_is_computed_again():
    """distributed looks at a future twice, and its worker may die in between."""

    def future_of(does):
        future = Future()
        try:
            does()
        except ValueError as error:
            future.set_exception(error)
        return future

    def _cascade_future():  # as distributed's function, with a result that it takes for an error
        _, _, _ = (1, 2)

    def of_the_run():
        raise ValueError("its own")

    cell, deaths = experiment().cells()[0], Counter()
    assert executors._result(future_of(_cascade_future), cell, deaths) is None
    with pytest.raises(ValueError, match="its own"):
        executors._result(future_of(of_the_run), cell, deaths)
    assert executors._result(future_of(_cascade_future), cell, deaths) is None
    with pytest.raises(UsageError, match="leave its worker alive"):
        executors._result(future_of(_cascade_future), cell, deaths)


def test_a_killed_process_of_a_pool_costs_nothing_but_time(serial, tmp_path):
    with process_pool(1) as pool:
        first = pool.submit(os.getpid).result()
        on_run, killed = kill_once(lambda: first)
        runs = experiment().run(executor=pool, on_run=on_run, directory=tmp_path)
    assert killed
    assert same(runs, serial)


def test_a_pool_that_has_been_left_is_told():
    with process_pool(1) as pool:
        pass
    with pytest.raises(StoreError, match=r"a pool must be open, .* got RuntimeError.* inside"):
        experiment().run(executor=pool)


def test_ctrl_c_does_not_reach_the_workers_of_a_pool():
    with process_pool(1) as pool:
        assert pool.submit(signal.raise_signal, signal.SIGINT).result() is None


def test_workers_have_the_environment_that_their_pool_began_in(monkeypatch):
    for folder in ("/one", "/two"):
        monkeypatch.setenv("KT_LAB_DATA", folder)
        with process_pool(1) as pool:
            assert pool.submit(os.getenv, "KT_LAB_DATA").result() == folder


def test_a_long_path_of_the_temporary_folder_does_no_harm(tmp_path):
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    program = "from kt_lab.runners.pool import Pool\nprint(Pool(1).submit(abs, -7).result())"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"TMPDIR": str(folder)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "7\n", done.stderr


class Mortal(ThreadPoolExecutor):
    """Stands for a pool whose process dies with every run of one seed."""

    window = 4

    def submit(self, fn, cell, expected):
        self.busy = getattr(self, "busy", [])
        self.busy.append(cell)
        if cell.seed != 3:
            return super().submit(fn, cell, expected)
        future = Future()
        future.set_exception(executors.BrokenExecutor("killed"))
        return future


def test_a_run_that_kills_its_workers_is_named_and_the_others_are_kept(tmp_path):
    with (
        Mortal(1) as pool,
        pytest.raises(UsageError, match=r"3 workers that died in random on .* with seed 3"),
    ):
        experiment(searchers=("random",)).run(executor=pool, directory=tmp_path)
    assert [cell.seed for cell in pool.busy].count(3) == 3
    calls = []
    runs = experiment(searchers=("random",)).run(
        directory=tmp_path, on_progress=lambda *done: calls.append(done)
    )
    assert len(calls) < 6, "what was computed before is not computed again"
    assert runs.groupby("seed").size().eq(20).all()


class Silent(Executor):
    """An executor of somebody else, which does not say how many workers it has."""

    def __init__(self, workers):
        self._inner = ThreadPoolExecutor(workers)

    def submit(self, fn, *args):
        return self._inner.submit(fn, *args)


@pytest.mark.parametrize("made", [ThreadPoolExecutor, Silent])
def test_a_pool_that_does_not_say_how_much_it_takes_leaves_runs_to_other_processes(made):
    """What is handed over is claimed: with all of it, nobody else would have anything to do."""
    taken, every = [], experiment(seeds=300, budget=Budget(trials=2)).cells()
    left = (taken.append(cell) or cell for cell in every)
    with closing(executors.spread(left, made(1), lambda: False)) as computed:
        next(computed)
    assert 1 < len(taken) < len(every)


def test_a_pool_of_others_that_breaks_says_how_to_go_on(serial, tmp_path):
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        pid = pool.submit(os.getpid).result()
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(StoreError, match=r"journal in directory.*process_pool\(\)"):
            experiment().run(executor=pool, directory=tmp_path)
    assert same(experiment().run(directory=tmp_path), serial)


# -- networks that fail -----------------------------------------------------------------------


class Wire:
    """A line to an address that can be cut."""

    def __init__(self, address):
        host, port = address.removeprefix("tcp://").split(":")
        self._far, self._ends = (host, int(port)), []
        self._door = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._door.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                near, _ = self._door.accept()
                far = socket.create_connection(self._far)
            except OSError:
                return
            self._ends += [near, far]
            for pair in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=pair, daemon=True).start()

    @staticmethod
    def _carry(source, sink):
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass

    def cut(self):
        self._door.close()
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def test_a_cut_network_ends_the_run_and_the_journal_goes_on(client, serial, tmp_path):
    wire = Wire(client.scheduler.address)
    far = Client(wire.address, timeout=1, set_as_default=False)
    got = []

    def on_run(run):
        got.append(run)
        if len(got) == 2:
            wire.cut()

    try:
        with pytest.raises(
            StoreError, match=r"within reach .* journal in directory=\.\.\. is kept"
        ):
            experiment().run(executor=far, directory=tmp_path, on_run=on_run)
    finally:
        wire.cut()
        far.close()
    assert len(got) < len(experiment().cells())
    calls = []
    runs = experiment().run(
        executor=client, directory=tmp_path, on_progress=lambda *done: calls.append(done)
    )
    assert len(calls) <= len(experiment().cells()) - len(got)
    assert same(runs, serial)


def test_a_cluster_without_workers_is_given_up(client):
    class Empty:
        status = "running"

        def get_executor(self, **_):
            return client.get_executor()

        def nthreads(self):
            return {}

    executor = DaskExecutor(Empty(), patience_s=0.0)
    with pytest.raises(StoreError, match="no worker for 0 s"):
        executor.submit(run_cell)


def test_a_closed_client_is_told(client, tmp_path):
    far = Client(client.scheduler.address, set_as_default=False)
    far.close()
    with pytest.raises(StoreError, match="got a client that is closed"):
        experiment().run(executor=far, directory=tmp_path)


# -- recipes ----------------------------------------------------------------------------------


def test_a_recipe_without_its_package_names_it(monkeypatch):
    for module in ("dask_jobqueue", "asyncssh", "distributed"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=r"package dask_jobqueue.*pip install dask-jobqueue"):
        recipes.slurm(2)
    with pytest.raises(UsageError, match=r"package distributed.*pip install .*\[dask\]"):
        recipes.local()
    with pytest.raises(UsageError, match=r"package distributed"):
        recipes.ssh(["one"])


def test_a_worker_of_a_gpu_sees_that_gpu_only(monkeypatch):
    known = ["GPU-a", "GPU-b"]
    monkeypatch.setattr(recipes, "gpu_uuid", lambda i: known[i] if i < len(known) else None)
    assert recipes.gpu_uuids() == known
    with recipes.host_gpus(dashboard=False) as client:
        client.wait_for_workers(2, timeout=30)
        seen = client.run(os.getenv, "CUDA_VISIBLE_DEVICES")
        assert sorted(seen.values()) == known
        info = client.scheduler_info()["workers"].values()
        assert [(w["nthreads"], w["resources"]) for w in info] == [(1, {"GPU": 1})] * 2
