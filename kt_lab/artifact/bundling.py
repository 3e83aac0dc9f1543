"""Gathering an artifact: runs, landscapes, code, lock, figures, tables, and a manifest."""

import json
import shutil
import tempfile
import zipfile
from collections.abc import Collection, Sequence
from pathlib import Path

from kt_lab import __version__
from kt_lab.artifact import recompute
from kt_lab.artifact.guide import guide
from kt_lab.errors import UsageError
from kt_lab.landscape import data_directory, landscapes
from kt_lab.publication import publish, read_study
from kt_lab.publication.stored import StoredStudy, sha256
from kt_lab.store.files import replacing
from kt_lab.study import VENUE

_ROOT = Path(__file__).resolve().parents[2]
_PROJECT = ("pyproject.toml", "requirements.lock", "environment.yml")
_THEN = (1980, 1, 1, 0, 0, 0)  # the same files give the same archive


def bundle(
    studies: Sequence[str],
    output: Path | str,
    *,
    venue: str = VENUE,
    width: str | None = None,
    only: Collection[str] | None = None,
    workers: int = 1,
) -> Path:
    """Writes the artifact of stored studies: a folder, or a zip where the name ends in .zip.

    Args:
        studies: Names as `kt_lab.publication.publish` takes them.
        output: Must not exist, or be an empty folder.
        venue: Whose page the figures and tables are for.
        width: "column" or "text" for all figures; None: each one's own.
        only: Names of figures and tables; None: all.
        workers: Processes.

    Returns:
        The folder or the archive. The same studies give the same bytes.
    """
    output = Path(output).resolve()  # "." has no name of its own
    if not studies or len(set(studies)) < len(studies):
        raise UsageError(f"an artifact holds one study or several, each once, got {studies}")
    if output.exists() and (output.is_file() or any(output.iterdir())):
        raise UsageError(f"the output must not exist, or be an empty folder, got {output.name}")
    settings = {"venue": venue, "width": width, "only": only, "workers": workers}
    with tempfile.TemporaryDirectory() as folder:  # what is refused on the way leaves nothing
        root = Path(folder) / output.stem
        root.mkdir()
        _fill(root, studies, **settings)
        if output.suffix == ".zip":
            _pack(root, output)
        else:
            output.mkdir(parents=True, exist_ok=True)
            for path in root.iterdir():
                shutil.move(path, output)
    return output


def _fill(
    root: Path,
    studies: Sequence[str],
    *,
    venue: str,
    width: str | None,
    only: Collection[str] | None,
    workers: int,
) -> None:
    """Writes every file of an artifact."""
    told, captions = {}, {}
    for name in studies:
        stored = read_study(name)
        page = {"venue": venue, "width": width}
        paths = publish(name, directory=root / "paper" / name, **page, only=only, workers=workers)
        written = [each for each in paths if each != "document"]
        told[name] = page | {
            "lanes": int(stored.runs["lanes"].iloc[0]),
            "reference": stored.reference,
            "only": written,
        }
        for each in written:
            facts = json.loads(paths[each]["json"].read_text(encoding="utf-8"))
            captions[f"{name}/{each}"] = facts["caption"]
        _copy_data(stored, root / "data")
    package = _ROOT / "kt_lab"
    for path in sorted(package.rglob("*.py")):
        _copy(path, root / path.relative_to(_ROOT))
    for name in _PROJECT:
        if (_ROOT / name).exists():
            _copy(_ROOT / name, root / name)
    _copy(Path(recompute.__file__), root / "recompute.py")
    (root / "README.md").write_text(guide(told, captions), encoding="utf-8")
    files = {
        path.relative_to(root).as_posix(): {
            "bytes": path.stat().st_size,
            "sha256": sha256(path),
        }
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }
    manifest = {"kt_lab": __version__, "studies": told, "files": files}
    text = json.dumps(manifest, indent=1, sort_keys=True)
    (root / recompute.MANIFEST).write_text(text + "\n", encoding="utf-8")


def _copy_data(stored: StoredStudy, data: Path) -> None:
    """Copies the runs of a study and the landscapes that they replayed, as they lie here."""
    for path in stored.files.values():
        _copy(path, data / path.relative_to(data_directory()))
    replayed = {(each.gpu, each.workload) for each in stored.landscapes}
    for entry in landscapes():
        if (entry.gpu, entry.workload) in replayed:
            for path in (entry.path, entry.path.with_suffix(".json")):
                _copy(path, data / path.relative_to(data_directory()))


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _pack(root: Path, output: Path) -> None:
    """Packs a folder, with itself as the only entry at the top."""
    with (
        replacing(output) as partial,
        zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for path in sorted(root.rglob("*")):
            if path.is_file():
                name = path.relative_to(root.parent).as_posix()
                info = zipfile.ZipInfo(name, date_time=_THEN)
                info.compress_type = zipfile.ZIP_DEFLATED
                info.external_attr = 0o644 << 16
                archive.writestr(info, path.read_bytes())
