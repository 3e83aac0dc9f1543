"""One thread for a searcher's linear algebra: its cores belong to the runner."""

import functools
from contextlib import AbstractContextManager


def single_thread() -> AbstractContextManager:
    """Returns a context in which linear algebra runs in one thread, whatever the settings.

    Matrices here are small, and threads that wait for each other take the time that compiling
    needs. The libraries are looked for once, NumPy's and SciPy's, which has one of its own.
    """
    return _libraries().limit(limits=1, user_api="blas")


@functools.cache
def _libraries():
    import scipy.linalg  # noqa: F401  # so that its library is there to be found
    from threadpoolctl import ThreadpoolController  # a requirement of scikit-learn

    return ThreadpoolController()
