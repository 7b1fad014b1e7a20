"""A link that fails on its way, wherever and however: the host ends old or new, and the controller knows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from . import links
from .cuts import room

pytestmark = pytest.mark.sshd


@pytest.fixture
def folder() -> Iterator[Path]:
    with room() as made:
        yield made


def test_each_place_and_each_blow_is_tried() -> None:
    tried = links.some()
    assert {(cut.point, cut.when) for cut in tried} == set(links.PLACES)
    assert {cut.by for cut in tried} == set(links.BLOWS)


def test_it_ends_old_or_new_and_the_controller_is_told(folder: Path) -> None:
    problems = [row.problem for row in links.try_all(links.some(), folder)]
    assert [line for line in problems if line] == []
