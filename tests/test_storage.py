"""Files come to the disk before they come to their place."""

from __future__ import annotations

import os
from pathlib import Path

from shaped_attention.io.storage import written


def test_a_file_is_on_the_disk_before_it_is_moved(tmp_path, monkeypatch):
    """A crash of the machine in between leaves the old file, and not an empty new one."""
    path, seen = tmp_path / "file", []
    path.write_bytes(b"old")
    fsync, replace = os.fsync, Path.replace

    def noted_fsync(descriptor):
        seen.append(("fsync", os.fstat(descriptor).st_ino, path.read_bytes()))
        fsync(descriptor)

    def noted_replace(draft, target):
        seen.append(("replace", draft.stat().st_ino, path.read_bytes()))
        return replace(draft, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    with written(path) as draft:
        draft.write_bytes(b"new")
    assert path.read_bytes() == b"new"
    node = path.stat().st_ino
    assert seen == [("fsync", node, b"old"), ("replace", node, b"old")]
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
