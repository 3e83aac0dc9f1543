"""What ships in data/: every landscape against its manifest, every published number."""

import json
import random
import re
from pathlib import Path

import numpy as np
import pytest

from kt_lab.experiment import compare_cell
from kt_lab.kernels import get_kernel, get_workload, workloads
from kt_lab.kernels.moe_spaces import PUBLISHED as MOE
from kt_lab.landscape import Landscape, data_directory, landscapes, load_landscape
from kt_lab.manifests import read_manifest
from kt_lab.store.tables import read_table
from kt_lab.studies import KERNELS, LANES, field, headline, load_field, load_study
from kt_lab.study import ratio_tables
from kt_lab.transfer import earlier_path, earlier_runs

ENTRIES = landscapes()
ROOT = Path(__file__).resolve().parents[1]


# What the dataset is for needs at least so many of each; "configs" are measured ones.
FEWEST = {"kernels": 14, "workloads": 45, "gpus": 2, "landscapes": 90, "configs": 100_000}
LARGE = {"matmul_nested": 10_000, "rms_norm_dense": 20_000}  # one workload, so many configs
SINCE = {"attention", "cross_entropy", "grouped_gemm"}  # recorded after the runs next to others
LANDSCAPES_BYTES = 25e6


def test_the_dataset_is_as_large_as_it_says():
    kernels = {e.kernel for e in ENTRIES}
    found = {
        "kernels": len(kernels),
        "workloads": len({e.workload for e in ENTRIES}),
        "gpus": len({e.gpu for e in ENTRIES}),
        "landscapes": len(ENTRIES),
        "configs": sum(e.configs for e in ENTRIES),
    }
    assert all(found[name] >= fewest for name, fewest in FEWEST.items()), found
    for kernel in kernels:
        fewest = 1 if kernel in LARGE else 3
        assert len({e.workload for e in ENTRIES if e.kernel == kernel}) >= fewest
        assert {w.key for w in workloads(kernel)} >= {
            e.workload for e in ENTRIES if e.kernel == kernel
        }


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: f"{e.workload}-{e.gpu}")
def test_a_shipped_landscape_is_whole(entry):
    landscape = Landscape.load(entry.path)
    space = get_kernel(entry.kernel).space(get_workload(entry.workload))
    landscape.require(space)
    fewest = 500 if entry.kernel in MOE else 800
    assert len(landscape.table) == space.size == entry.configs >= fewest
    assert landscape.visits >= 2
    assert "NVIDIA" in landscape.manifest["facts"][0]["gpu"]
    latency = landscape.latency_us
    near = np.flatnonzero(latency <= 2 * landscape.optimum_us)
    for at in np.flatnonzero(np.isfinite(latency)):
        counts = [len(landscape.samples[v][at]) for v in range(landscape.visits)]
        assert min(counts) >= 5 or at in landscape.manifest["thin"]
    # A config right at the border of "2x the best so far" may have been on either side of it.
    clear = near[latency[near] <= 1.8 * landscape.optimum_us]
    total = [sum(len(landscape.samples[v][at]) for v in range(landscape.visits)) for at in clear]
    assert np.mean(np.asarray(total) >= 20) > 0.99
    if contention := landscape.manifest["contention"]:
        assert len(contention["factors"]) == 3
        assert contention["factors"].keys() > {"1", "4"}
    # On a crowded host, or where nobody knows how crowded it was, the wall clock of a compilation
    # says nothing.
    crowded = landscape.table["compile_workers"].max() > 16 or not contention
    assert crowded == (landscape.manifest.get("compile_clock") == "cpu")


def test_two_kernels_have_spaces_of_another_order():
    for kernel, fewest in LARGE.items():
        (entry,) = (e for e in ENTRIES if e.kernel == kernel and e.gpu == "h200")
        assert entry.configs >= fewest


def test_few_readings_are_thin():
    thin = [read_manifest(e.path.with_suffix(".json")).get("thin", []) for e in ENTRIES]
    assert sum(map(len, thin)) <= 1e-4 * sum(e.configs for e in ENTRIES)


def test_data_stays_small():
    files = [p for p in data_directory().rglob("*") if p.is_file()]
    assert sum(p.stat().st_size for p in files) < 40e6
    recorded = [p for p in files if p.is_relative_to(data_directory() / "landscapes")]
    assert sum(p.stat().st_size for p in recorded) < LANDSCAPES_BYTES
    assert max(p.stat().st_size for p in files) < 10 * 2**20


def test_the_best_configs_beat_the_latencies_they_were_asked_to_beat():
    # Helion 1.4 on an H200: softmax 7.2 us (quick effort), int4_gemm 60.6 us
    assert load_landscape("softmax/4096x640", gpu="h200").optimum_us < 7.2
    assert load_landscape("int4_gemm/1x1x7168x8192", gpu="h200").optimum_us < 60.6


