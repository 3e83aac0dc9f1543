"""kt-lab convert: landscapes to other tuners' files, and back.

A source that ends in .json or .json.gz is read in the given format and saved as a landscape, a
Parquet file with its manifest; any other source is a landscape, by its file or its workload's key.
"""

import argparse
from pathlib import Path

from kt_lab.errors import UsageError
from kt_lab.formats import conditions, read_cache, read_t4, write_cache, write_t4
from kt_lab.formats.records import OBJECTIVES
from kt_lab.landscape import Landscape, load_landscape, table_path
from kt_lab.manifests import read_manifest, require_free

_FORMATS = {"cache": (read_cache, write_cache), "t4": (read_t4, write_t4)}
_OPTIONS = ("objective", "kernel", "workload", "gpu")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the source, the target, the format and what an imported file does not say."""
    parser.add_argument("source", help="a .json(.gz) file, a landscape's .parquet, or a workload")
    parser.add_argument("target", type=Path, help="what to write; .gz packs it")
    parser.add_argument("--format", choices=_FORMATS, required=True, help="of the other tuner")
    parser.add_argument("--gpu", help="of the landscape, or of an imported file that is silent")
    parser.add_argument("--kernel", help="of an imported file; default: as it says")
    parser.add_argument("--workload", help="name of an imported file's problem size")
    parser.add_argument("--conditions", type=Path, help="T1 input file of an imported file")
    parser.add_argument("--objective", choices=OBJECTIVES, default="times", help="when importing")


def _require_apart(source: str, target: Path, *, importing: bool) -> None:
    """Raises UsageError where a manifest and another tuner's file would have one name."""
    table = table_path(target)
    manifest = table.with_suffix(".json")
    if importing and manifest.resolve() == Path(source).resolve():
        lost = f"{manifest.name}, its own source"
    elif not importing and target in (manifest, table) and table.exists():
        lost = f"the manifest of {table.name}" if target == manifest else f"landscape {table.name}"
    else:
        return
    raise UsageError(
        f"a landscape is NAME.parquet with its manifest NAME.json, got a target that would write "
        f"over {lost}; give the target another name than {target.stem}"
    )


def _require_known(source: str) -> None:
    """Raises UsageError for a file in a form that nobody here reads, such as CSV."""
    if Path(source).is_file() and not source.endswith(".parquet"):
        raise UsageError(
            f"a file to convert must be .json, .json.gz or a landscape's .parquet, got {source}; "
            "CSV and other forms are not read: write it as T4 results"
        )


def _require_own(landscape: Landscape, table: Path) -> None:
    """Raises UsageError where what is imported would replace a landscape of something else."""
    manifest = table.with_suffix(".json")
    require_free(manifest)
    if not (table.exists() and manifest.exists()):
        return
    facts = read_manifest(manifest)
    there, here = (facts.get("workload"), facts.get("gpu")), (landscape.workload, landscape.gpu)
    if there != here:
        raise UsageError(
            f"an imported landscape may replace one of its own workload and GPU, got "
            f"{' on '.join(here)} for {table.name}, which holds {' on '.join(map(str, there))}; "
            "give the target another name"
        )


def _require_export(args: argparse.Namespace) -> None:
    """Raises UsageError for what an export would not heed, or for a landscape's file name."""
    heeded = {"objective": args.objective == "times", "gpu": not args.source.endswith(".parquet")}
    names = (*_OPTIONS, "conditions")
    unheeded = [f"--{n}" for n in names if getattr(args, n) and not heeded.get(n, False)]
    if unheeded:
        raise UsageError(
            f"an export writes what the landscape says, got {' and '.join(unheeded)}; leave "
            f"{'it' if len(unheeded) == 1 else 'them'} out"
        )
    if args.target.suffix == ".parquet":
        raise UsageError(
            f"an export writes another tuner's JSON, got the target {args.target.name}; name it "
            f"{args.target.stem}.json"
        )


def run(args: argparse.Namespace) -> int:
    """Converts, and prints what was saved."""
    if not args.target.name or args.target.is_dir():
        raise UsageError(
            f"the target must name a file, got the folder {args.target}; name one in it, such as "
            f"{args.target / 'landscape.json'}"
        )
    read, write = _FORMATS[args.format]
    if args.source.removesuffix(".gz").endswith(".json"):
        options = {name: getattr(args, name) for name in _OPTIONS}
        if args.conditions:
            options["restrictions"] = conditions(args.conditions)
        _require_apart(args.source, args.target, importing=True)
        landscape = read(args.source, **options)
        _require_own(landscape, table_path(args.target))
        saved = landscape.save(args.target)
    else:
        _require_known(args.source)
        _require_apart(args.source, args.target, importing=False)
        _require_export(args)
        on_disk, key = args.source.endswith(".parquet"), args.source
        landscape = Landscape.load(key) if on_disk else load_landscape(key, gpu=args.gpu)
        saved = write(landscape, args.target)
    failed = int((landscape.table["status"] != "ok").sum())
    print(
        f"saved {saved}: {landscape.workload} on {landscape.gpu}, {len(landscape.table):,} "
        f"configs, {failed:,} failed, optimum {landscape.optimum_us:.4g} us"
    )
    return 0
