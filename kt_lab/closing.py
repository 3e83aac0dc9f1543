"""What is closed by the end of a `with`."""

from contextlib import AbstractContextManager


class Closing(AbstractContextManager):
    """Has a `close`, which may be called twice; `with` calls it whatever happens."""

    def __exit__(self, *_):
        """Closes."""
        self.close()
