"""The command line, `kt-lab`: for GPU nodes, scripts and a first look."""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from kt_lab import __version__
from kt_lab.errors import KtLabError

# A command is one line here and a module with add_arguments(parser) and run(args) -> exit code.
# Only the chosen command's module is imported, so each may import what it needs at its top.
COMMANDS = {
    "record": ("kt_lab.commands.record", "records whole search spaces on this GPU"),
    "tune": ("kt_lab.commands.tune", "searches on this GPU, confirms and stores the winner"),
    "convert": ("kt_lab.commands.convert", "landscapes to other tuners' files, and back"),
    "dispatch": ("kt_lab.commands.dispatch", "decides a config per shape, guarded; the table"),
    "recheck": ("kt_lab.commands.recheck", "whether stored winners still hold on this machine"),
    "list": ("kt_lab.commands.listing", "what ships: kernels, workloads, searchers, landscapes"),
    "inspect": ("kt_lab.commands.inspect", "what configs compile to, without a GPU"),
    "doctor": ("kt_lab.commands.doctor", "what is installed, what is missing, how to mend it"),
    "datasheet": ("kt_lab.commands.datasheet", "writes the pages' tables from what is stored"),
    "study": ("kt_lab.commands.study", "runs a stored study by replay"),
    "compare": ("kt_lab.commands.compare", "compares searchers by replay, or a stored study"),
    "figures": ("kt_lab.commands.figures", "draws the headline study from its stored runs"),
    "publish": ("kt_lab.commands.publish", "figures, tables, captions of a study for a venue"),
    "artifact": ("kt_lab.commands.artifact", "bundles a study for artifact evaluation"),
    "programs": ("kt_lab.commands.programs", "tuned operators as a C library"),
    "evidence": ("kt_lab.commands.evidence", "the measurements behind the claims"),
    "benchmark": ("kt_lab.commands.benchmark", "speed of replay on this machine"),
}

_USAGE_EXIT = 2  # argparse's own, for the caller's mistakes
_INTERRUPT_EXIT = 130  # 128 + SIGINT, as shells report it


def build_parser(chosen: str | None) -> argparse.ArgumentParser:
    """Builds the parser, with the arguments of the chosen command only.

    Args:
        chosen: Name of the command whose module is imported; None imports none of them.
    """
    parser = argparse.ArgumentParser(prog="kt-lab", description=__doc__)
    parser.add_argument("--version", action="version", version=f"kt_lab {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (module, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary)
        if name == chosen:
            found = importlib.import_module(module)
            command.description = found.__doc__.partition("\n")[0]
            found.add_arguments(command)
            command.set_defaults(run=found.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; a user's mistake is one sentence and a 2."""
    argv = sys.argv[1:] if argv is None else list(argv)
    chosen = next((word for word in argv if word in COMMANDS), None)
    try:
        args = build_parser(chosen).parse_args(argv)
        return args.run(args)
    except KtLabError as error:
        print(f"kt-lab: {error}", file=sys.stderr)
        return _USAGE_EXIT
    except KeyboardInterrupt:
        print("kt-lab: interrupted", file=sys.stderr)
        return _INTERRUPT_EXIT
    except BrokenPipeError:
        # The reader (`| head`) went away; the interpreter must not complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a file or folder that is not there, or not ours to write
        print(f"kt-lab: {error}", file=sys.stderr)
        return _USAGE_EXIT
    except ModuleNotFoundError as error:
        if (error.name or "kt_lab").startswith("kt_lab"):
            raise
        fix = "kt-lab doctor says how to install it"
        print(f"kt-lab: {chosen} needs {error.name}, which is not there; {fix}", file=sys.stderr)
        return _USAGE_EXIT
