from dataclasses import replace

import pytest

from kt_lab.errors import ConstraintError, UnknownName, UsageError
from kt_lab.kernels import get_kernel, get_workload, workload_of_shape
from kt_lab.keys import Dispatch, Key, carried
from kt_lab.trial import Config
from kt_lab.workload import Workload
from tests.test_decisions import make

SHAPE = Workload("toy", "3x5000x64", {"E": 3, "M": 5000, "N": 64}, "bfloat16")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (Key(), ()),
        (Key(("N", "E")), (64, 3)),
        (Key("cdiv(M, E)"), (1667,)),
        (Key(("dtype", "next_power_of_two(M)")), ("bfloat16", 8192)),
        (Key(("cdiv(M, E)", "M * N > 1000")), (1667, True)),
        (Key(("M",), {"M": (16, 5000)}), (1,)),
        (Key(("M",), {"M": (16, 4999)}), (2,)),
        (Key(("cdiv(M, E)", "N"), {"cdiv(M, E)": (2000,)}), (0, 64)),
        (Key(("gpu",)), ("h200",)),
    ],
)
def test_a_key_is_computed_from_the_facts_of_the_call(key, value):
    found = key(SHAPE, gpu="h200")
    assert found == value
    assert [type(x) for x in found] == [type(x) for x in value]


def test_a_bucket_holds_its_upper_edge_and_powers_of_two_share_theirs():
    key = Key(("M", "next_power_of_two(N)"), {"M": (16, 256)})
    values = [
        key(replace(SHAPE, extents={"M": m, "N": n})) for m, n in ((1, 33), (16, 64), (17, 65))
    ]
    assert values == [(0, 64), (0, 64), (1, 128)]


def test_what_a_kernel_has_not_is_no_key():
    assert Key(("M", "dtype", "gpu")).check(get_kernel("softmax"))
    with pytest.raises(UnknownName, match=r"argument of softmax.*'num_elements'"):
        Key(("num_elements",)).check(get_kernel("softmax"))
    with pytest.raises(UnknownName, match=r"toy/3x5000x64.*'G'"):
        Key(("cdiv(M, G)",))(SHAPE)
    with pytest.raises(UnknownName, match="'gpu'"):
        Key(("gpu",))(SHAPE)


@pytest.mark.parametrize(
    ("terms", "edges", "error"),
    [
        (("M", "M"), {}, UsageError),
        (("M",), {"N": (1,)}, UsageError),
        (("M",), {"M": (2, 2)}, UsageError),
        (("M ** 2",), {}, ConstraintError),
        (("open('x')",), {}, ConstraintError),
    ],
)
def test_a_key_that_cannot_be_one_is_refused(terms, edges, error):
    with pytest.raises(error):
        Key(terms, edges)


def test_a_table_falls_back_to_the_default_on_a_miss():
    default, tuned = Config(BLOCK=16, WAVES=2), Config(BLOCK=64, SPLIT=4)
    table = Dispatch(Key(("next_power_of_two(M)",)), {(8192,): tuned})
    assert table.config(SHAPE, default) == Config(BLOCK=64, WAVES=2), "in its own parameters"
    other = replace(SHAPE, extents={"M": 8193})
    assert table.config(other, default) is default


def test_a_config_is_carried_into_the_parameters_of_another_workload():
    default = Config(BLOCK=16, WAVES=2)
    assert carried(Config(BLOCK=64, SPLIT=4), default) == Config(BLOCK=64, WAVES=2)
    same = Config(WAVES=8, BLOCK=64)
    assert carried(same, default) is same


def test_decisions_make_a_table_where_they_agree():
    wide = make(workload="8192x8192", extents={"M": 8192, "N": 8192}, config=make().default)
    table = Dispatch.of_winners(Key(("N",)), [make(), wide])
    assert table.configs == {(640,): make().config, (8192,): make().default}
    assert Dispatch.of_winners(Key(), [make(), wide]).configs == {}, "two configs for one value"
    same = replace(wide, config=make().config)
    assert Dispatch.of_winners(Key(), [make(), same]).configs == {(): make().config}


def test_a_value_that_another_workload_shares_is_left_to_the_default():
    wide = make(workload="8192x8192", extents={"M": 8192, "N": 8192})
    untuned = Workload("softmax", "1x8192", {"M": 1, "N": 8192}, make().dtype)
    table = Dispatch.of_winners(Key(("N",)), [make(), wide], others=[untuned])
    assert table.configs == {(640,): make().config}


def test_a_config_that_is_no_member_for_a_shape_is_a_miss():
    ragged = workload_of_shape("jagged_rowwise/16639x8192x64x6x1")
    kernel = get_kernel("jagged_rowwise")
    aligned = get_workload("jagged_rowwise/16640x8192x64x2x1")
    picked = next(c for c in kernel.space(aligned).configs(kernel.space(aligned).enumerate())
                  if not kernel.space(ragged).contains(c))  # fmt: skip
    key = Key(("WIDTH", "GROUPS"))
    table, space = Dispatch(key, {key(aligned): picked}), kernel.space(ragged)
    assert table.config(ragged, space.default) == picked
    assert table.config(ragged, space.default, space=space) == space.default
    assert table.config(aligned, space.default, space=kernel.space(aligned)) == picked
