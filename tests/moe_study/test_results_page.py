"""What RESULTS.md says of the study, held by the recordings."""

from pathlib import Path

import pytest

from kt_lab.kernels import get_workload, moe_weights
from kt_lab.moe_study import recorded, sharing
from kt_lab.roofline import roofline

RESULTS = (Path(__file__).resolve().parents[2] / "notebooks" / "RESULTS.md").read_text(
    encoding="utf-8"
)


@pytest.fixture(scope="module")
def found():
    return recorded.open_study()


def test_what_is_left_of_a_shared_key_is_as_the_page_says(found):
    table = sharing.compared_keys(found)
    mended = table[table["key"] == "mended"]
    assert mended["kernel"].nunique() == len(sharing.KEYS)
    assert f"groups for one, costs up to {100 * mended['worst'].max():.0f} %." in RESULTS


def test_the_share_of_an_input_that_is_read_twice_is_told_counted_once(found):
    shares = {}
    for landscape in found:
        if landscape.kernel == "moe_weights_reduction":
            twice, workload = roofline(landscape.manifest), get_workload(landscape.workload)
            again = moe_weights.width(workload) * moe_weights.weights(workload)
            once = (twice.bytes_moved - again) / twice.bytes_moved
            share = twice.share(landscape.optimum_us)
            shares[landscape.workload] = share, once * share
    best = max(shares.values())
    assert f"| `moe_weights_reduction` | {len(shares)} | 10,152 |  |  | {best[0]:.0%} |" in RESULTS
    assert f"counted once, its best share is {100 * best[1]:.0f} %." in RESULTS
