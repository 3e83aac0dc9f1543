"""A searcher of a notebook cell goes to worker processes as source, which says what it is."""

import pytest

from kt_lab.capture.searcher import searcher_class, source_hash
from kt_lab.search.random import RandomSearch
from tests.capture.notebook import CellError

CELL = """
from dataclasses import dataclass
import numpy as np
from kt_lab import Budget
from kt_lab.capture.searcher import searcher_class, searcher_source, source_hash
from kt_lab.experiment import Experiment, process_pool
from kt_lab.search.base import Options, Searcher, option
from kt_lab.search.random import RandomSearch

STEP = 3

def first(items):
    return items[0] if len(items) > STEP else None

@dataclass(frozen=True)
class MineOptions(Options):
    size: int = option(7, "Configs drawn.", unit="configs", low=1)

class Mine(Searcher):
    name, Options = "mine", MineOptions

    def __init__(self, space, *, seed, **more):
        super().__init__(space, seed=seed, **more)
        self.rng = np.random.default_rng(seed)

    @staticmethod
    def pick(items):
        return first(items)

    def ask(self, n):
        drawn = self.space.sample(self.options.size, rng=self.rng)
        self.done = self._proposed > 20
        return [self.propose(Mine.pick(drawn), origin="mine")][:n]

    def tell(self, trials):
        pass
"""
NESTED = """
class Nested(RandomSearch):
    name = "nested"

    @dataclass(frozen=True)
    class Options(Options):
        skip: int = option(0, "Configs left out to begin with.", unit="configs", low=0)

    def ask(self, n):
        if not self._proposed:
            super().ask(self.options.skip)
        return super().ask(n)
"""
VARIANTS = """
variants = {}
for start in (0, 1000):
    class Walk(RandomSearch):
        first = start

        def ask(self, n):
            rows = self.space.enumerate()
            return [self.propose(self.space.config(rows[self.first + self._proposed]))]

    variants[f"from {start}"] = Walk
"""
SMALL = "dict(seeds=2, budget=Budget(trials=12), lanes=(2,))"


@pytest.fixture
def cell(notebook):
    notebook(CELL)
    return notebook


def test_a_class_of_a_cell_is_made_again_with_helpers_constants_and_options(cell):
    source = cell("searcher_source(Mine)")
    assert "torch" not in source
    assert "STEP = 3" in source
    made = searcher_class(source)  # here nothing of the cell is defined
    assert (made.__name__, made.Options().size) == ("Mine", 7)
    assert searcher_class(source) is made
    assert cell("searcher_class(searcher_source(Mine)) is Mine") is False


def test_the_hash_changes_with_the_class_and_with_what_it_names(cell):
    before = cell("source_hash(searcher_source(Mine))")
    assert cell("source_hash(searcher_source(Mine))") == before
    cell(CELL)
    assert cell("source_hash(searcher_source(Mine))") == before
    seen = {before}
    for old, new in (("STEP = 3", "STEP = 2"), ("items[0]", "items[1]"), ("option(7", "option(8")):
        cell(CELL.replace(old, new))
        seen.add(cell("source_hash(searcher_source(Mine))"))
    assert len(seen) == 4


def test_options_may_stand_inside_the_class_and_hide_their_base(cell):
    cell(NESTED)
    made = searcher_class(cell("searcher_source(Nested)"))
    assert made.Options(skip=3).skip == 3
    assert issubclass(made, RandomSearch)


def test_worker_processes_run_a_class_of_a_cell_as_this_process_does(cell):
    cell(NESTED)
    cell(f"""
grid = Experiment("own", ["softmax/4096x640"],
                  [Mine, Nested, "random"], **{SMALL})
other = Experiment("own", ["softmax/4096x640"],
                   [(Nested, {{"skip": 5}})], **{SMALL})
def told(runs, name):
    return runs[runs["searcher"] == name]["config"].tolist()
with process_pool(2) as pool:
    pooled = grid.run(executor=pool)
here, skipped = grid.run(), other.run()
""")
    for name in ("mine", "nested", "random"):
        configs = cell(f"told(pooled, {name!r})")
        assert len(configs) == 24
        assert configs == cell(f"told(here, {name!r})")
    assert cell("told(here, 'nested') == told(here, 'random')")
    assert cell("told(here, 'random')[5:9]") == cell("told(skipped, 'nested')[:4]")
    facts = cell("grid.facts()")
    source = facts["sources"]["mine"]
    assert facts["searchers"]["mine"] == [f"Mine@{source_hash(source)}", {}]
    assert facts["searchers"]["random"] == ["random", {}]
    assert list(facts["sources"]) == ["mine", "nested"]


