"""The controls under a landscape's map: what searches it, and how far its way is shown."""

import ipywidgets as w

from kt_lab.errors import UsageError, whole
from kt_lab.plots import VENUES
from kt_lab.ui.choices import searcher_names
from kt_lab.ui.controls import button, dropdown

_PLAY_MS = 150  # between two readings of an animation
_BUTTONS = {
    "search": ("search", "Runs the searcher on this landscape, in the background.", "search"),
    "stop": ("stop", "Ends the search; its way so far is kept.", "stop"),
    "replay": ("play from the start", "Plays the search again from its first reading.", "refresh"),
    "back": ("step back", "Shows one reading less.", "step-backward"),
    "step": ("step", "Shows one reading more.", "step-forward"),
    "save": ("save figure", "Writes this picture as pdf, png, csv and json.", "save"),
    "to-a": ("inspect as A", "Shows the chosen cell's config as A in the inspector.", "eye"),
    "to-b": ("inspect as B", "Shows the chosen cell's config as B in the inspector.", "eye"),
}
_PATH = ("replay", "back", "step")  # the buttons that need a search to show


class SearchControls:
    """The widgets that choose, run, play and save a search.

    Attributes:
        rows: The widgets to show, one box per row.
        searcher, seed, trials, venue: What is searched, and whose page a figure fits.
        play: Turns the pages of the animation, in the browser (CSS class ktl-play).
        slider: How many readings are shown (ktl-upto).
        now: The reading that is shown, in words (ktl-now).
        buttons: By name (ktl-<name>): search, stop, replay, back, step, save, to-a, to-b.
    """

    def __init__(self, *, inspecting: bool):
        """Makes the widgets; `inspecting`: whether configs can be handed to an inspector."""
        self.searcher = dropdown("searcher", "The algorithm that chooses.", searcher_names())
        whole = {"layout": w.Layout(width="12em"), "style": {"description_width": "4em"}}
        self.seed = w.BoundedIntText(
            value=0, max=2**31 - 1, description="seed", tooltip="Fixes every choice.", **whole
        ).add_class("ktl-seed")
        self.trials = w.BoundedIntText(
            value=150,
            min=1,
            max=10**5,
            description="trials",
            tooltip="Budget: configs measured at most, failures included.",
            **whole,
        ).add_class("ktl-trials")
        self.venue = dropdown("venue", "Whose page a saved figure fits.", list(VENUES))
        self.play = w.Play(
            interval=_PLAY_MS,
            description="play",
            tooltip="Plays, pauses and resets the search.",
        ).add_class("ktl-play")
        self.slider = w.IntSlider(
            description="readings shown",
            tooltip="How many readings of the search are shown; focus it and use the arrow keys.",
            layout=w.Layout(width="34em"),
            style={"description_width": "8em"},
        ).add_class("ktl-upto")
        w.jslink((self.play, "value"), (self.slider, "value"))
        self.now = w.Label().add_class("ktl-now")
        self.buttons = on = {
            name: button(text, tip, css=f"ktl-{name}", icon=icon)
            for name, (text, tip, icon) in _BUTTONS.items()
        }
        on["stop"].disabled = True
        hand = [on["to-a"], on["to-b"]] if inspecting else []
        rows = (
            [self.searcher, self.seed, self.trials, on["search"], on["stop"]],
            [self.play, on["replay"], on["back"], on["step"], self.slider],
            [self.now],
            [self.venue, on["save"], *hand],
        )
        self.rows = [w.HBox(row, layout=w.Layout(flex_flow="row wrap")) for row in rows]

    def check(self, **numbers: int | None) -> None:
        """Raises unless each number may be set: a widget would move it into its range.

        Raises:
            UsageError: It is no whole number, or out of the range of its control.
        """
        for name, value in numbers.items():
            low, high = getattr(self, name).min, getattr(self, name).max
            if value is not None and whole(name, value, low=low) > high:
                raise UsageError(f"{name} must be in {low}..{high}, got {value!r}")

    def fit(self, count: int) -> None:
        """Makes the slider as long as a search of `count` readings, and shows all of them."""
        self.slider.max = self.play.max = max(count, 1)
        for widget in (self.slider, self.play, *(self.buttons[name] for name in _PATH)):
            widget.disabled = not count
        self.slider.value = count

    def replay(self) -> None:
        """Plays from the first reading on."""
        self.play.playing = False
        self.slider.value = self.play.value = 0
        self.play.playing = True
