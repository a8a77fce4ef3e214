"""Configurations of public models that come with the package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent.parent / "data" / "models"


def shipped_configurations() -> list[str]:
    """Return the names of the shipped configurations, which `model_from_config` accepts.

    They describe public models at their real depth and width, with the fields that matter at
    initialisation, and no weights.

    Examples
    --------
    >>> "llama-3.1-70b" in shipped_configurations()
    True
    """
    return sorted(path.stem for path in _FOLDER.glob("*.json"))


def shipped_fields(name: str) -> dict[str, Any]:
    """Return the fields of a shipped configuration."""
    fields: dict[str, Any] = json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return fields
