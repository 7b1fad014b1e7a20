"""What of a server's report is held against what was asked, and which rewrites are SGLang's own."""

from __future__ import annotations

import functools
import json
import os
import pkgutil
from collections.abc import Mapping
from typing import Any

from .flags import parse_release

Json = Any
NEWEST = "99"


@functools.lru_cache(maxsize=1)
def read_table() -> dict[str, Json]:
    """data/compared.json. A rewrite holds from `since` on for `asked` (any value without it) and beside the
    other arguments of `where`; it gives one of `to`, the asked value `times` a factor, the argument
    `plus_one` and one, or, `downloaded`, a folder for a name."""
    table = json.loads(pkgutil.get_data(__package__ or "", "data/compared.json") or b"{}")
    return table if isinstance(table, dict) else {}


def compared_names(release: str = NEWEST) -> list[str]:
    here = parse_release(release)
    return [entry["name"] for entry in read_table()["compared"] if parse_release(entry["since"]) <= here]


def find_mismatches(expect: Mapping[str, Json], reported: Mapping[str, Json]) -> list[str]:
    """Where the server's report differs from what was asked, in words; SGLang's own rewrites pass."""
    release = str(reported.get("version") or NEWEST)
    wrong = []
    for name, asked in expect.items():
        if asked is None:
            continue
        found = reported.get(name)
        if _agrees(name, asked, found) or is_own_rewrite(name, expect, found, release):
            continue
        runs = f"runs with {found!r}" if name in reported else "not reported"
        wrong.append(f"{name}: asked {asked!r}, {runs}")
    return wrong


def is_own_rewrite(name: str, expect: Mapping[str, Json], found: Json, release: str) -> bool:
    here = parse_release(release)
    for rule in read_table()["rewrites"]:
        if rule["name"] != name or parse_release(rule["since"]) > here:
            continue
        where = rule.get("where") or {}
        if any(not _agrees(other, value, expect.get(other)) for other, value in where.items()):
            continue
        asked = expect[name]
        if "asked" in rule and str(asked).lower() not in [each.lower() for each in rule["asked"]]:
            continue
        if _gives(rule, asked, expect, found):
            return True
    return False


def _gives(rule: Mapping[str, Json], asked: Json, expect: Mapping[str, Json], found: Json) -> bool:
    if "to" in rule:
        return any(found is each if each is None else _agrees("", each, found) for each in rule["to"])
    try:
        if "times" in rule:
            return abs(float(asked) * float(rule["times"]) - float(found)) < 1e-6
        if "plus_one" in rule:
            return int(expect[rule["plus_one"]]) + 1 == int(found)
    except (KeyError, TypeError, ValueError):
        return False
    name = str(asked).rstrip("/").rpartition("/")[2].partition(":")[0]
    return not str(asked).startswith(("/", "~")) and str(found).startswith("/") and name in str(found)


def _agrees(name: str, asked: Json, found: Json) -> bool:
    if found is None:
        return False
    if name.endswith(("_path", "_config")) or name == "model":
        return _same_path(str(asked), str(found))
    if isinstance(asked, bool) or isinstance(found, bool):
        return str(asked).lower() == str(found).lower()
    if isinstance(asked, (list, tuple)):
        return isinstance(found, list) and [str(item) for item in asked] == [str(item) for item in found]
    try:
        return float(asked) == float(found)
    except (TypeError, ValueError):
        pass
    # an enum reports itself as Class.NAME
    left, right = str(asked).lower(), str(found).lower()
    return left == right.rpartition(".")[2] or left == right


def _same_path(asked: str, found: str) -> bool:
    return asked == found or os.path.realpath(os.path.expanduser(asked)) == os.path.realpath(found)
