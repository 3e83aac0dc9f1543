"""Mutations of valid inputs: bytes, tokens of texts, and the structure of JSON."""

import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

LARGEST = 1 << 16  # bytes of an input
_HOSTILE = "__import__('os').system('true')"
_WORDS = (
    *("0", "-1", "1e999", "NaN", "Infinity", "-inf", "1" + "0" * 30, "9" * 400, "0x10", "1_0"),
    *("../../../etc/passwd", "/etc/passwd", "..\\..", "~", "$HOME", "%s%n", "{0.__class__}"),
    *("\x00", "\n", "\r\n", "\ufeff", "\u202e", "é", "\U0001d518", "\u0661", "²", "\udc80"),
    *("[" * 3000, "(" * 300, "{" * 300, "-" * 300, "((1)" * 90, "not " * 300, '{"a":' * 2000),
    *(_HOSTILE, "lambda: 0", "x.y", "x[0]", "**", "<<", "yield", "await x", ":=", "f'{x}'", "''"),
    *("--", "-", "--help", "=", ",", ";", "|", ":", "#", "'", '"', "]", "}", ")", "null", "true"),
)
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 3, 2**31, 2**63, 2**64, -(2**70), 10**400, 0.5, 1e308, -0.0),
    *(float("nan"), float("inf"), "", "x", "ok", "x" * 5000, "\x00", "\ud800", "é", "../../x"),
    *("/etc/passwd", "..", _HOSTILE, [], {}, [[]], [None], [1, "a"], {"": {}}, {"a": [1]}),
)
_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
Mutation = Callable[[random.Random, bytes, Sequence[bytes]], bytes]


def mutated(rng: random.Random, corpus: Sequence[bytes]) -> bytes:
    """Returns one input of a corpus after one to eight mutations, at most LARGEST bytes.

    Args:
        rng: Draws.
        corpus: Valid inputs, and what was found to be worth keeping.
    """
    data = rng.choice(corpus)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 4, 8))):
        data = rng.choice(_MUTATIONS)(rng, data, corpus)[:LARGEST]
    return data


def _span(rng: random.Random, data: bytes) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.choice((1, 1, 2, 4, 16, 256)))


def _flip(rng, data, _) -> bytes:
    at = rng.randrange(len(data) + 1)
    return (
        data[:at] + bytes(b ^ (1 << rng.randrange(8)) for b in data[at : at + 1]) + data[at + 1 :]
    )


def _cut(rng, data, _) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _delete(rng, data, _) -> bytes:
    start, end = _span(rng, data)
    return data[:start] + data[end:]


def _double(rng, data, _) -> bytes:
    start, end = _span(rng, data)
    return data[:end] + data[start:end] * rng.choice((1, 1, 2, 50)) + data[end:]


def _noise(rng, data, _) -> bytes:
    start, end = _span(rng, data)
    return data[:start] + rng.randbytes(end - start) + data[end:]


def _splice(rng, data, corpus) -> bytes:
    other = rng.choice(corpus)
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


def _insert(rng, data, _) -> bytes:
    start, end = _span(rng, data)
    word = rng.choice(_WORDS).encode(errors="surrogateescape")
    return data[:start] + word + data[start if rng.random() < 0.5 else end :]


def _token(rng, data, corpus) -> bytes:
    """Puts a token of any input, or a word, in place of a token, beside it or beside another."""
    tokens = _TOKEN.findall(data.decode(errors="surrogateescape"))
    others = _TOKEN.findall(rng.choice(corpus).decode(errors="surrogateescape"))
    if not tokens:
        return data
    at = rng.randrange(len(tokens))
    new = rng.choice(others) if others and rng.random() < 0.6 else rng.choice(_WORDS)
    tokens[at : at + rng.randrange(3)] = [new]
    return "".join(tokens).encode(errors="surrogateescape")


def _structure(rng, data, corpus) -> bytes:
    """Swaps types, loses, renames, doubles, wraps and moves parts of a JSON text."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return _token(rng, data, corpus)
    places = list(_places(found))
    if not places:
        return json.dumps(rng.choice(_VALUES)).encode()
    parent, key = rng.choice(places)
    other, there = rng.choice(places)
    what = rng.randrange(6)
    if what == 0:
        del parent[key]
    elif what == 1 and isinstance(parent, dict):
        parent[str(rng.choice(_VALUES))] = parent.pop(key)
    elif what == 2:
        parent[key] = [parent[key]]
    elif what == 3:
        parent[key] = json.loads(json.dumps(other[there]))  # its own, or there may be a circle
    elif what == 4 and isinstance(parent, list):
        parent.insert(key, parent[key])
    else:
        parent[key] = rng.choice(_VALUES)
    return json.dumps(found).encode()


def _places(found: Any):
    """Yields every (parent, key) of a JSON value."""
    waiting = [found] if isinstance(found, dict | list) else []
    while waiting:
        parent = waiting.pop()
        keys = list(parent) if isinstance(parent, dict) else range(len(parent))
        for key in keys:
            yield parent, key
            if isinstance(parent[key], dict | list):
                waiting.append(parent[key])


_MUTATIONS: tuple[Mutation, ...] = (
    *(_flip, _cut, _delete, _double, _noise, _splice, _insert, _insert),
    *(_token, _token, _token, _structure, _structure, _structure, _structure),
)
