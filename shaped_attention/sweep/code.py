"""The code that determines the numbers of a sweep: this package, layer functions, and libraries.

The identity of the package is a digest of its installed sources, that of a library its version, and
that of a function that returns a layer the digest of its module (of the function alone, where the
module is the script that runs).
"""

from __future__ import annotations

import inspect
import sys
from hashlib import blake2b

from shaped_attention.libraries import sources_digest, versions
from shaped_attention.sweep.specification import Sweep


def code_of(sweep: Sweep) -> dict[str, str]:
    """Return digests of modules and versions of packages, by name."""
    code = code_here()
    for name, function in sweep.functions.items():
        script = function.__module__ == "__main__"
        try:
            source = inspect.getsource(function if script else sys.modules[function.__module__])
        except (OSError, TypeError):  # as of a function that was typed in
            source = "unknown"
        name = name if script else function.__module__
        code[name] = blake2b(source.encode(), digest_size=8).hexdigest()
    return code


def code_here() -> dict[str, str]:
    """Return the digest of the package and the versions of libraries in this process."""
    code = {name: version for name, version in versions().items() if name != "python"}
    return code | {"sources of shaped_attention": sources_digest()}


def changes(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """Return what has changed, as phrases. What only one of the two has came with an extension."""
    return [
        f"{name} {before[name]} before, {now[name]} now"
        for name in sorted(before.keys() & now.keys())
        if before[name] != now[name]
    ]
