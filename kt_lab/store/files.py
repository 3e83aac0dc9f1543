"""Files that one process writes at a time, and errors of the disk in words."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from weakref import WeakSet

from kt_lab.errors import StoreError

# A lock is the file's, however many processes have it open: a forked child must not keep it.
_LOCKED: WeakSet[BinaryIO] = WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: [file.close() for file in list(_LOCKED)])


@contextmanager
def writing(path: Path, *, kept: str = "nothing that was stored is touched") -> Iterator[None]:
    """Turns what the disk says (full, read-only, no permission) into a StoreError.

    Args:
        path: What is being written.
        kept: What is safe all the same.
    """
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{path.name} must be writable in {path.parent}, got {type(error).__name__}: "
            f"{error.strerror or error}; {kept}: make room there, or the folder writable, and run "
            "again, which goes on from what is stored; or name another folder"
        ) from error


def lock(path: Path, *, wait: bool) -> BinaryIO | None:
    """Opens a file to be appended to, made with its folder if absent, and locks it.

    The lock ends when the file is closed, at the latest with the process, however it ends. (It is
    `flock`'s: it holds between threads too. Windows has none: nobody keeps two runs apart there.)

    Args:
        path: The file.
        wait: For whoever holds it.

    Returns:
        None: somebody holds it, and it was not waited for.

    Raises:
        StoreError: The file cannot be written, or its file system has no locks.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            file = path.open("ab", buffering=0)
            _LOCKED.add(file)
            try:
                if not _flock(file, wait=wait):
                    file.close()
                    return None
                if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                    return file
                file.close()  # removed or replaced while it was waited for
            except BaseException:
                file.close()
                raise


def _flock(file: BinaryIO, *, wait: bool) -> bool:
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except ImportError:
        pass
    except BlockingIOError:
        return False
    return True


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Gives the name of a file to write, which then takes the place of `path`.

    A power loss leaves one of them. The folder is made if absent.

    Raises:
        StoreError: The disk refuses; what was there before still is.
    """
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}.partial")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield partial
            with partial.open("rb") as file:
                os.fsync(file.fileno())
            os.replace(partial, path)
            if hasattr(os, "O_DIRECTORY"):
                folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)
        finally:
            partial.unlink(missing_ok=True)
