"""Pieces of Markdown that a page such as RESULTS.md is made of."""

from collections.abc import Iterable, Sequence


def folded(summary: str, text: str) -> str:
    """Returns text that a reader opens with a click: for what is looked up, not read."""
    return f"<details>\n<summary>{summary}</summary>\n\n{text}\n\n</details>"


def bullets(sentences: Iterable[str]) -> str:
    """Returns a list, one sentence a line."""
    return "\n".join(f"- {sentence}" for sentence in sentences)


def grid(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table of cells that are text already."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
