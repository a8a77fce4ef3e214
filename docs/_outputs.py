"""Show the outputs of notebooks where the repository is read: small runs, in notebooks/.

`make outputs` runs the notebooks at small size into build/notebooks and calls this module, which
copies their outputs into notebooks/, with images of 256 colours. With ``--check`` it writes nothing
and fails if an output in notebooks/ has other words, numbers apart, than that of the run.
"""

from __future__ import annotations

import base64
import io
import re
import sys
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
    for cell in executed.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            output.get("metadata", {}).clear()
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = _small(output.data["image/png"])
    return executed


def words(notebook: Any) -> list[list[str]]:
    """Words that each cell prints, numbers apart."""
    return [
        _NUMBER.sub("#", "".join(o.get("text", "") for o in cell.get("outputs", []))).split()
        for cell in notebook.cells
    ]


def _small(png: str) -> str:
    image = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    buffer = io.BytesIO()
    image.quantize(256, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()


def main() -> None:
    """Copy the outputs, or check them."""
    stale = []
    for path in sorted((ROOT / "build" / "notebooks").glob("*.ipynb")):
        executed = nbformat.read(path, as_version=4)
        committed = ROOT / "notebooks" / path.name
        if "--check" not in sys.argv:
            nbformat.write(shown(executed), committed)
        elif words(executed) != words(nbformat.read(committed, as_version=4)):
            stale.append(path.name)
    if stale:
        raise SystemExit(f"{', '.join(stale)}: outputs of another run; `make outputs` is needed")


if __name__ == "__main__":
    main()
