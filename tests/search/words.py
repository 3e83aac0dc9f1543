"""A space that is no ParameterSpace: words, as schedules are lists of moves."""

import hashlib

import numpy as np

from kt_lab.trial import Config

LETTERS = "abcd"


class Words:
    """Words of at most `longest` letters; one step appends a letter or takes the last away."""

    def __init__(self, longest=6):
        self.longest = longest
        self.default = Config(word="")
        self.fingerprint = hashlib.sha256(f"{LETTERS}{longest}".encode()).hexdigest()[:16]

    def contains(self, config):
        word = config.get("word")
        return set(config) == {"word"} and set(word) <= set(LETTERS) and len(word) <= self.longest

    def sample(self, n, *, rng):
        lengths = rng.integers(self.longest + 1, size=n)
        return [Config(word="".join(rng.choice(list(LETTERS), size=size))) for size in lengths]

    def neighbours(self, config, *, radius=1):  # noqa: ARG002
        word = config["word"]
        longer = [word + letter for letter in LETTERS] if len(word) < self.longest else []
        return [Config(word=w) for w in ([word[:-1]] if word else []) + longer]

    def encode(self, configs):
        return np.asarray([[c["word"].count(x) for x in LETTERS] for c in configs], dtype=float)


class Schedules(Words):
    """Words whose letters commute, with the methods that a space may have."""

    def key(self, config):
        return "".join(sorted(config["word"]))

    def mutate(self, config, *, rng):
        word = config["word"]
        at, letter = int(rng.integers(len(word) + 1)), LETTERS[rng.integers(4)]
        changed = (word[:at] + letter + word[at:], word[:at] + word[at + 1 :])
        return Config(word=changed[rng.integers(2)][: self.longest])

    def cross(self, a, b, *, rng):
        at = int(rng.integers(self.longest))
        return Config(word=(a["word"][:at] + b["word"][at:])[: self.longest])