@pytest.fixture(scope="module")
def geomeans():
    runs = load_study(headline())
    rows = {}
    for lanes in LANES:
        for measure, table in ratio_tables(runs, lanes=lanes).items():
            for row in table[table["scope"] == "geomean"].itertuples():
                interval = f"{row.estimate:.3f} [{row.low:.3f}, {row.high:.3f}]"
                rows[lanes, measure, row.searcher] = interval.replace("inf", "∞")
    return rows


def test_every_ratio_in_the_readme_is_recomputed_from_its_runs(geomeans):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    published = re.findall(r"[\d.∞]+ \[[\d.]+, [\d.∞]+\]", text)
    assert len(published) >= 12
    assert set(published) <= set(geomeans.values())


@pytest.fixture(scope="module")
def field_runs():
    return load_field()


# Whose choices do not hang on the last bit of a sum, which is another on another processor.
EXACT = ("random", "pattern", "genetic", "coordinate_descent", "helion_pattern", "kt_genetic")


@pytest.mark.parametrize("searcher", EXACT)
def test_a_run_of_the_field_is_recomputed_bit_by_bit(searcher, field_runs):
    cells = [cell for kernel in KERNELS for cell in field(kernel).cells()]
    cell = random.choice([cell for cell in cells if cell.searcher == searcher])
    assert compare_cell(field_runs, cell) == [], cell


def test_the_headline_is_recomputed_where_its_clock_ends_between_two_ticks():
    at = ("softmax/256x128256", "lfbo_pattern", 4, 0)
    cells = headline().cells()
    (cell,) = [c for c in cells if (c.workload, c.searcher, c.lanes, c.seed) == at]
    assert compare_cell(load_study(headline()), cell) == []


def test_the_evidence_shows_what_it_must():
    stored = {p.stem: json.loads(p.read_text()) for p in (ROOT / "data/evidence").glob("*.json")}
    rates = {row["workload"].split("/")[0]: row for row in stored["pipeline"]["rows"]}
    assert rates["softmax"]["trials_per_s"] >= 30
    assert rates["int4_gemm"]["trials_per_s"] >= 15
    storm = stored["faults"]["storm"]
    assert storm["lost"] == storm["wrong_account"] == 0
    assert all(sum(found.values()) >= 20 for found in storm["statuses"].values())
    assert not stored["faults"]["caller_holds_a_cuda_context"]
    for name in ("interrupts", "interrupts-live"):
        rows = stored[name]["rows"]
        assert sum(row["interrupts"] + row["kills"] for row in rows) >= 50
        assert sum(row["lost"] + row["doubled"] for row in rows) == 0
    confirmation = stored["confirmation"]
    assert all(row["high"] <= 0.05 for row in confirmation["level_total"])
    assert sum(row["duels"] for row in confirmation["level_total"]) >= 1000
    power = {row["test"]: row["rate"] for row in confirmation["power_total"]}
    assert power["ratio 0.98"] >= 0.9
    assert stored["duels"]["upper_95"] <= 0.05


def test_runs_next_to_recorded_workloads_are_of_spaces_as_they_are_and_of_no_recorded_shape():
    table, facts = read_table(earlier_path("h200"))
    assert facts["provenance"]["dirty"] is False
    assert {machine["gpu"] for machine in facts["machines"]} == {"NVIDIA H200"}
    assert not {key for key in table["workload"]} & {w.key for w in workloads()}
    recorded = {e.kernel for e in ENTRIES if e.gpu == "h200"} - {*LARGE, *SINCE}
    runs = {kernel: earlier_runs(kernel, "h200") for kernel in recorded}
    assert min(map(len, runs.values())) >= 9
    assert sum(map(len, runs.values())) == table["workload"].nunique()
    read = [us for kernel in runs.values() for run in kernel.values() for _, us in run]
    assert len(read) == len(table)
    assert sum(us is None for us in read) < 0.01 * len(read)


def test_what_a_recording_compiled_beside_its_landscapes_is_none(tmp_path, monkeypatch):
    """`kt-lab record` keeps Triton's cache, JSON files at this depth, among the landscapes."""
    source = landscapes()[0].path
    folder = tmp_path / "landscapes" / source.parent.parent.name / source.parent.name
    folder.mkdir(parents=True)
    for path in (source, source.with_suffix(".json")):
        (folder / path.name).write_bytes(path.read_bytes())
    cached = tmp_path / "landscapes" / "triton_cache" / "ABC" / "__grp__softmax.json"
    cached.parent.mkdir(parents=True)
    cached.write_text('{"child_paths": {}}')
    monkeypatch.setenv("KT_LAB_DATA", str(tmp_path))
    assert [entry.path for entry in landscapes()] == [folder / source.name]
