"""From the lists of values and the conditions of a foreign file to a search space."""

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kt_lab.constraints import Constraint
from kt_lab.errors import ConstraintError
from kt_lab.formats.text import member, read_json, require
from kt_lab.parameters import Choice, Flag, Integer, Ordered, Parameter, PowerOfTwo
from kt_lab.space import ParameterSpace

_EXACT = 2**53  # integers below it are exact as floats, which is how searchers see them
_MANY = 2**15  # a landscape stores value indices in 16 bits
_LEAVE = "leave it out: only recorded configs are members anyway"
_ARITHMETIC = {"abs", "int", "float", "max", "min", "pow", "round", "math"}


def parameter(name: str, values: Any) -> Parameter:
    """Returns the narrowest kind of parameter that has exactly these values.

    Numbers are put in ascending order: powers of two without a gap are a PowerOfTwo, evenly
    spaced integers an Integer, others Ordered. False and true are a Flag; any other list is an
    unordered Choice.

    Raises:
        LandscapeError: It is no list of at most 32,768 finite numbers below 2**53, strings,
            booleans and nulls.
        SpaceError: The name is no identifier, or the values are none or not distinct.
    """
    check_values(values, f"parameter {name!r}")
    twice = len(set(values)) < len(values)  # which a Choice refuses in these words
    if twice or not values or any(type(v) not in (int, float) for v in values):
        both = sorted(map(repr, values)) == ["False", "True"]
        return Flag(name) if both else Choice(name, tuple(values))
    values = sorted(values)
    low, high, step = values[0], values[-1], max(1, values[-1] - values[-2:][0])
    if all(type(v) is int for v in values):
        if low > 0 and low & (low - 1) == 0 and values == [low << i for i in range(len(values))]:
            return PowerOfTwo(name, low, high)
        if values == [low + i * step for i in range(len(values))]:
            return Integer(name, low, high, step)
    return Ordered(name, tuple(values))


def check_values(values: Any, where: str) -> None:
    """Raises LandscapeError unless these are a list of values that parameters may have."""
    law = f"values must be at most {_MANY:,}, null, booleans, strings or numbers below 2**53"
    require(isinstance(values, list) and len(values) <= _MANY, law, values, where)
    for v in values:
        good = abs(v) < _EXACT if type(v) in (int, float) else isinstance(v, str | bool | None)
        require(good, law, v, where)


def conditions(path: Path | str) -> list[str]:
    """Returns the expressions under ConfigurationSpace.Conditions of a T1 input file.

    Raises:
        LandscapeError: The file is unreadable or no T1 input.
    """
    found, facts = read_json(path)
    where = facts["file"]
    listed = member(member(found, "ConfigurationSpace", dict, where), "Conditions", list, where)
    return [member(condition, "Expression", str, where) for condition in listed]


def space_of(
    axes: Mapping[str, Sequence[Any]],
    configs: Sequence[Mapping[str, Any]],
    *,
    restrictions: Sequence[str],
    default: Mapping[str, Any],
) -> tuple[ParameterSpace, dict[str, list[str]]]:
    """Returns a space whose members are exactly these configs, under what laws can be told.

    Args:
        axes: Each parameter's values.
        configs: Every recorded config, values by parameter name.
        restrictions: Expressions over the parameters. Those in the language of
            `kt_lab.constraints` become constraints; others are left to the membership.
        default: One of the configs.

    Returns:
        The space; and the restrictions told as `constraints` and left to `membership`.

    Raises:
        LandscapeError: A config breaks a restriction.
        SpaceError: The default does, a config has a value that its parameter does not list, or
            a restriction uses a name that is neither a parameter nor arithmetic.
    """
    require(isinstance(default, Mapping), "a default must be values by name", default, "options")
    texts = not isinstance(restrictions, str) and all(isinstance(r, str) for r in restrictions)
    require(texts, "restrictions must be a list of texts", restrictions, "options")
    constraints, left = [], []
    parameters = [parameter(name, values) for name, values in axes.items()]
    rows = ParameterSpace(parameters, default=default).rows(configs)
    for place, text in enumerate(restrictions, start=1):
        try:  # whether it can be told, and computed for what was recorded
            law = Constraint(f"restriction_{place}", text)
            ParameterSpace(parameters, constraints=[law], default=default).valid(rows)
            constraints.append(law)
        except ConstraintError as error:
            left.append(_foreign(text, {*axes, *_ARITHMETIC}, error))
    space = ParameterSpace(parameters, constraints=constraints, default=default)
    broken = int((~space.valid(rows)).sum())
    law = "every recorded config must obey the restrictions; give those of this file"
    require(not broken, law, f"{broken:,} of {len(rows):,} that do not", f"{restrictions}")
    recorded = (rows == space.row(space.default)).all(axis=1).any()
    require(recorded, "the default must be a config that was recorded", default, "options")
    told = {"constraints": [c.expression for c in constraints], "membership": left}
    return space.only(rows), told


def _foreign(text: str, names: set[str], error: ConstraintError) -> str:
    """Returns a condition that only looks at the parameters; it is never evaluated."""
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ConstraintError(f"{error}; {_LEAVE}") from None
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if unknown := sorted(used - names):
        raise ConstraintError(
            f"a restriction must use parameters and arithmetic only, got {', '.join(unknown)} in "
            f"{text!r}; {_LEAVE}"
        )
    return text
