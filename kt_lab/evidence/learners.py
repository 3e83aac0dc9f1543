"""Learners of the dojo: against other players, carried over to other programs, with other eyes.

curves     every player on the same operators with equal budgets of different compiled programs
training   one policy per seed, trained on two operators
transfer   a policy trained on two operators plays on others and on other shapes, frozen or
           learning on, beside the same learner from scratch; it is trained first if need be
encoders   one learner with every encoder of programs
"""

import argparse
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kt_lab.evidence import players
from kt_lab.evidence.dojo_tables import players_table
from kt_lab.evidence.dojo_walk import walk_table
from kt_lab.evidence.players import (
    SLOW,
    Job,
    arena,
    one_run,
    open_rows,
    play_all,
    side_by_side,
)
from kt_lab.evidence.playing import Impatient, measured, runs, shaped, sized
from kt_lab.evidence.resuming import Rows
from kt_lab.landscape import data_directory
from kt_lab.policies import train
from kt_lab.programs.encoders import DEFAULT
from kt_lab.programs.operators import get_workload
from kt_lab.provenance import provenance
from kt_lab.search.deep_q.policy import Policy

PLAYERS = ("max_q_dqn", "dqn", "annealing", "expert+annealing", "lfbo", "max_q")
PARTS = ("curves", "transfer", "encoders")
_TRAINING = "training"
_LEARNER = "max_q_dqn"
_TRAINED = ("softmax", "matmul")
_UNSEEN = ("layer_norm", "depthwise_conv2d", "bias_gelu")
_CARRIED = {"frozen": {"learning": False}, "tuned": {}}  # how a policy plays on


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what `players` takes, and what is trained, tested and seen."""
    players.add_arguments(parser, players=PLAYERS)
    parser.add_argument("--parts", nargs="+", choices=(*PARTS, _TRAINING), default=list(PARTS))
    parser.add_argument("--train", nargs="+", default=list(_TRAINED), metavar="OPERATOR")
    parser.add_argument("--unseen", nargs="*", default=list(_UNSEEN), metavar="OPERATOR")
    parser.add_argument(
        "--shapes", nargs="*", default=[], help="other workloads, operator/extents"
    )
    parser.add_argument("--policy", type=Path, help="plays all transfers; none is trained then")
    parser.add_argument("--rounds", type=int, default=8, help="turns of every trained operator")
    parser.add_argument(
        "--encoders", nargs="+", default=[DEFAULT, "structure", "ngrams"], metavar="ENCODER"
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Plays the parts; returns rows, one table for each part, and the training curves."""
    rows = open_rows(args)
    play = {"curves": _curves, "transfer": _transfer, "encoders": _encoders, _TRAINING: _school}
    for part in args.parts:
        play[part](args, rows)
    result = rows.result
    for part in PARTS:
        result[part] = players_table(_of(result["rows"], part)).to_dict("records")
    return result


def _of(rows: Sequence[Mapping[str, Any]], part: str) -> list[Mapping[str, Any]]:
    return [row for row in rows if row["part"] == part]


def _key(part: str, workload: str, player: str, seed: int) -> dict[str, Any]:
    return {"part": part, "workload": workload, "player": player, "seed": seed}


def _curves(args: argparse.Namespace, rows: Rows) -> None:
    jobs = []
    for workload in [sized(name, args.size) for name in args.operators]:
        for player, seed in runs(args.players, args.seeds):
            jobs.append(Job(_key("curves", workload.key, player, seed), workload, player))
    play_all(jobs, rows, args)


def _encoders(args: argparse.Namespace, rows: Rows) -> None:
    jobs = []
    for workload in [sized(name, args.size) for name in args.operators]:
        for encoder, seed in runs(args.encoders, args.seeds):
            key = _key("encoders", workload.key, encoder, seed)
            jobs.append(Job(key, workload, _LEARNER, encoder=encoder))
    play_all(jobs, rows, args)


def _school(args: argparse.Namespace, rows: Rows) -> None:
    home = "+".join(args.train)
    keys = [_key(_TRAINING, home, _LEARNER, n) | _training(args) for n in range(args.seeds)]
    side_by_side([(key, partial(_schooled, key["seed"])) for key in keys], rows, args)


