"""A searcher that follows a script, for evidence about runners."""

from collections import deque
from collections.abc import Sequence

from kt_lab.trial import Config, Proposal, Trial


class Scripted:
    """Proposes given configs in their order, as many as it is asked for."""

    def __init__(self, configs: Sequence[Config], *, repetitions: int | None = None):
        """Takes the script.

        Args:
            configs: What to propose; a config may come again.
            repetitions: Of every proposal; None leaves it to the runner.
        """
        self._waiting = deque(enumerate(configs))
        self._repetitions = repetitions

    @property
    def done(self) -> bool:
        """Whether the script is at its end."""
        return not self._waiting

    def ask(self, n: int) -> list[Proposal]:
        """Returns the next up to `n` proposals."""
        taken = [self._waiting.popleft() for _ in range(min(n, len(self._waiting)))]
        return [Proposal(i, c, repetitions=self._repetitions, origin="script") for i, c in taken]

    def tell(self, trials: Sequence[Trial]) -> None:
        """Nothing to learn."""

    def close(self) -> None:
        """Nothing to release."""
