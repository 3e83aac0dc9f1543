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
