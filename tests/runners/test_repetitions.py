"""How often a config is launched."""

import pytest

from kt_lab.errors import UsageError
from kt_lab.runners.repetitions import Repetitions

RULE = Repetitions(probes=3, usual=10, most=20, slow=1.5, close=1.03)


@pytest.mark.parametrize(
    ("samples", "wishes", "rest"),
    [
        ([10.0] * 3, {}, 7),  # nothing to compare with
        ([10.0] * 3, {"best_us": 10.0}, 17),  # a contender
        ([10.4] * 3, {"best_us": 10.0}, 7),
        ([15.1] * 3, {"best_us": 10.0}, 0),  # slow: the probes say enough
        ([99.0, 10.0, 10.0], {"best_us": 10.0}, 17),  # the median decides, not a spike
        ([15.1] * 3, {"best_us": 10.0, "asked": 30}, 27),  # asked for on purpose
        ([15.1] * 3, {"cutoff_us": 15.0}, None),
        ([15.1] * 3, {"cutoff_us": 15.0, "asked": 3}, 0),  # nothing left to cut off
        ([14.9] * 3, {"cutoff_us": 15.0}, 7),
    ],
)
def test_what_follows_the_probes(samples, wishes, rest):
    known = {"asked": None, "best_us": None, "cutoff_us": None}
    assert RULE.rest(samples, **known | wishes) == rest


def test_never_more_probes_than_were_asked_for():
    assert (RULE.first(None), RULE.first(2), RULE.first(50)) == (3, 2, 3)


@pytest.mark.parametrize("wrong", [{"probes": 0}, {"usual": 2}, {"most": 5}, {"close": 2.0}])
def test_stages_out_of_order_are_refused(wrong):
    with pytest.raises(UsageError, match="probes"):
        Repetitions(**wrong)
