"""The code that determines the numbers of a sweep: this package, layer functions, and libraries.

The identity of the package is a digest of its installed sources, that of a layer function the
digests of the definitions that it reaches (`layer_code`), and that of a library its version. The
kind of processor is recorded too; it may change the last bits, and is no reason to refuse a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from shaped_attention.io.records import append_records, read_records
from shaped_attention.sweep.layer_code import definitions_of, layer_function
from shaped_attention.sweep.specification import Sweep
from shaped_attention.version import sources_digest, versions

_RECORDS = "code.jsonl"


class Code(NamedTuple):
    """Digests of definitions by 'module:name' or module, and versions by package."""

    definitions: Mapping[str, str]
    versions: Mapping[str, str]


def code_of(sweep: Sweep) -> Code:
    """Return the code of a sweep, as its modules are on disk now."""
    functions = ((name, layer_function(name)) for name in _functions(sweep))
    return _code(definitions_of(name, function) for name, function in functions)


_imported: dict[int, tuple[Callable[..., Any], dict[str, str]]] = {}


def imported_code(sweep: Sweep) -> Code:
    """Return the code of a sweep, as this process first saw the functions that it imported."""
    found = []
    for name in _functions(sweep):
        function = layer_function(name)
        if id(function) not in _imported:
            # The function is kept, so that no other object gets its id.
            _imported[id(function)] = function, definitions_of(name, function)
        found.append(_imported[id(function)][1])
    return _code(found)


def code_records(folder: Path) -> list[dict[str, Any]]:
    """Return the code that made the units of a store, and its accepted changes, in order.

    A record has `time`, the number of `units` finished by then, `changed` (what had changed, in
    words), `processor`, `definitions` and `versions`. The list is empty if the file is gone.
    """
    return read_records(folder / _RECORDS)


def note_code(folder: Path, code: Code, units: int, changed: list[str]) -> None:
    """Add a record of the code to a store."""
    import llvmlite.binding  # a fifth of a second, which reading a store does not need

    now = datetime.now(UTC).isoformat(timespec="seconds")
    processor = llvmlite.binding.get_host_cpu_name()
    record = {"time": now, "units": units, "changed": changed, "processor": processor}
    record |= code._asdict()
    append_records(folder / _RECORDS, [record])


def note_further_layers(folder: Path, before: Sweep, after: Sweep) -> None:
    """Record the code of the layers that only the larger sweep has."""
    if further := set(_functions(after)) - set(_functions(before)):
        last = code_records(folder)[-1]
        added = _code(definitions_of(name, layer_function(name)) for name in sorted(further))
        definitions = {**added.definitions, **last["definitions"]}
        note_code(folder, Code(definitions, last["versions"]), last["units"], [])


def changes_since(folder: Path, now: Code) -> list[str]:
    """Return the differences between the code last recorded in a store and `now`, as phrases."""
    records = code_records(folder)
    if not records:
        return ["the store has no record of its code and versions"]
    return differences(Code(records[-1]["definitions"], records[-1]["versions"]), now)


def differences(before: Code, now: Code) -> list[str]:
    """Return the differences between two versions of the code, as phrases."""
    found = []
    for name in sorted({*before.definitions, *now.definitions}):
        old, new = before.definitions.get(name), now.definitions.get(name)
        if old != new:
            found.append(
                f"{name} {'added' if old is None else 'gone' if new is None else 'edited'}"
            )
    for name in sorted({*before.versions, *now.versions}):
        old, new = before.versions.get(name, "none"), now.versions.get(name, "none")
        if old != new:
            found.append(f"{name} {old} before, {new} now")
    return found


def _functions(sweep: Sweep) -> list[str]:
    return [layer for layer in sweep.layers if ":" in layer]


def _code(parts: Any) -> Code:
    definitions: dict[str, str] = {}
    for part in parts:
        definitions |= part
    made_by = {name: version for name, version in versions().items() if name != "python"}
    return Code({"shaped_attention": sources_digest(), **definitions}, made_by)
