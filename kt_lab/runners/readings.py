"""What a run's journal holds: its facts, what was submitted when, and finished measurements."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kt_lab.errors import StoreError
from kt_lab.trial import Config, Measurement, Proposal

SCHEMA = 1
_KIND = "the measurements of one run"

# A finished measurement: what was asked, the answer, the machine clock in seconds.
Reading = tuple[Proposal, Measurement, float]


def config_to_json(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a config as JSON data from which `config_from_json` makes an equal one.

    Raises:
        StoreError: A value is neither None, bool, int, float, str nor a tuple of such.
    """
    return {name: _untupled(name, value) for name, value in config.items()}


def config_from_json(data: Mapping[str, Any]) -> Config:
    """Returns the config that `config_to_json` wrote, every value of the type that it had."""
    return Config({name: _tupled(value) for name, value in data.items()})


def _untupled(name: str, value: Any) -> Any:
    if isinstance(value, tuple):
        return [_untupled(name, part) for part in value]
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise StoreError(
        "a stored config may hold None, bool, int, float, str and tuples of these, got "
        f"{name}={value!r} of type {type(value).__name__}; use a plain Python value"
    )


def _tupled(data: Any) -> Any:
    return tuple(map(_tupled, data)) if isinstance(data, list) else data


def require_json(value: Any, *, what: str) -> Any:
    """Returns the value if JSON gives it back as it is.

    Raises:
        StoreError: It holds anything but None, bool, int, float, str, list and dict.
    """
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        for key, part in value.items():
            require_json(part, what=f"{what}[{key!r}]")
    elif isinstance(value, list):
        for part in value:
            require_json(part, what=what)
    elif not (value is None or isinstance(value, bool | int | float | str)):
        raise StoreError(
            f"{what} must be None, bool, int, float, str, or a list or dict (with str keys) of "
            f"these to be stored, got {value!r} of type {type(value).__name__}"
        )
    return value


def header(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the first record of a run's journal, with the facts as JSON gives them back."""
    try:
        facts = json.loads(json.dumps(dict(facts)))
    except (TypeError, ValueError) as error:
        raise StoreError(
            f"a run's facts must be of JSON types, got {dict(facts)}: {error}"
        ) from None
    return {"journal": _KIND, "schema": SCHEMA, "facts": facts}


def submission(total: int, after: int, proposals: Sequence[Proposal] = ()) -> dict[str, Any]:
    """Returns the record of the latest proposals, `total` by the time of `after` results."""
    asked = [[p.id, config_to_json(p.config)] for p in proposals]
    return {"submitted": total, "after": after, "proposals": asked}


def measured(proposal: Proposal, measurement: Measurement, at_s: float) -> dict[str, Any]:
    """Returns the record of a finished measurement, at machine clock `at_s` in seconds."""
    return {
        "id": proposal.id,
        "config": config_to_json(proposal.config),
        "repetitions": proposal.repetitions,
        "cutoff_us": proposal.cutoff_us,
        "origin": proposal.origin,
        "generation": proposal.generation,
        "predicted": proposal.predicted,
        "status": measurement.status,
        "samples_us": [float(sample) for sample in measurement.samples_us],
        "compile_s": measurement.compile_s,
        "check_s": measurement.check_s,
        "measure_s": measurement.measure_s,
        "info": require_json(dict(measurement.info), what="info"),
        "error": measurement.error,
        "at_s": at_s,
    }


@dataclass(slots=True)
class Held:
    """What a run's journal holds.

    Attributes:
        facts: What the run began with.
        readings: The finished measurements, in order of completion.
        plan: (results collected before, proposals submitted by then), both increasing.
        in_flight: (id, config) of proposals that were submitted and never finished.
    """

    facts: dict[str, Any]
    readings: list[Reading] = field(default_factory=list)
    plan: list[tuple[int, int]] = field(default_factory=list)
    in_flight: set[tuple[int, Config]] = field(default_factory=set)


def parse(records: Sequence[Mapping[str, Any]], *, name: str) -> Held:
    """Reads a journal's records.

    Args:
        records: All of them, the header first.
        name: The file's name, for errors.

    Raises:
        StoreError: It is not a run's journal, or of another schema.
    """
    first = records[0] if isinstance(records[0], dict) else {}
    known = (first.get("journal"), first.get("schema")) == (_KIND, SCHEMA)
    if not known or not isinstance(first.get("facts"), dict):
        raise StoreError(
            f"a run's journal must begin with its facts in schema {SCHEMA}, got "
            f"{json.dumps(records[0])[:80]} in {name}; name another path, or move that file away"
        )
    held = Held(first["facts"])
    try:
        for record in records[1:]:
            if "submitted" in record:
                # A later part of the run went its own way from there on.
                while held.plan and held.plan[-1][0] >= record["after"]:
                    held.plan.pop()
                held.plan.append((record["after"], record["submitted"]))
                held.in_flight |= {(n, config_from_json(c)) for n, c in record["proposals"]}
            else:
                held.readings.append(_reading(record))
        held.in_flight -= {(proposal.id, proposal.config) for proposal, _, _ in held.readings}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(
            f"a run's journal must hold submissions and measurements, got another record in "
            f"{name} ({type(error).__name__}: {error}); name another path, or move that file away"
        ) from None
    return held


def _reading(record: Mapping[str, Any]) -> Reading:
    asked = [record[n] for n in ("repetitions", "cutoff_us", "origin")]
    asked += [record.get(n) for n in ("generation", "predicted")]  # absent in older journals
    costs = (record[n] for n in ("compile_s", "check_s", "measure_s"))
    samples = tuple(record["samples_us"])
    return (
        Proposal(record["id"], config_from_json(record["config"]), *asked),
        Measurement(record["status"], samples, *costs, record["info"], record["error"]),
        record["at_s"],
    )
