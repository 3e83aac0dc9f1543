"""What a user may tell `scout`, and what holds where nothing is told."""

from dataclasses import dataclass

from kt_lab.search.base import Options, option

# starts, ahead, effects, and the most under way as a multiple of what keeps a machine busy: of a
# listed space, with scarce seconds, known by readings, both; of a large space
_KINDS = ((4, 0.25, 0.5, 1e9), (16, 8, 0.5, 2), (3, 0.25, 0, 1e9), (4, 1, 0, 1e9), (8, 1, 8, 1e9))


@dataclass(frozen=True)
class ScoutOptions(Options):
    """Options of `scout`."""

    starts: int | None = option(
        None,
        "Configs proposed first; None: 8 in a large space, 3 in a known one, else 4; for scarce "
        "seconds twice as many as are asked for at once, 4 to 16, or 4 in a known one.",
        unit="configs",
        low=1,
        high=10_000,
    )
    ahead: float | None = option(
        None,
        "Configs under way at most, as a multiple of those told; at least `starts`. None: 1 in a "
        "large space, else 0.25; for scarce seconds 8, or twice what keeps it busy; known, 1.",
        low=0.0,
        high=1000.0,
    )
    effects: float | None = option(
        None, "Main effects' variance; None: large 8, known 0, else 0.5.", low=0.0, high=100.0
    )
    near: float = option(0.7, "Share of a large space's draws near the best.", low=0.0, high=1.0)
    listed: int = option(
        32768, "Largest space looked at as a whole.", unit="configs", low=16, high=10**6
    )
    pool: int = option(
        4096, "Candidates at a time: the most promising.", unit="configs", low=16, high=10**6
    )
    idle: float = option(
        0.3,
        "A large space is searched anew when this share of an epoch's readings brought nothing "
        "better; 0: never.",
        low=0.0,
        high=10.0,
    )
    least_gain: float = option(
        0.0,
        "The search ends when no config is expected to be faster than the best by this share "
        "of its latency; 0: when the space is exhausted.",
        low=0.0,
        high=1.0,
    )

    def of(self, kind: int, lanes: float) -> tuple[int, float, float, float]:
        """Returns starts, ahead, effects, and the most under way over what keeps a machine busy.

        Args:
            kind: Of search: 0 of a listed space, 1 with scarce seconds, 2 known by readings, 3
                with both, 4 of a large space.
            lanes: Configs that are asked for at once: with few, the model soon chooses better.
        """
        starts = self.starts
        if starts is None and kind == 1:
            starts = int(min(_KINDS[1][0], max(_KINDS[0][0], 2 * lanes)))
        both = zip((starts, self.ahead, self.effects, None), _KINDS[kind], strict=True)
        return tuple(default if given is None else given for given, default in both)
