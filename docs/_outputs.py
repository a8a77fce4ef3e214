"""Show the outputs of notebooks where the repository is read: small runs, in notebooks/.

`make outputs` runs the notebooks at small size into build/notebooks and calls this module, which
copies them into notebooks/, with images of 256 colours. With ``--check`` it writes nothing and
fails if a notebook in notebooks/ has other cells, or an output other words, numbers apart, than
that of the run. It also fails if a notebook has not been run.
"""

from __future__ import annotations

import base64
import re
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import nbformat
from PIL import Image

ROOT = Path(__file__).parent.parent
_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?(e[-+]?\d+)?")


def shown(executed: Any) -> Any:
    """Keep what a reader sees; equal outputs are then equal files."""
    # The version of Python would change with the machine.
    executed.metadata.pop("language_info", None)
    for number, cell in enumerate(executed.cells):
        cell.id = str(number)
        cell.metadata.pop("execution", None)
        if "outputs" in cell:
            cell.outputs = printed(cell)
        for output in cell.get("outputs", []):
            output.get("metadata", {}).clear()
            if "image/png" in output.get("data", {}):
                drawn = Image.open(BytesIO(base64.b64decode(output.data["image/png"])))
                smaller = BytesIO()
                drawn.convert("RGB").quantize(256).save(smaller, format="png", optimize=True)
                output.data["image/png"] = base64.b64encode(smaller.getvalue()).decode()
    return executed


def printed(cell: Any) -> list[Any]:
    """Return the outputs of a cell without warnings, which name files of the machine."""
    return [x for x in cell.get("outputs", []) if x.get("name") != "stderr"]


def words(notebook: Any) -> list[list[str]]:
    """Source of each cell, and the words that it prints, numbers apart."""
    return [
        [
            cell.source,
            *_NUMBER.sub("#", "".join(o.get("text", "") for o in printed(cell))).split(),
        ]
        for cell in notebook.cells
    ]


def copy_outputs(root: Path, check: bool) -> None:
    """Copy the outputs in build/notebooks to notebooks/, or check them.

    Raises
    ------
    SystemExit
        If a notebook has not been run, or, with `check`, its outputs are those of another run.
    """
    committed = sorted((root / "notebooks").glob("*.ipynb"))
    executed = [root / "build" / "notebooks" / path.name for path in committed]
    missing = [path.name for path in executed if not path.exists()]
    if missing or not committed:
        names = ", ".join(missing) or "notebooks"
        raise SystemExit(f"{names}: not in build/notebooks; `make notebooks` is needed")
    stale = []
    for path, place in zip(executed, committed, strict=True):
        notebook = nbformat.read(path, as_version=4)
        if not check:
            nbformat.write(shown(notebook), place)
        elif words(notebook) != words(nbformat.read(place, as_version=4)):
            stale.append(path.name)
    if stale:
        raise SystemExit(f"{', '.join(stale)}: outputs of another run; `make outputs` is needed")


if __name__ == "__main__":
    copy_outputs(ROOT, "--check" in sys.argv)
