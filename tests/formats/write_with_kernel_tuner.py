"""Makes fixtures/vector_add.json and vector_add_T4.json with the real Kernel Tuner and gcc.

    python tests/formats/write_with_kernel_tuner.py

The two files in the repository were written by Kernel Tuner 1.5.0, by its C backend.
"""

import os
import tempfile
from pathlib import Path

FIXTURES = Path(__file__).resolve().parent / "fixtures"

# UNROLL 3 does not compile, with a message that Kernel Tuner takes for a lack of shared memory:
# any other compiler error ends its run.
SOURCE = r"""
#include <time.h>
#if UNROLL == 3
#error "uses too much shared data"
#endif
float vector_add(float *c, float *a, float *b, int n) {
    struct timespec t0, t1;
    clock_gettime(CLOCK_MONOTONIC, &t0);
    for (int i = 0; i + UNROLL <= n; i += UNROLL)
        for (int j = 0; j < UNROLL; j++)
            c[i + j] = a[i + j] + b[i + j];
    clock_gettime(CLOCK_MONOTONIC, &t1);
    return (t1.tv_sec - t0.tv_sec) * 1e3 + (t1.tv_nsec - t0.tv_nsec) * 1e-6;
}
"""


def main():
    import kernel_tuner
    import numpy as np
    from kernel_tuner.file_utils import store_output_file

    n = np.int32(100_000)
    a, b = np.ones(n, np.float32), np.ones(n, np.float32)
    axes = {"UNROLL": [1, 2, 3, 4, 8], "threads": [1, 2048], "style": ["plain"]}
    results, _ = kernel_tuner.tune_kernel(
        "vector_add",
        SOURCE,
        int(n),
        [np.zeros_like(a), a, b, n],
        axes,
        restrictions=["UNROLL < 8 or threads == 1"],
        block_size_names=["threads"],
        lang="C",
        compiler="gcc",
        iterations=5,
        cache=str(FIXTURES / "vector_add.json"),
    )
    store_output_file(str(FIXTURES / "vector_add_T4.json"), results, axes)


if __name__ == "__main__":
    for old in FIXTURES.glob("vector_add*"):
        old.unlink()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # the compiled libraries land in the current folder
        main()
