"""The pages whose tables are written from what is stored, each between two marks."""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from kt_lab import datasheet
from kt_lab.errors import StoreError, UsageError
from kt_lab.evidence import cold, cold_words, dojo_words, in_short, results_page
from kt_lab.evidence.dojo_figures import stored
from kt_lab.studies import load_field, load_tuned

FRONT, RESULTS, DATA = "README.md", "notebooks/RESULTS.md", "data/README.md"
_COLD = ("cold", "cold-unseen", "cold-captured", "captured", "cold-older", "cold-h100")
_COLD += ("foreign", "exhausted")
_DOJO = ("dojo", "players", "learners", "tvm", "learners-shapes", "triton_programs")
_DOJO += ("learners-encoders",)
_ELSEWHERE = ("tvm-xeon", "tvm-zen4", "tvm-zen2")
_LONGER = ("tvm-256", "tvm-zen4-256", "tvm-zen2-256")
_FLOORS = ("tvm-zen4-floors",)

Marks = tuple[str, str]


def tables() -> dict[str, dict[Marks, Callable[[], str]]]:
    """Returns what writes each table, by page and by the marks around it."""
    sheet, field = cache(datasheet.datasheet), cache(load_field)
    page = results_page
    return {
        FRONT: {(in_short.BEGIN, in_short.END): in_short.block},
        DATA: {(datasheet.BEGIN, datasheet.END): lambda: datasheet.markdown(sheet())},
        RESULTS: {
            (page.FIELD_BEGIN, page.FIELD_END): lambda: page.field_block(field()),
            (cold.BEGIN, cold.END): lambda: cold_words.block(*map(stored, _COLD)),
            (page.TUNED_BEGIN, page.TUNED_END): lambda: page.tuned_block(field(), load_tuned()),
            (datasheet.KERNELS_BEGIN, datasheet.KERNELS_END): lambda: datasheet.kernels_table(
                sheet()
            ),
            (dojo_words.BEGIN, dojo_words.END): lambda: dojo_words.dojo_block(
                *map(stored, _DOJO),
                longer=list(filter(None, map(stored, _LONGER))),
                elsewhere=list(filter(None, map(stored, _ELSEWHERE))),
                floors=[(stored(f["of"]), f) for f in filter(None, map(stored, _FLOORS))],
            ),
            (page.BEGIN, page.END): page.block,
        },
    }


def told(text: str, marks: Marks) -> str:
    """Returns what a page has between two marks.

    Raises:
        StoreError: The page lacks one of them.
    """
    begin, end = marks
    _, found, rest = text.partition(begin)
    inside, ended, _ = rest.partition(end)
    if not found or not ended:
        raise StoreError(f"a page must hold the marks {begin} and {end}, got neither or one")
    return inside.strip()


def rewritten(text: str, blocks: Mapping[Marks, str]) -> str:
    """Returns a page with other tables between its marks."""
    for (begin, end), block in blocks.items():
        told(text, (begin, end))
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n{block}\n{end}{rest.partition(end)[2]}"
    return text


def write(root: Path) -> list[Path]:
    """Writes every table of every page anew; returns the pages that changed.

    Args:
        root: Of the checkout.

    Raises:
        UsageError: A page is not there; none has been written.
    """
    if missing := [name for name in tables() if not (root / name).is_file()]:
        raise UsageError(
            f"the pages of a checkout must lie in the folder that holds its data/, got no "
            f"{', '.join(missing)} in {root}; does KT_LAB_DATA fit?"
        )
    changed = []
    for name, found in tables().items():
        path = root / name
        text = path.read_text(encoding="utf-8")
        anew = rewritten(text, {marks: block() for marks, block in found.items()})
        if anew != text:
            path.write_text(anew, encoding="utf-8")
            changed.append(path)
    return changed