def _transfer(args: argparse.Namespace, rows: Rows) -> None:
    if args.policy is None:
        _school(args, rows)
    training = _training(args)
    targets = [sized(name, args.size) for name in args.unseen] + list(map(shaped, args.shapes))
    jobs = []
    for workload in targets:
        for seed in range(args.seeds):
            policy = {"policy": str(args.policy or policy_path(args, seed))}
            for how, options in {"scratch": {}, **_CARRIED}.items():
                key = _key("transfer", workload.key, how, seed) | training
                more = options | (policy if how in _CARRIED else {})
                jobs.append(Job(key, workload, _LEARNER, more))
    play_all(jobs, rows, args)


def _training(args: argparse.Namespace) -> dict[str, Any]:
    return {"trained": "+".join(args.train), "rounds": args.rounds}


def policy_path(args: argparse.Namespace, seed: int) -> Path:
    """Returns where the policy that was trained with a seed lies, beside the result's file."""
    how = "-".join(map(str, _training(args).values()))
    return args.out.with_name(f"{args.out.stem}-{how}-{seed}.safetensors")


def _schooled(seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """Trains one policy on all of the operators and stores it; returns its row."""
    with ExitStack() as stack:
        arenas = {}
        for name in args.train:
            workload = sized(name, args.size)
            field, start_us = stack.enter_context(arena(workload, args))
            arenas[workload.key] = field.space, Impatient(field.runner, SLOW * start_us)
        policy, curve = train(arenas, rounds=args.rounds, programs=args.budget, seed=seed)
    path = policy_path(args, seed)
    policy.save(path)
    return {"curve": curve, "points": [], "policy": path.name}


def lesson(
    result: Mapping[str, Any] | None,
    trained: str,
    unseen: str,
    *,
    threads: int = 1,
    rounds: int = 3,
    budget: int = 12,
) -> dict[str, Any]:
    """Returns what a learner learned, from the stored result or from a training of seconds.

    Args:
        result: Of this evidence, stored; None: a policy is trained here on one workload.
        trained: Key of that workload.
        unseen: Key of a workload that the policy plays greedily, here and now.
        threads: Of every program.
        rounds: Turns of a training here.
        budget: Programs of a turn, and of each player of a transfer here.

    Returns:
        `curve` of the training, `walk`, the policy's game on `unseen` move by move (see
        `kt_lab.evidence.dojo_walk.walk_table`), `rows` with the part "transfer", and `stored`,
        whether the policy is of the result; and where curve and rows come from, `provenance` and,
        where there are any, `resumed`.
    """
    args = argparse.Namespace(threads=threads, samples=5, timeout_s=3.0, cache=None, workers=1)
    known = _of(result["rows"], _TRAINING) if result else []
    with ExitStack() as stack:
        field, start_us = stack.enter_context(arena(get_workload(unseen), args))
        if known:
            curve, rows = known[0]["curve"], result["rows"]
            origin = {name: result[name] for name in ("provenance", "resumed") if name in result}
            policy = Policy.load(data_directory() / "evidence" / known[0]["policy"])
        else:
            home, _ = stack.enter_context(arena(get_workload(trained), args))
            arenas = {trained: (home.space, home.runner)}
            policy, curve = train(arenas, rounds=rounds, programs=budget, seed=0)
            path = Path(stack.enter_context(TemporaryDirectory())) / "policy.safetensors"
            policy.save(path)
            rows, origin = [], {"provenance": provenance()}
            for how in ("scratch", *_CARRIED):
                more = {"policy": str(path), **_CARRIED[how]} if how in _CARRIED else {}
                key = _key("transfer", unseen, how, 0)
                rows.append(key | one_run(field, start_us, key, budget, player=_LEARNER, **more))
        walk = walk_table(field.space, lambda c: measured(field.runner, c).latency_us, policy)
    return {"curve": curve, "walk": walk, "rows": rows, "stored": bool(known)} | origin


def report(result: Mapping[str, Any]) -> str:
    """Returns what each part came to, for people."""
    told = []
    for part in PARTS:
        if result[part]:
            told += [f"{part}:", players.report({"table": result[part]})]
    for row in _of(result["rows"], _TRAINING):
        last = {turn["workload"]: turn for turn in row["curve"]}
        found = ", ".join(f"{w} {t['start_us'] / t['best_us']:.2f}x" for w, t in last.items())
        told.append(f"trained with seed {row['seed']}: best of the last turns {found}")
    return "\n".join(told)
