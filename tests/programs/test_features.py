"""Features: exact numbers on small programs."""

import numpy as np
import pytest

from kt_lab.programs.features import COLUMNS, STRUCTURE, features, n_grams, structure
from kt_lab.programs.operators import operators
from kt_lab.programs.text import parse

TEXT = """kernel row_sum
in x f32 [8,16]
tmp s f32 [8:r] reg
out z f32 [8] nt
---
8:p
| s[{0}] = 0
| 16:v
| | s[{0}] += x[{0},{1}]
| z[{0}] = s[{0}]
"""
COLUMN_MAJOR = """kernel row_sum
in x f32 [16,8]
out z f32 [8]
---
8
| z[{0}] = 0
8
| 16:u4
| | z[{0}] += x[{1},{0}]
"""


def named(text):
    return dict(zip(STRUCTURE, structure(parse(text)), strict=True))


def test_structure_counts_what_a_compiler_would_look_at():
    found = named(TEXT)
    assert (found["operations"], found["scopes"], found["depth"]) == (3, 2, 2)
    work = 8 + 8 * 16 + 8
    assert found["work"] == pytest.approx(np.log2(1 + work))
    assert found["p_scopes"] == found["v_scopes"] == found["temporaries"] == 1
    assert found["reused_dims"] == found["streamed_outputs"] == 1
    assert found["reg_bytes"] == pytest.approx(np.log2(1 + 4))
    assert found["heap_bytes"] == found["stack_bytes"] == 0
    assert found["p_share"] == 1
    assert found["v_share"] == found["wide_vector_share"] == pytest.approx(128 / work)
    assert found["reduction_share"] == pytest.approx(128 / work)
    assert found["scalar_reduction_share"] == found["u_share"] == 0
    assert found["p_extent"] == pytest.approx(np.log2(9))
    # accesses: s 8, then s and x 128 each, then z and s 8 each; only x and z go with unit stride
    assert found["unit_share"] == pytest.approx((128 + 8) / (8 + 2 * 128 + 2 * 8))
    assert found["strided_share"] == 0
    assert found["touched_bytes"] == pytest.approx(np.log2(1 + 4 * (128 + 8)))


def test_strides_are_those_of_the_innermost_loop():
    found = named(COLUMN_MAJOR)
    assert found["strided_share"] == pytest.approx(128 / (8 + 2 * 128))
    assert found["unit_share"] == pytest.approx(8 / (8 + 2 * 128))
    assert found["fixed_share"] == pytest.approx(128 / (8 + 2 * 128))
    assert found["scalar_reduction_share"] == pytest.approx(128 / 136)
    assert (found["u_scopes"], found["v_scopes"]) == (1, 0)
    assert found["inner_extent"] == pytest.approx((8 * np.log2(9) + 128 * np.log2(17)) / 136)


def test_n_grams_tell_programs_apart_and_do_not_depend_on_the_name():
    first, second = parse(TEXT), parse(COLUMN_MAJOR)
    assert n_grams(first).shape == (COLUMNS,)
    assert (n_grams(first) != n_grams(second)).any()
    renamed = parse(TEXT.replace("kernel row_sum", "kernel other"))
    np.testing.assert_array_equal(features(first), features(renamed))
    marked = parse(TEXT.replace("16:v", "16"))
    changed = n_grams(first) != n_grams(marked)
    assert 1 <= changed.sum() < COLUMNS / 2


def test_every_operator_has_finite_features():
    rows = [features(o.program(o.tiny)) for o in operators()]
    assert np.isfinite(rows).all()
    assert {len(row) for row in rows} == {len(STRUCTURE) + COLUMNS}
    assert len({row.tobytes() for row in rows}) == len(rows)
