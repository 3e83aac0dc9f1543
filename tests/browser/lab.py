"""A JupyterLab of the test's own: real server, real kernels, and nothing of it left behind."""

import ctypes
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import psutil

from tests.shadow_data import shadow_data

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0  # a busy machine is no failure
MARK = "KT_LAB_BROWSER_TEST"  # in the environment of every process that the server starts
ALONE = 2  # processes of a kernel that computes nothing: itself, and what tracks its resources
_PR_SET_PDEATHSIG = 1
# The pop-up that asks about news would lie over every screenshot.
_PAGE = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}


def _end_with_parent() -> None:
    """Has Linux end this process when the tests are killed."""
    with suppress(AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Lab:
    """A JupyterLab server on copies of the notebooks, with its own settings and data folder.

    Attributes:
        notebooks: The folder it serves: copies of the shipped notebooks.
        data: The folder of recorded data that its kernels see: links to the shipped one, so
            that what a notebook stores stays out of the tree.
        url: Where it listens, without a slash at the end.
        token: What its API and its pages ask for.
    """

    def __init__(self, directory: Path):
        """Starts the server and waits until it answers.

        Args:
            directory: Empty; everything that the server writes goes there.
        """
        self._mark, self.token = secrets.token_hex(8), secrets.token_hex(16)
        self.notebooks, self.data = directory / "notebooks", directory / "data"
        self.notebooks.mkdir()
        for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
            shutil.copy(path, self.notebooks)
        self.data.mkdir()
        shadow_data(self.data)
        settings = directory / "config" / "labconfig"
        settings.mkdir(parents=True)
        (settings / "page_config.json").write_text(json.dumps(_PAGE))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._log = directory / "server.log"
        self._server = self._start(directory, port)
        self._await()

    def _start(self, directory: Path, port: int) -> subprocess.Popen:
        """Returns the server's process; it and its kernels carry the mark."""
        own = ("config", "data", "runtime")
        private = {f"JUPYTER_{n.upper()}_DIR": str(directory / f"jupyter_{n}") for n in own}
        private["JUPYTER_CONFIG_DIR"] = str(directory / "config")
        environment = (
            os.environ
            | private
            | {
                MARK: self._mark,
                "JUPYTER_TOKEN": self.token,
                "KT_LAB_DATA": str(self.data),
                "KT_LAB_LOCKS": str(directory / "locks"),
                "IPYTHONDIR": str(directory / "ipython"),
                "PYTHONPATH": str(ROOT),
            }
        )
        command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1"]
        command += [f"--port={port}", "--ServerApp.port_retries=0", "--expose-app-in-browser"]
        command += ["--allow-root", f"--notebook-dir={self.notebooks}"]
        with self._log.open("wb") as log:
            return subprocess.Popen(
                command,
                cwd=directory,
                env=environment,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                preexec_fn=_end_with_parent,
            )

    def _await(self) -> None:
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until and self._server.poll() is None:
            with suppress(OSError):
                self.api("GET", "status")
                return
            time.sleep(0.1)
        self.close()
        raise RuntimeError(f"JupyterLab did not come up:\n{self._log.read_text()[-4000:]}")

    def api(self, method: str, path: str) -> object:
        """Returns what the server's REST API answers; None where it answers nothing."""
        request = urllib.request.Request(
            f"{self.url}/api/{path}",
            method=method,
            headers={"Authorization": f"token {self.token}"},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def address(self, name: str) -> str:
        """Returns the address of a notebook, alone on its page."""
        return f"{self.url}/doc/tree/{name}?token={self.token}"

    def processes(self) -> list[psutil.Process]:
        """Returns every process that the server or anything below it started, but itself.

        They are known by their environment: who lost its parent is found as well.
        """
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                marked = process.environ().get(MARK) == self._mark
                if marked and process.pid != self._server.pid:
                    found.append(process)
        return found

    def computing(self) -> list[psutil.Process]:
        """Waits until processes compute runs beside the kernel; returns all of them.

        Runs that were stored before are counted at once, before a process has started.
        """
        until = time.monotonic() + PATIENCE_S / 4
        while len(found := self.processes()) <= ALONE:
            assert time.monotonic() < until, f"processes compute the runs, got {found}"
            time.sleep(0.02)
        return found

    def without(self, gone: "list[psutil.Process]") -> list[psutil.Process]:
        """Waits until these processes have ended; returns those that have not."""
        return psutil.wait_procs(gone, timeout=PATIENCE_S / 4)[1]

    def shut_kernels(self) -> list[psutil.Process]:
        """Shuts every kernel down as the user would; returns the processes left over."""
        for kernel in self.api("GET", "kernels"):
            self.api("DELETE", f"kernels/{kernel['id']}")
        return self.without(self.processes())

    def close(self) -> None:
        """Ends the server and whatever it started."""
        for process in [*self.processes(), self._server]:
            with suppress(psutil.Error, OSError):
                process.kill()
        self._server.wait()
