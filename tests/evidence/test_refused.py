import numpy as np
import pytest

from kt_lab.cells import recorded
from kt_lab.commands.evidence import EVIDENCE
from kt_lab.evidence import refused
from kt_lab.evidence.ablation import WHOLE, changed
from kt_lab.evidence.cold import BUDGETS
from kt_lab.search import make_searcher
from kt_lab.search.scout import ScoutSearch

WORKLOAD = "softmax/4096x640"


@pytest.mark.parametrize("share", refused.SHARES)
def test_a_region_fails_and_all_else_is_as_recorded(share):
    whole, part = recorded(WORKLOAD, "h200"), refused.refused(WORKLOAD, "h200", share)
    works = np.isfinite(part.latency_us)
    assert 1 - works.mean() == pytest.approx(share, abs=0.05)
    np.testing.assert_array_equal(part.latency_us[works], whole.latency_us[works])
    assert works[part.space.index(part.space.default)]
    assert part.optimum_us >= whole.optimum_us


def test_what_fails_is_what_asks_for_more():
    part = refused.refused(WORKLOAD, "h200", 0.3)
    rows = part.space.enumerate()
    works = np.isfinite(part.latency_us)
    ordered = [i for i, p in enumerate(part.space.parameters) if p.ordered]
    below = (rows[:, None, ordered] <= rows[None, :, ordered]).all(axis=2)
    assert not (below & ~works[:, None] & works[None, :]).any()


def test_a_variant_counts_failures_otherwise_and_is_taken_back():
    own = ScoutSearch._targets
    for name, quantile in (("failures slow", 0.9), ("failures typical", 0.5)):
        with changed(refused.VARIANTS[name]):
            searcher = make_searcher("scout", recorded(WORKLOAD, "h200").space, seed=0)
            searcher._prepare()
            x = searcher._seen_as(searcher.space.enumerate()[:5])
            values = np.array([1.0, 2.0, 4.0, np.inf, np.nan])
            y = searcher._targets(x, values)
            assert y[3] == pytest.approx(np.quantile(y[:3], quantile))
            assert np.nanmean(y) == pytest.approx(0, abs=1e-12)
            assert np.isnan(y[4])
    assert ScoutSearch._targets is own
    assert np.isnan(searcher._targets(x, values)[3])


def test_a_search_is_judged_at_every_budget():
    run = refused.searched(WORKLOAD, "h200", 0.7, WHOLE, 0, 60, 16)
    best = refused.refused(WORKLOAD, "h200", 0.7).optimum_us
    assert len(run["judged_us"]) == len(BUDGETS)
    assert all(0.9 * best < us < 3 * best for us in run["judged_us"])


def test_the_command_is_known():
    assert EVIDENCE["refused"][0] == "kt_lab.evidence.refused"
