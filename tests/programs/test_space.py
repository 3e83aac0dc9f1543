"""Schedules as a search space: what members, neighbours, mutations and crosses are."""

import functools
import pickle
from itertools import pairwise

import numpy as np
import pytest

from kt_lab.errors import ProgramError, UsageError
from kt_lab.prior import Prior, PriorReading
from kt_lab.programs.moves import KINDS
from kt_lab.programs.operators import get_operator
from kt_lab.programs.schedule import legal_moves, parse_schedule, replay, schedule_text
from kt_lab.programs.space import ScheduleSpace
from kt_lab.programs.text import parse, to_text
from kt_lab.search import get_searcher, make_searcher
from kt_lab.search.conformance import CHECKS, check_searcher
from kt_lab.trial import Config, Measurement, Trial

OPERATORS = ("row_sum", "softmax", "matmul")


def start(name):
    operator = get_operator(name)
    return operator.program(operator.tiny)


def make(name, **options):
    return ScheduleSpace(start(name), **options)


def path(space, config):
    """The texts of a schedule's programs, the start program's first."""
    moves = parse_schedule(config["schedule"])
    return [to_text(replay(space.program, moves[:n])) for n in range(len(moves) + 1)]


@pytest.mark.parametrize("name", OPERATORS)
def test_whatever_the_space_makes_is_a_member_and_never_goes_in_a_circle(name):
    space, rng = make(name, longest=12), np.random.default_rng(0)
    drawn = space.sample(8, rng=rng)
    made = [*drawn, *space.neighbours(drawn[0])[:20]]
    made += [space.mutate(c, rng=rng) for c in drawn]
    made += [space.cross(a, b, rng=rng) for a in drawn[:3] for b in drawn[3:6]]
    assert max(len(parse_schedule(c["schedule"])) for c in drawn) > 5
    for config in made:
        assert space.contains(config)
        texts = path(space, config)
        assert len(texts) <= 13
        assert len(set(texts)) == len(texts)
        assert space.key(config) == texts[-1] == to_text(space.replayed(config))


@pytest.mark.parametrize("name", ["row_sum", "matmul"])
def test_neighbours_are_all_programs_one_move_away_each_once(name):
    space = make(name, longest=6)
    for config in [space.default, *space.sample(2, rng=np.random.default_rng(1))]:
        program, mine = space.replayed(config), space.key(config)
        texts = [space.key(near) for near in space.neighbours(config)]
        assert len(set(texts)) == len(texts)
        assert mine not in texts
        if config["schedule"]:
            assert path(space, config)[-2] in texts  # the last move undone
        reached = {to_text(replay(program, [move])) for move in legal_moves(program)} - {mine}
        undone = {path(space, config)[-2]} if config["schedule"] else set()
        if len(parse_schedule(config["schedule"])) < space.longest:
            assert set(texts) == reached | undone
        else:
            assert set(texts) <= reached | undone
    for near in space.neighbours(space.default):
        assert space.default in space.neighbours(near)


def test_a_program_whose_temporaries_have_names_of_their_own_is_tuned_as_its_canonical_form():
    body = "4\n| 6\n| | {t}[{0},{1}] = x[{0},{1}]\n4\n| 6\n| | z[{0},{1}] = {t}[{0},{1}] * 2\n"
    head = "kernel k\nin x f32 [4,6]\ntmp {t} f32 [4,6] heap\nout z f32 [4,6]\n---\n"
    texts = [(head + body).replace("{t}", name) for name in ("t5", "t0")]
    own, plain = (ScheduleSpace(parse(text)) for text in texts)
    assert own.fingerprint == plain.fingerprint
    assert own.neighbours(own.default) == plain.neighbours(plain.default)
    assert any("merge_dim t0" in each["schedule"] for each in own.neighbours(own.default))


def test_one_program_on_several_ways_has_one_key():
    space = make("softmax")
    first = space.neighbours(space.default)
    twice = [two for one in first[:12] for two in space.neighbours(one)]
    keys = {}
    for config in twice:
        keys.setdefault(space.key(config), set()).add(config)
    several = next(configs for configs in keys.values() if len(configs) > 1)
    texts = {to_text(replay(space.program, config["schedule"])) for config in several}
    assert len(texts) == 1
    assert np.ptp(space.encode(list(several)), axis=0).max() == 0


def test_edits_change_the_program_and_crosses_are_neither_parent():
    space, rng = make("softmax", longest=10), np.random.default_rng(3)
    drawn = [c for c in space.sample(12, rng=rng) if len(parse_schedule(c["schedule"])) > 3]
    for a, b in pairwise(drawn):
        assert space.key(space.mutate(a, rng=rng)) != space.key(a)
        child = space.cross(a, b, rng=rng)
        assert child == a or space.key(child) not in (space.key(a), space.key(b))
    assert space.cross(space.default, space.default, rng=rng) == space.default
    grown = [space.mutate(space.default, rng=rng)["schedule"] for _ in range(20)]
    assert all(len(parse_schedule(schedule)) == 1 for schedule in grown)
    records = {str(move) for move in legal_moves(space.program)}
    assert set(grown) <= records


