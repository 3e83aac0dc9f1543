"""Files as others write them, made by hand: small, and with every quirk that was met."""

import copy
import gzip
import json

import numpy as np

HUB = {  # a cache as on the public hub: errors are strings in `time`, repeats are cold at first
    "device_name": "NVIDIA A100-PCIE-40GB",
    "kernel_name": "convolution_kernel",
    "problem_size": [4096, 4096],
    "tune_params_keys": ["block_size_x", "block_size_y", "use_padding", "filter_width"],
    "tune_params": {
        "block_size_x": [16, 32, 48, 64],
        "block_size_y": [1, 2, 4],
        "use_padding": [0, 1],
        "filter_width": [15],
    },
    "objective": "time",
    "cache": {},
}
CONDITIONS = [
    "block_size_x*block_size_y<=128",
    "use_padding==0 or block_size_x % 32 != 0",
    "block_size_x / 16 < 100",  # a division: outside kt_lab's language
]


def _record(x, y, padding):
    record = {"block_size_x": x, "block_size_y": y, "use_padding": padding, "filter_width": 15}
    costs = {"compile_time": 500.0 + x, "verification_time": 0, "benchmark_time": 40.0}
    record |= costs | {"strategy_time": 3.0, "framework_time": 2.0, "timestamp": "2024-01-01"}
    if (x, y) == (64, 2):
        return record | {"time": "RuntimeFailedConfig"}
    if (x, y, padding) == (48, 2, 1):
        return record | {"time": "CompilationFailedConfig", "benchmark_time": 0}
    if (x, y, padding) == (48, 1, 1):
        return record | {"time": "InvalidConfig", "compile_time": 0, "benchmark_time": 0}
    warm = 0.5 + 0.01 * x + 0.1 * y + 0.3 * padding
    times = [warm * 2.0, warm, warm * 1.01, warm * 0.99]
    return record | {"time": sum(times) / 4, "times": times, "GFLOP/s": 1e3 / warm}


def hub():
    """Returns the hub's cache as data that a test may spoil."""
    found = copy.deepcopy(HUB)
    for x in (16, 32, 48, 64):
        for y in (1, 2, 4):
            for padding in (0, 1):
                if x * y <= 128 and (not padding or x % 32):
                    record = _record(x, y, padding)
                    found["cache"][f"{x},{y},{padding},15"] = record
    return found


def t4():
    """Returns T4 results as on the hub: its timeunit, `compilation`, errors as measured."""
    names = HUB["tune_params_keys"]
    invalidity = {
        "RuntimeFailedConfig": "runtime",
        "CompilationFailedConfig": "compile",
        "InvalidConfig": "constraints",
    }
    results = [
        {
            "timestamp": record["timestamp"],
            "configuration": {name: record[name] for name in names},
            "times": {
                "compilation": record["compile_time"],
                "benchmark": record["benchmark_time"],
                "framework": record["framework_time"],
                "search_algorithm": record["strategy_time"],
                "validation": 0,
                "runtimes": record.get("times", []),
            },
            "invalidity": invalidity.get(record["time"], "correct"),
            "correctness": 1,
            "measurements": [
                {"name": "time", "value": record["time"], "unit": ""},
                {"name": "GFLOP/s", "value": record.get("GFLOP/s", 0), "unit": ""},
            ],
            "objectives": ["time"],
        }
        for record in hub()["cache"].values()
    ]
    return {"metadata": {"timeunit": "miliseconds"}, "results": results}


def write(path, data):
    """Writes data as JSON, text or bytes as they are; gzipped if the name says so."""
    if isinstance(data, dict | list):
        data = json.dumps(data)
    raw = data if isinstance(data, bytes) else data.encode()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


def by_config(landscape):
    """Returns what a landscape holds of each config, whatever the order of its rows."""
    space = landscape.space
    configs = space.configs(space.enumerate())
    return {
        config: (landscape.status[at], [visit[at] for visit in landscape.samples])
        for at, config in enumerate(configs)
    }


def assert_same_readings(one, other):
    """Checks status, visits and samples of every config, exactly."""
    before, after = by_config(one), by_config(other)
    assert before.keys() == after.keys()
    for config, (status, samples) in before.items():
        assert after[config][0] == status
        for ours, theirs in zip(samples, after[config][1], strict=True):
            np.testing.assert_array_equal(ours, theirs)
