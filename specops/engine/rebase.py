"""Rebase: a local patch for an install that no patch is pinned to, from the nearest release's hunks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from specops.config.patch import Origin, Patch
from specops.engine import preflight
from specops.engine.changes import Reader
from specops.engine.patches import fits
from specops.errors import Refused
from specops.facts.host import HostFacts, read_host_facts
from specops.steps.patch_folder import Head, named_by_bytes, write_patch
from specops.steps.rebase import Rebased, nearest
from specops.steps.rebase_view import show_conflict, show_placed

if TYPE_CHECKING:
    from specops.connect.base import Connector
    from specops.engine.place import Place
    from specops.facts.install import Install

UNCHANGED = "nothing was changed, here or on the host"


@dataclass(frozen=True, kw_only=True, slots=True)
class Local:
    """A rebased patch as it was stored, and what it was made from."""

    patch: Patch
    rebased: Rebased
    host: str
    version: str

    def as_json(self) -> dict[str, object]:
        by_path: dict[str, list[str]] = {}
        grown: dict[str, int] = {}
        for placed in self.rebased.placed:
            before = grown.get(placed.path, 0)
            by_path.setdefault(placed.path, []).append(show_placed(placed, before))
            grown[placed.path] = before + len(placed.hunk.new_lines) - len(placed.hunk.old_lines)
        return {
            "id": self.patch.id,
            "host": self.host,
            "version": self.version,
            "release": self.rebased.release,
            "folder": str(self.patch.folder),
            "proof": "unproven",
            "moved": sum(placed.moved != 0 for placed in self.rebased.placed),
            "hunks": len(self.rebased.placed),
            "files": [{"path": path, "diff": "".join(hunks)} for path, hunks in by_path.items()],
            "added": [change.path for change in self.rebased.changes if change.before is None],
        }


def rebase_patch(place: Place, connector: Connector, patch: Patch, folder: Path) -> Local:
    """Read the install, fit the nearest release's hunks, and store the result below `folder`.

    Raises Refused where a hunk has no place or two, with the hunk; where the patch fits as it is; and where
    a deploy in force has changed the files.
    """
    paths = sorted({file.path for release in patch.releases.values() for file in release.files})
    facts = read_host_facts(connector, place.question(files=tuple(paths)))
    preflight.require_free(facts, place.host)
    install = preflight.require_install(facts, place.host, place.python)
    _require_need(patch, install, facts, place.host)
    present = [path for path in paths if install.files.get(path)]
    files = Reader(connector=connector, place=place).contents(present, ())
    found = nearest(patch, install.version, files)
    if found.conflicts:
        raise _refused(patch, found, files, install, place.host)
    changes = [change for change in found.changes if change.before != change.after]
    head = Head(
        id=named_by_bytes(patch.id, found.changes),
        title=f"{patch.id} for SGLang {found.release}, rebased onto the {install.version} of {place.host}"[
            :100
        ],
        gate=patch.gate,
        flags=patch.flags,
        env=patch.env,
        refuses=patch.refuses,
        origin=Origin(patch=patch.id, release=found.release),
    )
    modules = patch.releases[found.release].modules
    local = write_patch(folder, head, install.version, changes, modules)
    return Local(patch=local, rebased=found, host=place.host, version=install.version)


def _require_need(patch: Patch, install: Install, facts: HostFacts, host: str) -> None:
    if fits(patch, install, facts.state.current):
        raise Refused(
            f"{host}: patch {patch.id} was made for just these bytes of SGLang {install.version}",
            host_state=UNCHANGED,
            next_command=f"specops plan --host {host}",
        )
    current = facts.state.current
    ours = [file.path for file in current.installed if file.path.startswith(install.root)] if current else []
    if current and ours:
        raise Refused(
            f"{host}: deploy {current.id} has patched this install ({ours[0]}, {len(ours)} files); a rebase "
            "starts from what was there before",
            host_state=UNCHANGED,
            next_command=f"specops patch drop --host {host}, then: specops patch rebase --host {host}",
        )


def _refused(
    patch: Patch, found: Rebased, files: Mapping[str, bytes], install: Install, host: str
) -> Refused:
    shown = "\n".join(show_conflict(each, files.get(each.path)) for each in found.conflicts)
    hunks = len(found.placed) + len(found.conflicts)
    refused = Refused(
        f"{host}: patch {patch.id} does not fit this SGLang {install.version}: of the {hunks} hunks for its "
        f"nearest release, {found.release}, {len(found.conflicts)} have no place\n{shown}",
        host_state=UNCHANGED,
        next_command="merge those hunks by hand in a copy of the package, then: specops patch new "
        f"ID --like {patch.id} --before TREE --after TREE",
    )
    refused.detail = {"conflicts": [{"path": each.path, "why": each.why} for each in found.conflicts]}
    return refused
