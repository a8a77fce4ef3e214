"""``python -m tests.release``: build a release, check it, and test it where nothing else is.

Sources are copied and built (source archive first, the wheel from that), the metadata are checked,
and the wheel is installed into an empty environment of each Python on the path, with the newest
dependencies and, if asked, the lowest allowed ones. The quick suite runs there on copies of the
tests, in a folder without the packages. Nothing is tagged or published.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import yaml
from packaging.metadata import Metadata
from packaging.requirements import Requirement

from shaped_attention.libraries import __version__

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("shaped_attention", "symbolic")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
EXTRAS = ("cluster", "figures", "files", "parquet", "sweep", "trained")
TOOLS = ("beartype", "hypothesis", "jsonschema", "packaging", "pytest", "pytest-xdist", "pyyaml")
"""What the tests need beside the package."""
OF_THE_SOURCES = (
    "test_architecture.py", "test_dependencies.py", "test_docs.py", "test_mutants.py",
    "test_notebooks.py", "test_without_posix.py",
)  # fmt: skip
"""Tests that read the sources of the packages, or need the tools of the documentation."""
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "_generated", "*.egg-info")
OF_THE_ROOT = {"build", "dist", "results", "site"}
"""Folders that are left out there only."""
WRITTEN = {".cff", ".ipynb", ".md", ".py", ".toml", ".yml"}
"""Files in which a placeholder may be."""


def call(*command: object, cwd: Path) -> str:
    """Standard output of a command that must succeed; its output is shown if it does not."""
    words = [str(part) for part in command]
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        words, cwd=cwd, env=environment, text=True, check=False, capture_output=True
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def left_out(folder: str, names: list[str], root: Path = ROOT) -> set[str]:
    """Which of these names in a folder are not copied."""
    here = OF_THE_ROOT.intersection(names) if Path(folder) == root else set()
    return here | LEFT_OUT(folder, names)


def build(folder: Path) -> tuple[Path, Path]:
    """The wheel and the source archive in `folder`/dist.

    They are built from a copy of the sources, so that no old build folder gets into them.
    """
    source = folder / "source"
    shutil.copytree(ROOT, source, ignore=left_out)
    call(sys.executable, "-m", "build", "--outdir", folder / "dist", source, cwd=folder)
    (wheel,) = (folder / "dist").glob("*.whl")
    (archive,) = (folder / "dist").glob("*.tar.gz")
    return wheel, archive


def faults(changelog: str, citation: str, version: str, dated: bool = False) -> list[str]:
    """How changelog and citation contradict a version or each other; and, if asked, lack a date."""
    cited = yaml.safe_load(citation)
    heading = re.search(r"^## (.*)$", changelog, re.MULTILINE)
    assert heading
    released = re.fullmatch(r"\[(.+)\]: (\d{4}-\d\d-\d\d)", heading[1])
    date = str(cited["date-released"]) if "date-released" in cited else None
    tests = {
        "the changelog begins with another version": (
            heading[1] == f"[Unreleased]: {version}"
            or (released is not None and released[1] == version)
        ),
        "the citation has another version": str(cited["version"]) == version,
        "the citation has another date": date == (released[2] if released else None),
        "the version has no date in the changelog": released is not None or not dated,
        "the version has no date in the citation": date is not None or not dated,
    }
    return [fault for fault, right in tests.items() if not right]


def placeholders(root: Path = ROOT) -> list[str]:
    """Where a word stands for what is not known yet, as "file:line: word"."""
    found = []
    for folder, names, files in os.walk(root):
        hidden = left_out(folder, names, root) - {".github"}
        names[:] = sorted(set(names) - hidden - {"tests"})
        for file in (Path(folder, name) for name in sorted(files)):
            if file.suffix in WRITTEN:
                lines = file.read_text(encoding="utf-8").splitlines()
                found += [
                    f"{file.relative_to(root).as_posix()}:{number}: {word}"
                    for number, line in enumerate(lines, 1)
                    for word in re.findall(r"\b(?:CONTACT|REPOSITORY)\b", line)
                ]
    return found


def before_tag(root: Path = ROOT, version: str = __version__) -> list[str]:
    """What keeps a version from being tagged."""
    changelog, citation = (
        (root / name).read_text(encoding="utf-8") for name in ("CHANGELOG.md", "CITATION.cff")
    )
    return faults(changelog, citation, version, dated=True) + placeholders(root)


def check_metadata(text: bytes | str, version: str = __version__) -> None:
    """Raise ExceptionGroup or AssertionError for what is wrong."""
    metadata = Metadata.from_email(text, validate=True)
    assert str(metadata.version) == version, metadata.version
    assert metadata.requires_python
    assert metadata.license_expression == "Apache-2.0"
    assert metadata.description_content_type == "text/markdown"
    assert len(metadata.description or "") > 1000


def metadata_of(file: Path) -> bytes:
    """The metadata in a wheel or a source archive."""
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as wheel:
            (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
            return wheel.read(name)
    with tarfile.open(file) as archive:
        member = archive.extractfile(f"{file.name.removesuffix('.tar.gz')}/PKG-INFO")
        assert member is not None
        return member.read()


def lowest(extras: tuple[str, ...] = EXTRAS) -> str:
    """Constraints that pin each requirement of the package at its lower bound."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = list(project["dependencies"])
    for extra in extras:
        lines += project["optional-dependencies"][extra]
    pins = []
    for requirement in map(Requirement, lines):
        (bound,) = requirement.specifier
        assert bound.operator == ">=", requirement
        pins.append(f"{requirement.name}=={bound.version}")
    return "\n".join(pins) + "\n"


