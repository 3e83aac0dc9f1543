"""Configs and parameters of kt_lab as Helion sees them, and back; imports Helion."""

from helion.autotuner import config_fragment
from helion.runtime.config import Config as HelionConfig

from kt_lab.parameters import Parameter
from kt_lab.search.peers.helion import axis
from kt_lab.space import ParameterSpace
from kt_lab.trial import Config


class Translation:
    """Configs of kt_lab as Helion's, and back."""

    def __init__(self, space: ParameterSpace):
        """Takes the space whose configs are translated, kept as `space`."""
        self.space = space
        self._codes = {p.name: _codes(p) for p in space.parameters if axis(p).coded}
        self._members: dict[Config, bool] = {}

    def to_helion(self, config: Config) -> HelionConfig:
        """Returns Helion's config of a member of the space."""
        return HelionConfig.from_dict(
            {p.name: _seen(p, config[p.name]) for p in self.space.parameters}
        )

    def config(self, config: HelionConfig) -> Config:
        """Returns the config that Helion means, valid or not."""
        return Config({n: self.value(n, config.config[n]) for n in self.space.names})

    def value(self, name: str, seen):
        """Returns the value of a parameter that Helion sees as `seen`."""
        return self._codes[name][seen] if name in self._codes else seen

    def is_member(self, config: HelionConfig) -> bool:
        """Whether the space's constraints allow what Helion means."""
        found = self.config(config)
        if found not in self._members:
            self._members[found] = self.space.contains(found)
        return self._members[found]


def _codes(parameter: Parameter) -> tuple:
    """Returns the values by position. Those of a tile ascend from 1, to which Helion halves."""
    is_tile = axis(parameter).role_in_helion == "block_size"
    return (None, *sorted(parameter.values)) if is_tile else parameter.values


def _seen(parameter: Parameter, value):
    """Returns a value as Helion sees it."""
    seen = axis(parameter)
    if not seen.coded:
        return value
    return _codes(parameter).index(value) if seen.role_in_helion else parameter.index(value)


class _BlockPosition(config_fragment.IntegerFragment):
    """Block sizes that are no consecutive powers of two, by their position."""

    def category(self):
        return config_fragment.Category.BLOCK_SIZE


class _Flag(config_fragment.BooleanFragment):
    """A flag with a default of its own."""

    def __init__(self, default: bool):
        self._default = default

    def default(self) -> bool:
        return self._default


def fragment(parameter: Parameter, default) -> config_fragment.ConfigSpecFragment:
    """Returns Helion's fragment of a parameter with a default; see `helion.mapping`."""
    seen = axis(parameter)
    made = getattr(config_fragment, seen.fragment)
    if seen.fragment == "BooleanFragment":
        return _Flag(default)
    if seen.fragment == "EnumFragment":
        first = _seen(parameter, default)  # Helion's default is the first choice
        return made(choices=(first, *(i for i in range(parameter.cardinality) if i != first)))
    if seen.coded:
        is_tile = bool(seen.role_in_helion)
        made = _BlockPosition if is_tile else made
        return made(int(is_tile), len(_codes(parameter)) - 1, _seen(parameter, default))
    return made(min(parameter.values), max(parameter.values), default)