def test_a_cross_is_the_head_of_one_and_of_the_other_what_replays():
    space, rng = make("matmul", longest=10), np.random.default_rng(0)
    first = next(str(m) for m in legal_moves(space.program) if m.kind == "split" and m.at == (1,))
    second = next(str(m) for m in legal_moves(space.program) if m.kind == "unroll")
    a, b = Config(schedule=first), Config(schedule=second)
    children = {space.cross(a, b, rng=rng)["schedule"] for _ in range(30)}
    assert children == {"", f"{first}; {second}"}
    merged = Config(schedule=f"{second}; {first}")
    assert space.contains(merged)
    children = {space.cross(b, merged, rng=rng)["schedule"] for _ in range(30)}
    assert children == {"", first}  # a scope that is unrolled already is not unrolled again


def test_kinds_are_drawn_before_instances():
    operator = get_operator("softmax")
    space = ScheduleSpace(operator.program(operator.workloads[0].extents))
    legal = [move.kind for move in legal_moves(space.program)]
    assert legal.count("split") > 0.4 * len(legal)
    rng = np.random.default_rng(0)
    drawn = [space.mutate(space.default, rng=rng)["schedule"].split()[0] for _ in range(200)]
    assert 0 < drawn.count("split") < 2 * len(drawn) / len(set(legal))


@pytest.mark.parametrize("name", ["row_sum", "matmul"])
def test_results_do_not_depend_on_what_is_remembered(name):
    def run(**options):
        space, rng = make(name, longest=8, **options), np.random.default_rng(5)
        a, b = space.sample(2, rng=rng)
        found = [a, b, space.mutate(a, rng=rng), space.cross(a, b, rng=rng)]
        return [*found, *space.neighbours(a)], space.encode(found)

    configs, rows = run()
    again, rows_again = run(remembered=1)
    assert configs == again
    np.testing.assert_array_equal(rows, rows_again)


def test_what_is_no_member_is_told_with_the_law():
    space = make("row_sum", longest=2)
    record = str(next(legal_moves(space.program)))
    assert space.contains({"schedule": record})
    for schedule in ("split 0 1000", "nonsense", "fuse", f"{record}; ", f" {record}", 3, None):
        assert not space.contains({"schedule": schedule})
    assert not space.contains({"schedule": record, "more": 1})
    assert not space.contains({})
    long = next(
        c
        for c in make("row_sum", longest=9).sample(99, rng=np.random.default_rng(0))
        if len(parse_schedule(c["schedule"])) > 2
    )
    assert not space.contains(long)
    with pytest.raises(ProgramError, match="split 0 1000"):
        space.replayed(Config(schedule="split 0 1000"))
    with pytest.raises(UsageError, match="radius=2"):
        space.neighbours(space.default, radius=2)
    with pytest.raises(UsageError, match="longest must be >= 1 moves, got 0"):
        make("row_sum", longest=0)


def test_exact_spaces_leave_out_what_re_associates_sums():
    exact, free = make("matmul", exact_only=True), make("matmul")
    program = free.program
    loose = [m for m in legal_moves(program) if not KINDS[m.kind].is_exact(program, m)]
    assert loose
    config = Config(schedule=schedule_text(loose[:1]))
    assert free.contains(config)
    assert not exact.contains(config)
    with pytest.raises(ProgramError, match="re-associate"):
        exact.replayed(config)
    assert config in free.neighbours(free.default)
    assert config not in exact.neighbours(exact.default)
    for walk in exact.sample(10, rng=np.random.default_rng(0)):
        here = program
        for move in parse_schedule(walk["schedule"]):
            assert KINDS[move.kind].is_exact(here, move)
            here = replay(here, [move])


def test_a_space_is_pickled_without_its_memory_and_told_by_its_fingerprint():
    space = make("softmax")
    fresh = len(pickle.dumps(space))
    space.neighbours(space.default)
    copy = pickle.loads(pickle.dumps(space))
    assert len(pickle.dumps(space)) == fresh
    assert copy.fingerprint == space.fingerprint
    assert copy.neighbours(copy.default) == space.neighbours(space.default)
    others = [make("matmul"), make("softmax", longest=5), make("softmax", exact_only=True)]
    assert len({s.fingerprint for s in (space, *others)}) == 4


@functools.cache
def shared():
    return make("row_sum", longest=4)


@pytest.mark.parametrize("name", ["random", "greedy", "beam", "annealing", "evolution", "lfbo"])
def test_searchers_keep_every_promise_on_schedules(name):
    quick = {"n_estimators": 10, "mutants": 4} if name == "lfbo" else {}
    assert len(check_searcher(get_searcher(name), space=shared, **quick)) == len(CHECKS)


def test_an_experts_schedule_is_where_annealing_starts():
    space = make("softmax")
    expert = space.neighbours(space.default)[0]
    prior = Prior((PriorReading(expert, 1.0, "softmax/tiny", ""),))
    searcher = make_searcher("annealing", space, seed=0, prior=prior)
    first = searcher.ask(4)
    assert [p.config for p in first] == [space.default, expert]
    searcher.tell([Trial(p.id, p, Measurement("ok", (10.0 - p.id,))) for p in first])
    [step] = searcher.ask(4)
    moves = len(parse_schedule(step.config["schedule"]))
    assert moves <= 2
    assert space.key(step.config) not in (space.key(expert), space.key(space.default))
