"""ProgramPanel: a program as text, its legal moves to choose from, its C, and what it takes."""

import html
from collections import Counter
from collections.abc import Sequence
from typing import Any

import ipywidgets as w

from kt_lab.errors import UnknownName
from kt_lab.plots.captions import counted
from kt_lab.programs.operators import workloads
from kt_lab.ui.controls import button, dropdown, offer
from kt_lab.ui.keyboard import keyboard
from kt_lab.ui.program_session import Measure, ProgramSession, State
from kt_lab.ui.shell import Shell, table_html

_ALL = "all kinds"
_BUTTONS = {
    "apply": ("Plays the chosen move and measures the new program.", "play"),
    "undo": ("Takes the last move back.", "undo"),
    "start": ("Goes back to the start program.", "fast-backward"),
    "expert": ("Goes to what the expert pass makes of the start program.", "star"),
    "measure": ("Compiles, checks and times the program.", "clock-o"),
}
_SHOWN = 12  # states of the trail
_TEXT = "max-height:28em;overflow:auto;line-height:1.25"
_OPEN: list["ProgramPanel"] = []  # the last panel made, whose processes may still be there


class ProgramPanel:
    """A panel on one program; each button is a method of the panel or of its session.

    Attributes:
        box: The widget to show; a notebook cell that ends with the panel shows it.
        session: What it does, without widgets.
        workload: The drop-down of workloads.
        kind: The drop-down of kinds of moves.
        move: The drop-down of legal moves of that kind.
        buttons: apply, undo, start, expert and measure, by name.
        shell: The status line and the drawer of errors.
    """

    def __init__(
        self,
        workload: str = "softmax/512x1024",
        *,
        threads: int = 1,
        measure: Measure | None = None,
    ):
        """Makes the panel and measures the start program; ends what an earlier one measures with.

        Args:
            workload: Key of a workload of an operator.
            threads: Of every program.
            measure: From a schedule to its reading; None: compiled and timed here.

        Raises:
            UnknownName: There is no such workload.
        """
        known = [each.key for each in workloads()]
        if workload not in known:
            raise UnknownName("workload of an operator", workload, known)
        self._threads, self._measure = threads, measure
        self._build(known)
        self.session = ProgramSession(workload, threads=threads, measure=measure)
        for earlier in _OPEN:  # as when a cell is run again: nobody else would end its processes
            earlier.close()
        _OPEN[:] = [self]
        self.workload.value = workload
        self.shell.on_change(self.workload, self._choose)
        self.shell.on_change(self.kind, self._offer_moves)
        self.shell.guarded(self.measure)

    # -- what a user does -----------------------------------------------------------------------

    def apply(self, move: str | None = None) -> None:
        """Plays a move, the chosen one by default, and measures what it leads to."""
        self.session.apply(self.move.value if move is None else move)
        self.measure()

    def undo(self) -> None:
        """Takes the last move back."""
        self.session.undo()
        self.render()

    def start(self) -> None:
        """Goes back to the start program."""
        self.session.load("")
        self.render()

    def expert(self) -> None:
        """Goes to what the expert pass makes of the start program, and measures it."""
        self.session.expert()
        self.measure()

    def measure(self) -> None:
        """Measures the program, once for each text."""
        try:
            self.session.measure()
        finally:
            self.render()

    def close(self) -> None:
        """Ends the processes that measure."""
        self.session.close()

    def render(self) -> None:
        """Shows the session's program."""
        session, state = self.session, self.session.states[-1]
        self._text.value = _pre(session.text)
        self._c.value = _pre(session.c)
        self._trail.value = trail_html(session.states)
        count = Counter(move.kind for move in session.moves)
        options = [(f"{_ALL} ({sum(count.values())})", _ALL)]
        options += [(f"{kind} ({n})", kind) for kind, n in count.items()]
        kept = self.kind.value if self.kind.value in count else _ALL
        self.kind.options = options
        self.kind.value = kept
        self._offer_moves()
        self.buttons["undo"].disabled = len(session.states) == 1
        self.shell.status.value = status_line(session.states[0], state, len(session.states) - 1)

    # -- small steps ----------------------------------------------------------------------------

    def _build(self, known: Sequence[str]) -> None:
        self.shell = Shell()
        self.workload = dropdown("workload", "Operator and its extents.", known)
        self.kind = dropdown("kind", "Kinds of moves that are legal here.", [(_ALL, _ALL)])
        self.move = dropdown("move", "Legal moves: kind, address, arguments.")
        self.buttons = {
            name: button(name, tooltip, css=f"ktl-{name}", icon=icon)
            for name, (tooltip, icon) in _BUTTONS.items()
        }
        for name in _BUTTONS:
            self.shell.on_click(self.buttons[name], getattr(self, name))
        self._text, self._c, self._trail = (w.HTML() for _ in range(3))
        for name in ("text", "c", "trail"):
            getattr(self, f"_{name}").add_class(f"ktl-{name}")
        folded = w.Accordion([self._c], titles=("the C",))
        rows = ([self.workload, self.kind, self.move], [*self.buttons.values()])
        rows = [w.HBox(row, layout=w.Layout(flex_flow="row wrap")) for row in rows]
        shown = w.HBox([self._text, self._trail])
        parts = [keyboard(), *rows, self.shell.status, shown, folded, self.shell.drawer]
        self.box = w.VBox(parts).add_class("ktl-program")

    def _choose(self) -> None:
        self.session.close()
        self.session = ProgramSession(
            self.workload.value, threads=self._threads, measure=self._measure
        )
        self.measure()

    def _offer_moves(self) -> None:
        kind = self.kind.value
        offer(self.move, [str(m) for m in self.session.moves if kind in (_ALL, m.kind)])
        self.buttons["apply"].disabled = self.move.value is None

    def _repr_mimebundle_(self, **given: Any) -> Any:
        """Shows the panel where a notebook cell ends with it."""
        return self.box._repr_mimebundle_(**given)


def status_line(start: State, state: State, moves: int) -> str:
    """Returns the status line: latency, and how it compares with the start program's."""
    after = f"after {counted(moves, 'move')}"
    if state.latency_us is None:
        return f"{after}: {state.error or 'not measured'}"
    said = f"{after}: {state.latency_us:,.2f} µs, right on every checked input"
    if start.latency_us and moves:
        said += f"; latency ratio to the start program {state.latency_us / start.latency_us:.3f}"
    return said


def trail_html(states: Sequence[State]) -> str:
    """Returns the last moves with what their programs take, as a table."""
    rows, start = [], states[0].latency_us
    for number, state in list(enumerate(states))[-_SHOWN:]:
        known = state.latency_us
        told = f"{known:,.2f}" if known is not None else ("failed" if state.error else "-")
        ratio = f"{known / start:.3f}" if known and start else ""
        rows.append((number, state.move, told, ratio))
    return table_html(rows, css="ktl-moves", heads=("", "move", "µs", "/ start"))


def _pre(text: str) -> str:
    return f'<pre style="{_TEXT}">{html.escape(text)}</pre>'
