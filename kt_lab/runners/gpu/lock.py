"""One run at a time on each GPU, across processes and users: a neighbour would spoil both."""

import fcntl
import json
import os
import platform
import re
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from kt_lab.closing import Closing
from kt_lab.errors import GpuBusy, UsageError

# The same whoever asks and whatever TMPDIR says: runs that look in two folders would both go on.
_SHARED = Path("/var/tmp")
_FOLDER = "KT_LAB_LOCKS"  # environment variable that names another folder
_POLL_S = 0.25
# `holder` takes the lock for a moment to see whether it is free: a failure must repeat to count.
_AGAIN_S = 0.02


class GpuLock(Closing):
    """Holds a GPU for one run, from construction to `close` or the end of the process.

    The kernel releases the lock with the last descriptor of the file, so a killed run leaves
    nothing behind but its name, which the next holder overwrites. The descriptor is closed on
    exec: processes started by subprocess or by spawning do not hold it. A fork that never execs
    shares it, and would keep the GPU locked for as long as it lives.
    """

    def __init__(self, uuid: str, *, what: str, wait_s: float = 0.0):
        """Takes the lock.

        Args:
            uuid: The GPU's identity as NVML tells it.
            what: What it is for, told to whoever finds it busy ("measuring softmax/4096x640").
            wait_s: How long to wait for it in seconds, >= 0; Ctrl-C ends the wait.

        Raises:
            GpuBusy: Somebody holds it, this very process included.
            UsageError: The folder of the locks is missing or cannot be written.
        """
        if not wait_s >= 0:
            raise UsageError(f"wait_s must be >= 0 seconds, got wait_s={wait_s}")
        until = time.monotonic() + wait_s
        self._file = _open(uuid)
        try:
            while not _taken(self._file, fcntl.LOCK_EX):
                if time.monotonic() >= until:
                    raise GpuBusy(_busy(uuid, _content(self._file), wait_s=wait_s))
                time.sleep(min(_POLL_S, max(0.0, until - time.monotonic())))
            facts = {
                "pid": os.getpid(),
                "what": what,
                "since": datetime.now(UTC).isoformat(timespec="seconds"),
                "host": platform.node(),
            }
            self._file.truncate(0)
            self._file.seek(0)
            self._file.write(json.dumps(facts).encode())
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        """Frees the GPU; may be called twice."""
        self._file.close()


def holder(uuid: str) -> dict[str, Any] | None:
    """Returns who holds a GPU: pid, what, since (UTC) and host; None when it is free.

    The dict is empty while the holder is about to write its name.
    """
    try:
        file = _path(uuid).open("rb")
    except OSError:
        return None
    with file:
        return None if _taken(file, fcntl.LOCK_SH) else _content(file)


def _path(uuid: str) -> Path:
    if not uuid:
        raise UsageError("a GPU's uuid must name it, got ''")
    folder = os.environ.get(_FOLDER) or (_SHARED if _SHARED.is_dir() else tempfile.gettempdir())
    return Path(folder) / f"kt_lab-{re.sub(r'[^A-Za-z0-9.-]', '_', uuid)}.lock"


def _open(uuid: str) -> BinaryIO:
    """Opens a lock file that any user may open, made if absent."""
    path = _path(uuid)
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        try:
            # Without O_CREAT: in sticky folders Linux refuses it for files of other users.
            return os.fdopen(os.open(path, flags), "r+b", buffering=0)
        except FileNotFoundError:
            file = os.fdopen(os.open(path, flags | os.O_CREAT, 0o666), "r+b", buffering=0)
            os.fchmod(file.fileno(), 0o666)  # whatever the umask
            return file
    except OSError as error:
        raise UsageError(
            f"a GPU is locked by a file that every user may write, got {error.strerror} for "
            f"{path}; set {_FOLDER} to a folder that all users of this GPU may write"
        ) from None


def _taken(file: BinaryIO, kind: int) -> bool:
    """Whether the lock could be taken, at the first or the second attempt."""
    for pause in (_AGAIN_S, 0.0):
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(pause)
    return False


def _content(file: BinaryIO) -> dict[str, Any]:
    file.seek(0)
    try:
        return dict(json.loads(file.read()))
    except (ValueError, TypeError):  # its holder is writing it
        return {}


def _busy(uuid: str, found: dict[str, Any], *, wait_s: float) -> str:
    pid, host = found.get("pid"), found.get("host")
    if pid == os.getpid() and host == platform.node():
        who, stop = f"this very process ({pid})", "close the runner that holds it"
    else:
        who, stop = f"process {pid or 'unknown'} on {host or 'this host'}", f"stop process {pid}"
    waited = f" after {wait_s:g} s of waiting" if wait_s else ""
    return (
        f"a GPU must serve one run at a time, got {uuid}{waited} held by {who} since "
        f"{found.get('since', 'just now')} for {found.get('what', 'an unnamed run')}; wait with "
        f"wait_s={max(60, 2 * wait_s):g}, or {stop}"
    )
