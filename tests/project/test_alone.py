"""`make test` runs every test once: most a file a core, alone those that need the machine."""

import os
import re
import subprocess

from tests.project.source_tree import ROOT

# A GPU, a browser beside a server and its kernels, or the terminal.
NEEDY = re.compile(r"mark\.(gpu|browser)|disabled\(\)")


def test_what_runs_alone_is_what_needs_the_machine_and_nothing_is_left_out():
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "--no-print-directory", "-n", "test"]
    done = subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True, check=True)
    beside, alone = (line for line in done.stdout.splitlines() if "/pytest" in line)
    left = re.findall(r"--ignore=(\S+)", beside)
    assert alone.split()[2:] == left
    assert all((ROOT / path).exists() for path in left)
    for path in (ROOT / "tests").rglob("test_*.py"):
        if NEEDY.search(path.read_text(encoding="utf-8")):
            told = path.relative_to(ROOT)
            assert {str(told), *map(str, told.parents)} & set(left), f"not run alone: {told}"
