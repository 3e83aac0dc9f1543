"""What is tracked holds on every machine: no folder of one machine is named anywhere."""

import re
import subprocess

from tests.project.source_tree import ROOT

# Assembled, so that this file does not hold what it looks for.
FOLDERS = "|".join(("work", "root", "home", "Users", "opt", "mnt"))
PATTERN = re.compile(rf"(?<![\w./:-])/(?:{FOLDERS})/\w".encode())
TEXT = {".py", ".md", ".toml", ".yml", ".yaml", ".json", ".ipynb", ".lock", ".csv", ".txt", ".svg"}


def tracked():
    """Files that git holds or would add; without git, every file outside ignored folders."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if done.returncode == 0 and done.stdout:
        names = done.stdout.decode().split("\0")
        return [path for name in names if name and (path := ROOT / name).is_file()]
    return [path for path in ROOT.rglob("*") if path.is_file() and ".venv" not in path.parts]


def test_no_tracked_file_names_a_folder_of_one_machine():
    files = [path for path in tracked() if path.suffix in TEXT or not path.suffix]
    assert len(files) > 20
    broken = [
        f"{path.relative_to(ROOT)}: {found.group().decode()}..."
        for path in files
        if (found := PATTERN.search(path.read_bytes()))
    ]
    assert not broken, "\n".join(broken)
