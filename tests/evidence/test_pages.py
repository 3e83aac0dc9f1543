"""README.md, RESULTS.md and the datasheet: what is stored is told, and links lead somewhere."""

import re
import shlex
from functools import cache
from pathlib import Path

import pytest

from kt_lab.cli import build_parser, main
from kt_lab.errors import StoreError
from kt_lab.evidence import pages

ROOT = Path(__file__).resolve().parents[2]
WRITERS = pages.tables()
TABLES = [(page, marks) for page, found in WRITERS.items() for marks in found]
LINK = re.compile(r"\]\(([^)\s]+)\)")


@cache
def text(page):
    return (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize(("page", "marks"), TABLES, ids=lambda at: at if len(at) > 2 else at[0])
def test_a_table_is_what_is_stored(page, marks):
    assert pages.told(text(page), marks) == WRITERS[page][marks]()


def headings(page):
    found = re.findall(r"^#+ (.+)$", text(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", [pages.FRONT, pages.RESULTS])
def test_every_link_of_a_page_leads_somewhere(page):
    inside = [link for link in LINK.findall(text(page)) if not re.match(r"\w+://", link)]
    assert inside
    for link in inside:
        path, _, anchor = link.partition("#")
        there = (ROOT / page).parent / path if path else ROOT / page
        assert there.exists(), link
        if anchor:
            assert anchor in headings(there.resolve().relative_to(ROOT).as_posix()), link


def test_a_newcomers_page_is_short():
    assert len(text(pages.FRONT).splitlines()) < 300


def test_tables_are_replaced_and_what_stands_around_them_stays():
    marks = ("<!-- a -->", "<!-- /a -->")
    page = "before\n<!-- a -->\nold\n<!-- /a -->\nafter\n"
    anew = pages.rewritten(page, {marks: "new"})
    assert anew == "before\n<!-- a -->\nnew\n<!-- /a -->\nafter\n"
    assert pages.told(anew, marks) == "new"


@pytest.mark.parametrize("page", ["", "<!-- a -->", "<!-- /a -->"])
def test_a_page_without_its_marks_is_told(page):
    with pytest.raises(StoreError, match="must hold the marks <!-- a -->"):
        pages.rewritten(page, {("<!-- a -->", "<!-- /a -->"): "new"})


def test_pages_that_are_not_there_are_told_before_any_is_written(tmp_path, monkeypatch, capsys):
    (tmp_path / "README.md").write_text("as it was")
    monkeypatch.setenv("KT_LAB_DATA", str(tmp_path / "data"))
    assert main(["datasheet"]) == 2
    told = capsys.readouterr().err
    assert "data/README.md" in told
    assert f"in {tmp_path}; does KT_LAB_DATA fit?" in told
    assert (tmp_path / "README.md").read_text() == "as it was"


COMMAND = re.compile(r"`kt-lab (evidence [^`]*)`")


@pytest.mark.parametrize("page", ["notebooks/RESULTS.md", "data/README.md"])
def test_commands_have_the_options_that_they_are_told_with(page):
    found = dict.fromkeys(COMMAND.findall(text(page)))
    told = [each for each in found if not re.search(r"\.\.\.|[A-Z]{4}|[<\[]", each)]
    assert told
    for each in told:
        words = shlex.split(each)
        build_parser(words[0]).parse_args(words)
