"""Calls of all public functions, with each argument in turn replaced by something wrong.

`python -m tests.wrong_arguments` prints what each answers, as JSON. It is a process of its own, as
in tests the run-time type checks would answer first.
"""

from __future__ import annotations

import inspect
import json
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

from tests.public_calls import calls


class Wrong:
    """An object that is nothing of what a function takes."""

    def __repr__(self) -> str:
        return "Wrong()"


WRONG = {"text": "x y", "object": Wrong()}


def answers(function: Any, good: dict[str, Any]) -> dict[str, str]:
    """What a function answers, by the wrong argument: "accepted", or the error."""
    found = {}
    try:
        function(**good)
    except Exception as error:
        found["nothing wrong"] = repr(error)
    names = [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    ]
    for name in names:
        for kind, value in WRONG.items():
            try:
                function(**good | {name: value})
                found[f"{name}={kind}"] = "accepted"
            except (ValueError, TypeError, FileNotFoundError) as error:
                # A path names the file, of which it may say several things.
                known = name in str(error) or (isinstance(value, str) and value in str(error))
                found[f"{name}={kind}"] = f"named: {error}" if known else repr(error)
            except Exception as error:
                found[f"{name}={kind}"] = repr(error)
    return found


def main() -> None:
    warnings.simplefilter("ignore")
    os.environ["TQDM_DISABLE"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        # "x y" is the name of a file for some functions, which write it here.
        os.chdir(folder)
        for name, (function, good) in calls(Path(folder)).items():
            print(json.dumps({name: answers(function, good)}), flush=True)


if __name__ == "__main__":
    main()
