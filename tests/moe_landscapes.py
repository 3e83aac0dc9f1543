"""Landscapes of the FP8 quantisers by formula: published configs and some of the wide space."""

import hashlib
import math

import numpy as np
import pandas as pd

from kt_lab.kernels import get_kernel
from kt_lab.kernels.moe_spaces import PUBLISHED, published
from kt_lab.landscape import Landscape

FACTS = {
    "gpu": "NVIDIA H200",
    "slug": "h200",
    "capability": "9.0",
    "triton": "3.6.0",
    "sensors": {"driver": "580.1"},
}


def latency_us(config, workload):
    """Tiles have a best size that grows with the workload; more warps help large tiles."""
    size = math.prod(workload.extents[n] for n in workload.extents if n not in ("SKEW", "LAYOUT"))
    wanted = 13 + (math.log2(size) - 24) / 4
    tile = math.log2(math.prod(v for k, v in config.items() if k.startswith("BLOCK")))
    off = abs(tile - wanted) * 0.08 + 0.03 * abs(math.log2(config["num_warps"]) - 2.5)
    off += 0.3 * (config.get("SEM") == "acq_rel") + 0.01 * config.get("TRIPS", 1)
    return 20 * (size / 2**24) ** 0.5 * math.exp(off)


def moe_landscape(workload, *, seed=0, noise=0.01, extra=40, gpu="h200"):
    """Records every published config of a workload and some others, two visits of 12 samples.

    Configs that differ in num_stages alone are one binary. Each block is off by `noise`.
    """
    whole = get_kernel(workload.kernel).space(workload)
    rng = np.random.default_rng(seed)
    chosen = dict.fromkeys(
        c for n in PUBLISHED[workload.kernel] for c in published(workload.kernel, n)
    )
    chosen |= dict.fromkeys([whole.default, *whole.sample(extra, rng=rng)])
    rows = [_row(config, workload, whole, rng, noise) for config in chosen]
    manifest = {
        "kernel": workload.kernel,
        "workload": workload.key,
        "gpu": gpu,
        "extents": dict(workload.extents),
        "dtype": workload.dtype,
        "source": workload.source,
        "space": whole.describe(),
        "fingerprint": whole.fingerprint,
        "kernel_source": "recorded",
        "flush_us": 60.0,
        "facts": [FACTS | {"slug": gpu}],
    }
    return Landscape(pd.DataFrame(rows), manifest)


def _row(config, workload, whole, rng, noise):
    code = {k: v for k, v in config.items() if k != "num_stages"}
    true_us = latency_us(config, workload)
    offsets = np.exp(noise * rng.standard_normal(2))
    samples = np.repeat(true_us * offsets, 12) * np.exp(noise * rng.standard_normal(24))
    return {f"p_{n}": v for n, v in zip(whole.names, whole.row(config), strict=True)} | {
        "status": "ok",
        "error": "",
        "samples_us": samples.tolist(),
        "visit": [0] * 12 + [1] * 12,
        "specialisation": repr(config),
        "code_hash": hashlib.sha256(repr(sorted(code.items())).encode()).hexdigest()[:12],
        "grid": str(math.prod(v for k, v in config.items() if k.startswith("BLOCK"))),
        "compile_s": 0.5,
        "compile_cpu_s": 0.5,
        "compile_workers": 1,
        "check_s": 0.002,
        "timing_overhead_s": 0.01,
        "failure_s": None,
        "registers": 32,
        "spills": 0,
        "shared_bytes": 1024,
    }