def test_a_changed_class_does_not_mix_with_stored_runs(cell, tmp_path):
    again = f"Experiment('own', ['softmax/4096x640'], [Mine], **{SMALL}).run(directory=place)"
    cell(f"len({again})", place=str(tmp_path))
    cell(CELL.replace("STEP = 3", "STEP = 2"))
    with pytest.raises(CellError, match="same request, got other searchers, sources in own"):
        cell(again, place=str(tmp_path))


REFUSALS = {
    "an array in a global": (
        "TABLE = np.zeros(3)\n" + CELL.replace("return first(items)", "return items[TABLE[0]]"),
        r"got 'TABLE', a numpy\.ndarray, in Mine; make it inside Mine",
    ),
    "a name that is not there": (
        CELL.replace("return first(items)", "return second(items)"),
        "got 'second' in Mine, which is not",
    ),
    "a class without methods in another cell": (
        "class Marker:\n    colour = 'red'",
        "got none for Marker; .* define it, in .*, inside the class, or in the cell, that uses it",
    ),
    "a subclass with options alone": (
        CELL + "\nclass Mine(Mine):\n    name, Options = 'tuned', MineOptions",
        r"got none for Mine; override one, or for new options alone pass \(BestFirst, \{'starts'",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_no_other_process_can_make_is_refused_by_name(cell, case):
    code, message = REFUSALS[case]
    cell(code)
    if case.startswith("a class"):
        cell(CELL.replace("return first(items)", "return items[Marker is None]"))
    with pytest.raises(CellError, match=message):
        cell(f"Experiment('own', ['softmax/4096x640'], [Mine], **{SMALL})")


def test_a_class_that_is_no_more_what_its_source_gives_is_refused(cell):
    """Variants made in a loop would all be the last one, in this process and in every other."""
    cell(VARIANTS)
    told = r"Walk.first = 0, and 1000 from its source: .* pass \(Walk, \{'first': 0\}\)"
    with pytest.raises(CellError, match=told):
        cell(f"Experiment('own', ['softmax/4096x640'], variants, **{SMALL})")
    cell("LEAST = 7\n" + CELL.replace("option(7,", "option(LEAST,"))
    cell("LEAST = 8")
    with pytest.raises(CellError, match=r"Mine\.size = 7, and 8 from its source"):
        cell(f"Experiment('own', ['softmax/4096x640'], [Mine], **{SMALL})")


def test_a_module_is_as_its_file_says_and_so_are_those_that_it_uses(cell, tmp_path):
    """Runs of code that stands nowhere any more are not stored as those of the new code."""
    helper, module = tmp_path / "own_moves.py", tmp_path / "own_search.py"
    helper.write_text("def few(items, n):\n    return items[:n]\n")
    module.write_text(
        "from own_moves import few\n"
        "from kt_lab.search.random import RandomSearch\n\n\n"
        "class Few(RandomSearch):\n"
        '    """Draws few."""\n\n'
        '    name = "few"\n\n'
        "    def ask(self, n):\n"
        "        return few(super().ask(n), 2)\n"
    )
    cell("import sys\nsys.path.insert(0, folder)", folder=str(tmp_path))
    cell("from own_search import Few")
    grid = f"Experiment('own', ['softmax/4096x640'], [Few], **{SMALL}).facts()['searchers']"
    before = cell(grid)
    helper.write_text(helper.read_text() + "# the same code\n")
    assert cell(grid) != before, "what it uses is a part of what it is"
    helper.write_text("def few(items, n):\n    return items[: n + 1]\n")
    with pytest.raises(
        CellError, match=r"own_moves, which was edited since .*reload\(own_moves\)"
    ):
        cell(grid)


def test_what_is_no_searcher_is_refused(cell):
    for given in ("first", "dict", "(first, {})", "3"):
        with pytest.raises(CellError, match="must be a registered name or a subclass of Searcher"):
            cell(f"Experiment('own', ['softmax/4096x640'], {{'x': {given}}}, **{SMALL})")
    with pytest.raises(CellError, match=r"must have a name of its own, got .'mine', 'mine'."):
        cell(f"Experiment('own', ['softmax/4096x640'], [Mine, (Mine, {{'size': 3}})], **{SMALL})")
