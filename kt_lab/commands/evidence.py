"""kt-lab evidence: the measurements behind the claims, one command each; results are stored."""

import argparse
import importlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kt_lab.errors import UsageError
from kt_lab.evidence.resuming import as_text
from kt_lab.landscape import data_directory
from kt_lab.store.files import replacing, writing

# name -> (module with add_arguments, run and report; what it shows)
EVIDENCE = {
    "pipeline": ("kt_lab.evidence.pipeline", "configs a second, and where the rest goes (GPU)"),
    "faults": ("kt_lab.evidence.faults", "every fault injected many times (GPU)"),
    "parity": ("kt_lab.evidence.parity", "live runs beside replays of one recording (GPU)"),
    "duels": ("kt_lab.evidence.duels", "the same binary under two names, live (GPU)"),
    "large": ("kt_lab.evidence.large", "the flagship in Helion's own spaces beside it (GPU)"),
    "helion_field": (
        "kt_lab.evidence.helion_field",
        "Helion's searches against each other in its spaces (GPU)",
    ),
    "beside-helion": ("kt_lab.evidence.beside_helion", "Helion and kt_lab on one GPU (GPU)"),
    "vendors": ("kt_lab.evidence.vendors", "recorded best beside torch and torch.compile (GPU)"),
    "confirmation": ("kt_lab.evidence.confirmation", "level and power of confirmation (replay)"),
    "repeated": (
        "kt_lab.evidence.tuners",
        "naive and guarded tuners, many times over (replay)",
    ),
    "equivalence": ("kt_lab.evidence.equivalence", "searchers beside the real classes (replay)"),
    "cold": ("kt_lab.evidence.cold", "the flagship beside its peers, nothing known (replay)"),
    "captured": ("kt_lab.evidence.captured", "kernels of others, captured and recorded (GPU)"),
    "exhausted": ("kt_lab.evidence.exhausted", "what reading every config ends at (replay)"),
    "foreign": ("kt_lab.evidence.foreign", "the same on other tuners' landscapes (replay)"),
    "ablation": ("kt_lab.evidence.ablation", "the flagship with one part changed (replay)"),
    "refused": ("kt_lab.evidence.refused", "the flagship where many configs fail (replay)"),
    "widened": ("kt_lab.evidence.widened", "its defaults where nothing can be listed (replay)"),
    "histories": ("kt_lab.evidence.histories", "short runs next to recorded workloads (GPU)"),
    "warm_live": ("kt_lab.evidence.warm_live", "unrecorded shapes, with what is known (GPU)"),
    "warm": ("kt_lab.evidence.warm", "warm starts from other workloads' recordings (replay)"),
    "tuning": (
        "kt_lab.evidence.tuning",
        "options of every searcher, tuned on one kernel (replay)",
    ),
    "cost": ("kt_lab.evidence.cost", "the searchers' own CPU seconds beside the real classes"),
    "walks": (
        "kt_lab.evidence.walks",
        "random walks over moves of programs, and mutants of rules",
    ),
    "dojo": ("kt_lab.evidence.dojo", "tuned programs beside PyTorch and measured floors (CPU)"),
    "tvm": ("kt_lab.evidence.tvm", "tuned programs beside TVM and its MetaSchedule (CPU)"),
    "tvm_floors": ("kt_lab.evidence.tvm_floors", "how fast this machine could be there (CPU)"),
    "triton_programs": (
        "kt_lab.evidence.triton_programs",
        "programs of the dojo as Triton kernels beside PyTorch (GPU)",
    ),
    "players": ("kt_lab.evidence.players", "players of the dojo with equal budgets (CPU)"),
    "learners": (
        "kt_lab.evidence.learners",
        "deep Q-learners of the dojo: curves, transfer, encoders (CPU)",
    ),
    "fuzzing": ("kt_lab.evidence.fuzzing", "every parser against mutated inputs"),
    "sizes": (
        "kt_lab.evidence.sizes",
        "quality of a search against the size of its space (replay)",
    ),
    "storage": ("kt_lab.evidence.storage", "stored runs killed, damaged, short of disk; resumed"),
    "scaling": ("kt_lab.evidence.scaling", "speed-up by processes and Dask workers (replay)"),
    "record_scaling": ("kt_lab.evidence.record_scaling", "speed-up of recordings by GPUs (GPU)"),
    "flush": ("kt_lab.evidence.flush", "whether a flush empties the L2, hints and copies (GPU)"),
    "interrupts": ("kt_lab.evidence.interrupts", "interrupt and resume at random moments"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the choice of a piece; what follows it is the piece's own."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "\n".join(f"{name:14s} {what}" for name, (_, what) in EVIDENCE.items())
    parser.add_argument("--out", type=Path, help="default: data/evidence/<piece>.json")
    parser.add_argument("piece", choices=EVIDENCE, metavar="PIECE")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="see PIECE --help")


def run(args: argparse.Namespace) -> int:
    """Runs one piece of evidence, stores its result and prints it for people."""
    module = importlib.import_module(EVIDENCE[args.piece][0])
    parser = argparse.ArgumentParser(prog=f"kt-lab evidence {args.piece}")
    module.add_arguments(parser)
    parser.add_argument("--out", type=Path, default=args.out, help="where the result goes")
    given = parser.parse_args(args.arguments)
    out = given.out or data_directory() / "evidence" / f"{args.piece}.json"
    if out.is_dir():
        raise UsageError(
            f"--out must name a file, got the folder {out}; --out {out / args.piece}.json"
        )
    given.out = out
    with _folder_of(out):
        result = module.run(given)
        with replacing(out) as partial:
            partial.write_text(as_text(result))
    print(module.report(result))
    print(f"stored in {out}")
    return 0


@contextmanager
def _folder_of(out: Path) -> Iterator[None]:
    """Makes the folder of a result; afterwards those that it made and nothing came to are gone.

    Raises:
        StoreError: Nothing can be written there: said now, not after hours.
    """
    made = [folder for folder in out.parents if not folder.exists()]
    probe = out.with_name(f"{out.name}.probe")
    try:
        with writing(out):
            out.parent.mkdir(parents=True, exist_ok=True)
            probe.touch()
            probe.unlink()
        yield
    finally:
        for folder in made:
            with suppress(OSError):
                folder.rmdir()