def interpreters() -> dict[str, str]:
    """Pythons on the path that start and are what their names say."""
    working = {}
    for number in PYTHONS:
        program = shutil.which(f"python{number}")
        command = [program or "", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        if program:
            done = subprocess.run(command, text=True, check=False, capture_output=True)
            if done.returncode == 0 and done.stdout.strip() == number:
                working[number] = program
    return working


@dataclass(frozen=True)
class Installed:
    """A fresh environment, and an empty folder beside it to work in."""

    bin: Path
    work: Path

    @classmethod
    def create(cls, folder: Path, python: str) -> Installed:
        """Make an environment of a Python at `folder`."""
        call(python, "-m", "venv", folder, cwd=folder.parent)
        work = folder.with_name(f"{folder.name}-work")
        work.mkdir()
        return cls(folder / ("Scripts" if sys.platform == "win32" else "bin"), work)

    def run(self, program: str, *arguments: object) -> str:
        return call(self.bin / program, *arguments, cwd=self.work)

    def install(self, *requirements: object, constraints: Path | None = None) -> None:
        limits = ("--constraint", constraints) if constraints else ()
        self.run("python", "-m", "pip", "install", "--quiet", *limits, *requirements)


def try_wheel(place: Installed, wheel: Path, constraints: Path | None, tests: list[str]) -> str:
    """The last line of the quick suite (or of `tests`) against the wheel in an environment."""
    place.install(f"{wheel}[{','.join(EXTRAS)}]", *TOOLS, constraints=constraints)
    copies = place.work / "checkout"
    shutil.copytree(ROOT, copies, ignore=left_out)
    for package in PACKAGES:
        shutil.rmtree(copies / package)
    for name in OF_THE_SOURCES:
        (copies / "tests" / name).unlink(missing_ok=True)
    inside = Installed(place.bin, copies)
    where = inside.run("python", "-c", "import shaped_attention as sa; print(sa.__file__)").strip()
    assert Path(where).is_relative_to(place.bin.parent), where
    words = tests or ["-m", "quick", "--numprocesses", "auto", "--dist", "worksteal", "tests"]
    printed = inside.run("python", "-m", "pytest", "-p", "no:cacheprovider", "-ra", *words)
    return printed.strip().splitlines()[-1]


TAG = """To release {version}, when the above is as it should be:
  1. CHANGELOG.md: "[Unreleased]: {version}" becomes "[{version}]: YYYY-MM-DD"
  2. CITATION.cff: date-released: "YYYY-MM-DD"; placeholders as CONTRIBUTING.md says
  3. git commit -am "Version {version}"
  4. git tag -a v{version} -m "Version {version}"
  5. git push origin v{version}    (the workflow `release` builds again and publishes)
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.release", description=__doc__)
    parser.add_argument("--lowest", action="store_true", help="also with the lowest dependencies")
    parser.add_argument(
        "--tag", help="fail unless the version is that of this tag, has a date and no placeholders"
    )
    parser.add_argument("--python", action="append", help="one of the Pythons, such as 3.11; all")
    parser.add_argument("--build-only", action="store_true", help="install nothing")
    parser.add_argument("tests", nargs="*", help="for pytest, instead of the quick suite")
    options = parser.parse_args()
    if options.tag not in (None, f"v{__version__}"):
        sys.exit(f"the tag {options.tag} is not v{__version__}")
    missing = before_tag()
    print(*(f"before the tag: {line}" for line in missing), sep="\n")
    if options.tag and missing:
        sys.exit(
            f"the tag {options.tag} must wait; see CONTRIBUTING.md, 'Before the first release'"
        )
    with tempfile.TemporaryDirectory(prefix="release-") as name:
        folder = Path(name).resolve()
        files = build(folder)
        for file in files:
            check_metadata(metadata_of(file))
        if importlib.util.find_spec("twine"):
            call(sys.executable, "-m", "twine", "check", "--strict", *files, cwd=folder)
        else:
            print("metadata are checked by `packaging`; twine is not installed")
        shutil.copytree(folder / "dist", ROOT / "dist", dirs_exist_ok=True)
        print(*(f"built dist/{file.name}" for file in files), sep="\n")
        pins = folder / "lowest.txt"
        pins.write_text(lowest(), encoding="utf-8")
        pythons = interpreters()
        failed, tried = [], 0
        for number in () if options.build_only else options.python or PYTHONS:
            if number not in pythons:
                print(f"Python {number}: not run (no working python{number} on the path)")
                continue
            cases = {"newest": None} | ({"lowest": pins} if options.lowest else {})
            for case, constraints in cases.items():
                tried += 1
                start = time.monotonic()
                try:
                    place = Installed.create(folder / f"{number}-{case}", pythons[number])
                    result = try_wheel(place, files[0], constraints, options.tests)
                except AssertionError as error:
                    failed.append(f"{number} {case}")
                    result = f"failed\n{error}"
                seconds = time.monotonic() - start
                print(f"Python {number}, {case} dependencies: {result} ({seconds:.0f} s)")
    print(TAG.format(version=re.sub(r"[^\w.]", "", __version__)))
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")
    if not (tried or options.build_only):
        sys.exit("the wheel was tried with no Python")


if __name__ == "__main__":
    main()
