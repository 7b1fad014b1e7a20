"""Pins a patch: writes into patch.yaml what the bytes of a release are before and after its diffs.

For whoever writes a patch or changes one; a deploy only ever reads pins.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from yaml.nodes import MappingNode, Node, SequenceNode

from specops.config.patch import ABSENT, FILE
from specops.config.source import child, complain, read_source
from specops.steps.diff import DiffError, apply_diff, sha256


def pin(folder: Path, release: str, read: Callable[[str], bytes | None]) -> int:
    """Write `before` and `after` of every file of one release; `read` gives an untouched file of it.

    Everything else of patch.yaml stays as it is written, and so do anchors: what releases share is pinned
    once. Returns how many hashes changed. Raises ConfigError where a diff does not apply.
    """
    file = folder / FILE
    root = read_source(file, what="patch").root
    files = child(root, "releases", release, "files")
    if not isinstance(files, SequenceNode):
        raise complain(root, f"releases.{release}: lists no files")
    edits: dict[tuple[int, int], str] = {}
    for entry in files.value:
        fields = scalars(entry)
        before = read(fields["path"].value)
        for key, data in (("before", before), ("after", after(folder, fields, before))):
            node, text = fields[key], sha256(data) or ABSENT
            if node.value != text:
                edits[node.start_mark.index, node.end_mark.index] = text
    text = file.read_text(encoding="utf-8")
    for (start, end), new in sorted(edits.items(), reverse=True):
        text = text[:start] + new + text[end:]
    file.write_text(text, encoding="utf-8")
    return len(edits)


def scalars(entry: Node) -> dict[str, Node]:
    """The fields of one file of a patch, by name; all four that a pin needs, or ConfigError."""
    found = {key.value: value for key, value in entry.value} if isinstance(entry, MappingNode) else {}
    for name in ("path", "before", "after"):
        if name not in found:
            raise complain(entry, f"a file of a patch needs {name!r}")
    if ("diff" in found) == ("added" in found):
        raise complain(entry, "give either diff (a change) or added (a whole new file)")
    return found


def after(folder: Path, fields: dict[str, Node], before: bytes | None) -> bytes | None:
    if "added" in fields:
        return (folder / str(fields["added"].value)).read_bytes()
    diff = folder / str(fields["diff"].value)
    try:
        return apply_diff(before, diff.read_bytes(), str(fields["path"].value))
    except DiffError as error:
        raise complain(fields["diff"], f"{diff}:{error.line}: {error.message}") from None
