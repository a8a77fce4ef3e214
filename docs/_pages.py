"""What pages of the site need and git does not hold: made here, in `_generated`."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
from _attentions import attentions, explosions
from _families import supported_models

from shaped_attention.commands.main import main as package_command
from symbolic.claims.ledger import DOCUMENTS, PAPERS, Entry, claims, judge_all
from symbolic.claims.text import as_text, summary
from symbolic.commands import main as symbolic_command

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = {"shaped-attention": package_command, "python -m symbolic": symbolic_command}


def write_all(folder: Path) -> None:
    """Write the pages, and the figures and notebooks that they show, into a folder."""
    (folder / "parts").mkdir(parents=True, exist_ok=True)
    shutil.copytree(ROOT / "figures", folder / "figures", dirs_exist_ok=True)
    copy_notebooks(folder / "notebooks")
    shutil.copy2(ROOT / "CONTRIBUTING.md", folder / "contributing.md")
    pages = {
        "commands.md": lambda: "\n".join(
            f"## `{name}`\n\n```text\n{text}\n```\n"
            for program, command in PROGRAMS.items()
            for name, text in help_texts(program, command)
        ),
        "attentions.md": attentions,
        "explosions.md": explosions,
        "gallery.md": gallery,
        "supported-models.md": supported_models,
    }
    for name, page in pages.items():
        (folder / "parts" / name).write_text(page(), encoding="utf-8")
    judged = folder / "parts" / "ledger.md"
    # Judging takes minutes.
    sources = (ROOT / "symbolic").rglob("*.[pct]*")
    changed = max(path.stat().st_mtime for path in sources if path.suffix != ".pyc")
    if not judged.exists() or judged.stat().st_mtime < changed:
        judged.write_text(ledger(), encoding="utf-8")


def help_texts(
    name: str, command: click.Command, parent: click.Context | None = None
) -> Iterator[tuple[str, str]]:
    """Yield the names of a command and of those below it, each with its help text."""
    context = click.Context(
        command, info_name=name, parent=parent, terminal_width=88, **command.context_settings
    )
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            _, child, _ = command.resolve_command(context, [below])
            assert child is not None
            yield from help_texts(below, child, context)


def gallery() -> str:
    """Return for each script in figures/ its picture, its docstring and its code."""
    parts = []
    for script in sorted((ROOT / "figures").glob("*.py")):
        name, code = script.stem, script.read_text("utf-8")
        about = ast.get_docstring(ast.parse(code)) or ""
        code = code.split('"""', 2)[2].strip()
        parts.append(
            f"## {name}\n\n{about}\n\n![{name}](_generated/figures/{name}.png)\n\n"
            f"```python\n{code}\n```\n"
        )
    return "\n".join(parts)


def ledger() -> str:
    """Return every claim with its verdict: a section for each document and other source."""
    entries = list(judge_all(claims()))
    by_source: dict[str, list[Entry]] = {}
    keys = {claim.key: claim.source for claim in claims() if not claim.passages}
    for entry in entries:
        passages = entry.claim.passages
        source = passages[0].document if passages else keys[entry.claim.key]
        by_source.setdefault(source, []).append(entry)
    titles = {name: document.title for name, document in DOCUMENTS.items()} | PAPERS
    parts = [
        f"### {': '.join(filter(None, (source, titles.get(source, ''))))}\n\n"
        "```text\n" + "\n\n".join(map(as_text, here)) + "\n```\n"
        for source, here in by_source.items()
    ]
    return "\n".join([*parts, f"### Summary\n\n```text\n{summary(entries)}\n```\n"])


def links_to_copies(page: str, to_docs: str) -> str:
    """Let links to files above docs/ lead to their copies: Sphinx follows no others."""
    above = re.compile(r"\]\((?:\.\./)+(?:(CONTRIBUTING)\.md|(notebooks/[\w-]+\.ipynb))")
    return above.sub(lambda found: f"]({to_docs}_generated/{found[2] or 'contributing.md'}", page)


def copy_notebooks(folder: Path) -> None:
    """Copy the executed notebooks if there are any, else those in notebooks/."""
    executed = sorted((ROOT / "build" / "notebooks").glob("*.ipynb"))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for notebook in executed or sorted((ROOT / "notebooks").glob("*.ipynb")):
        shutil.copy2(notebook, folder)


if __name__ == "__main__":
    write_all(ROOT / "docs" / "_generated")
