"""What two configs compile to, found out in the background."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kt_lab.inspect import TARGETS, diff
from kt_lab.kernels import subject
from kt_lab.landscape import Landscape
from kt_lab.ui.background import Background
from kt_lab.ui.progress import DONE, IDLE, STOPPED


@dataclass(frozen=True, slots=True)
class CodeSnapshot:
    """A comparison of code at one moment.

    Attributes:
        state: "idle", "running", "done", "stopped" or "failed".
        stopping: Whether it was told to stop: its result will not be shown.
        text: The unified diff, once it is done.
        error: Why it failed, in one line; else empty.
        traceback: The same in full.
    """

    state: str = IDLE
    stopping: bool = False
    text: str = ""
    error: str = ""
    traceback: str = ""


class CodeComparison(Background):
    """Compiles two configs in worker processes, and compares what comes out."""

    def __init__(
        self,
        name: str,
        landscape: Landscape,
        a: Mapping[str, Any],
        b: Mapping[str, Any],
        *,
        kind: str,
    ):
        """Prepares it; nothing is compiled before `start`.

        Args:
            name: Of the panel: of one name only one runs.
            landscape: Its kernel is compiled, by the code that is installed, for its GPU.
            a: Values of every parameter.
            b: The same, of the other config.
            kind: ttir, ttgir, llir, ptx or sass.
        """
        super().__init__(name)
        self._landscape, self._pair, self._kind, self._text = landscape, (a, b), kind, ""

    def snapshot(self) -> CodeSnapshot:
        """Returns what is known now."""
        with self._lock:
            return CodeSnapshot(text=self._text, **self._about())

    def _run(self) -> str:
        text = diff(
            subject(self._landscape.workload),
            *self._pair,
            target=target_name(self._landscape),
            kind=self._kind,
        )
        if self._stopping.is_set():
            return STOPPED
        with self._lock:
            self._text = text
        return DONE


def target_name(landscape: Landscape) -> str:
    """Returns the compile target of the GPU that a landscape was recorded on."""
    capability = str(landscape.manifest.get("facts", [{}])[0].get("capability", ""))
    return f"sm_{capability.replace('.', '')}"


def kinds(landscape: Landscape) -> tuple[str, ...]:
    """Returns the texts that can be compared there; the GPU's own code comes last."""
    target = TARGETS.get(target_name(landscape))
    return target.kinds if target else ()
