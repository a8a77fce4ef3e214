"""Pages made from the package: the gallery, the help texts of commands, and notebooks."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import join

import click

from shaped_attention.commands.gallery import GALLERY
from shaped_attention.commands.main import main as package_command
from shaped_attention.figures.paper.catalogue import FIGURES as PAPER
from shaped_attention.sphere.figures.catalogue import FIGURES as SPHERE
from symbolic.claims.book import OTHERS, PAPERS, Entry, as_text, judge_all, summary
from symbolic.claims.coverage import DOCUMENTS
from symbolic.commands import main as symbolic_command

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = {"shaped-attention": package_command, "python -m symbolic": symbolic_command}
WIDTH = 88
THUMBNAIL, COLUMNS = 200, 4
"""Width of a thumbnail in pixels, and how many are in a row."""


def commands(
    name: str, command: click.Command, parent: click.Context | None = None
) -> Iterator[tuple[str, str]]:
    """A command and those below it: its name and its help text."""
    context = click.Context(
        command, info_name=name, parent=parent, terminal_width=WIDTH, **command.context_settings
    )
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            _, child, _ = command.resolve_command(context, [below])
            assert child is not None
            yield from commands(below, child, context)


def help_texts(program: str) -> str:
    """Help texts of all commands of a program, a section for each."""
    return "\n".join(
        f"## `{name}`\n\n```text\n{text}\n```\n"
        for name, text in commands(program, PROGRAMS[program])
    )


def _first_sentence(words: tuple[str, ...]) -> str:
    """The first sentence of a command's help text."""
    command: click.Command | None = package_command
    for word in words:
        if not isinstance(command, click.Group):
            break
        _, command, _ = command.resolve_command(click.Context(command), [word])
    assert command is not None
    paragraph = " ".join((command.help or "").split("\n\n")[0].split())
    return paragraph.split(". ")[0].rstrip(".") + "."


def about(name: str) -> str:
    """What the figures of an entry of the gallery show, in one sentence."""
    for prefix, recipes in (("paper ", PAPER), ("sphere ", SPHERE)):
        if name.startswith(prefix):
            return recipes[name.removeprefix(prefix)].about
    return _first_sentence(GALLERY[name].commands[-1])


def thumbnails(figures: str) -> str:
    """A table with the first figure of each entry, small, with links to the entries."""
    cells = []
    for name, entry in GALLERY.items():
        link = f"(#{name.replace(' ', '-')})"
        image = f'<img src="{figures}/{entry.figures[0]}.png" width="{THUMBNAIL}" alt="{name}">'
        cells.append(f"[{image}]{link}<br>[{name}]{link}")
    cells += [""] * (-len(cells) % COLUMNS)
    rows = [cells[k : k + COLUMNS] for k in range(0, len(cells), COLUMNS)]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(["|   " * COLUMNS + "|", "| --- " * COLUMNS + "|", *lines]) + "\n"


def gallery(figures: str) -> str:
    """Thumbnails, and for each entry what it shows, its commands and its figures in `figures`."""
    parts = [thumbnails(figures)]
    for name, entry in GALLERY.items():
        lines = "\n".join(join(("shaped-attention", *words)) for words in entry.commands)
        parts.append(f"## {name}\n\n{about(name)}\n\n```bash\n{lines}\n```\n")
        parts += [
            f"![{figure}: {about(name)}]({figures}/{figure}.png)\n\n"
            f"[{figure}.svg]({figures}/{figure}.svg)\n"
            for figure in entry.figures
        ]
    return "\n".join(parts)


def _section(title: str, entries: Sequence[Entry]) -> str:
    return f"## {title}\n\n```text\n" + "\n\n".join(map(as_text, entries)) + "\n```\n"


def ledger() -> str:
    """Every claim with its verdict, judged now: a section for each document and other source."""
    entries = list(judge_all())
    by_source: dict[str, list[Entry]] = {}
    keys = {claim.key: source for source, claims in OTHERS.items() for claim in claims}
    for entry in entries:
        passages = entry.claim.passages
        source = passages[0].document if passages else keys[entry.claim.key]
        by_source.setdefault(source, []).append(entry)
    titles = {name: document.title for name, document in DOCUMENTS.items()} | PAPERS
    parts = [
        _section(": ".join(filter(None, (source, titles.get(source, "")))), here)
        for source, here in by_source.items()
    ]
    return "\n".join([*parts, f"## Summary\n\n```text\n{summary(entries)}\n```\n"])


def all_help_texts() -> str:
    """Help texts of all commands of both programs."""
    return "\n".join(map(help_texts, PROGRAMS))


ABOVE = re.compile(r"\]\((?:\.\./)+(CONTRIBUTING\.md|notebooks/[\w-]+\.ipynb)")
COPIES = {"CONTRIBUTING.md": "contributing.md"}


def links_to_copies(page: str, to_docs: str) -> str:
    """Let links to files above docs/ lead to their copies below it: Sphinx follows no others.

    A page that is read in the repository has its links as they are written.
    """
    return ABOVE.sub(lambda found: f"]({to_docs}_generated/{COPIES.get(found[1], found[1])}", page)


def copy_notebooks(root: Path, folder: Path) -> list[Path]:
    """Copy the executed notebooks if there are any, else those in notebooks/."""
    executed = sorted((root / "build" / "notebooks").glob("*.ipynb"))
    sources = executed or sorted((root / "notebooks").glob("*.ipynb"))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return [Path(shutil.copy2(source, folder)) for source in sources]


def write_all(folder: Path) -> None:
    """Write the pages, and the figures and notebooks that they need, into a folder."""
    shutil.copytree(ROOT / "figures", folder / "figures", dirs_exist_ok=True)
    copy_notebooks(ROOT, folder / "notebooks")
    (folder / "contributing.md").write_text((ROOT / "CONTRIBUTING.md").read_text("utf-8"), "utf-8")
