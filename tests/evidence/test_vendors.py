"""torch's own paths beside the recorded best: the report, and a machine without a GPU."""

import argparse
import importlib

import pytest

from kt_lab.errors import UsageError
from kt_lab.evidence.vendors import report


def test_the_report_sets_the_best_config_beside_each_path_and_says_what_did_not_compile():
    row = {"workload": "toy/1", "vendor_name": "torch.toy", "config": {}, "kt_lab_us": [5.0, 6, 7]}
    both = row | {"vendor_us": [12.0, 12, 12], "compiled_us": [3.0, 3, 3], "compile_error": ""}
    refused = row | {"vendor_us": [6.0, 6, 6], "compile_error": "Unsupported: no"}
    first, second, third = report({"gpu": "h200", "rows": [both, refused]}).splitlines()
    assert "h200" in first
    assert "ratio 0.50, torch.toy" in second
    assert "ratio 2.00, torch.compile" in second
    assert "torch.compile" not in third
    assert third.endswith("Unsupported: no")


@pytest.mark.parametrize("piece", ["vendors", "flush"])
def test_without_a_gpu_it_says_so(piece, tmp_path):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    module = importlib.import_module(f"kt_lab.evidence.{piece}")
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    given = argparse.Namespace(**vars(parser.parse_args([])), out=tmp_path / "out.json")
    with pytest.raises(UsageError, match=r"needs a GPU that torch can use.*kt-lab doctor"):
        module.run(given)
