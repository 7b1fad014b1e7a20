"""The page in a real browser: its values where they belong, nothing asked of the network, no complaint."""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
from pathlib import Path
from typing import Any

import pytest

from specops.sweep.plan import describe_arm
from specops.sweep.report.chart import Chart, Frame, Point, Series, draw, linear_ticks, log_ticks, tick_step
from specops.sweep.report.curves import draw_curves, draw_rate_curves
from specops.sweep.report.page import make_page
from specops.sweep.report.prometheus import as_prometheus, write_prometheus
from specops.sweep.report.tables import as_csv, as_rows
from specops.sweep.runs import Sweep, parse_sweep
from specops.sweep.verdict import decide, unequal_room
from tests.unit.sweep.browser import Tab, browse
from tests.unit.sweep.made import LEVELS, MOST, RATES, make_level, make_rates, make_sweep

MARKERS = """[...document.querySelectorAll('#chart-%s [data-series]')].map(e => {
  const b = e.getBBox();
  return [e.dataset.series, +e.dataset.x, +e.dataset.y, b.x + b.width / 2, b.y + b.height / 2]})"""
TICKS = """[...document.querySelectorAll('#chart-%s text.t-dim')].map(e => [e.textContent,
  e.getAttribute('text-anchor'), +e.getAttribute('x'), +e.getAttribute('y') - 5])"""
DRAWN = {
    "throughput": ("throughput", 1),
    "latency": ("latency.p50", 1),
    "ttft": ("ttft.p50", 1000),
    "itl": ("itl.p50", 1000),
    "verify": ("tokens_per_verify", 1),
}
BY_RATE = {**{f"rate-{chart}": of for chart, of in DRAWN.items()}, "rate-served": ("rate_served", 1)}
"""Chart -> (figure, scale); `ttft.p50` has a dashed curve of `ttft.p99` beside it."""


def test_the_page_shows_what_was_measured(tmp_path: Path) -> None:
    sweep = make_sweep(rates=True)
    page = tmp_path / "run.html"
    page.write_text(make_page(sweep), encoding="utf-8")
    seen: dict[str, Any] = {}

    async def visit(tab: Tab) -> None:
        await tab.resize(1280, 900, dark=False)
        for chart in (*DRAWN, *BY_RATE):
            seen[chart] = await tab.evaluate(MARKERS % chart), await tab.evaluate(TICKS % chart)
        for chart in ("throughput", "rate-ttft"):
            doubts = f"document.querySelectorAll('#chart-{chart} text.t-warn').length"
            seen[f"doubts-{chart}"] = await tab.evaluate(doubts)
        seen["light"] = await tab.evaluate("getComputedStyle(document.body).backgroundColor")
        seen["levels"] = await tab.evaluate(
            "JSON.parse(document.getElementById('levels').textContent).length"
        )
        seen["verdict"] = await tab.evaluate("document.getElementById('verdict').textContent")
        await tab.picture(tmp_path / "desk.png")
        await tab.resize(360, 740, dark=True)
        seen["dark"] = await tab.evaluate("getComputedStyle(document.body).backgroundColor")
        seen["table"] = await tab.evaluate("document.querySelector('.levels').textContent.match(/!/g).length")
        seen["wide"] = await tab.evaluate("document.documentElement.scrollWidth")
        seen["text"] = await tab.evaluate(
            "14 * document.querySelector('svg').getBoundingClientRect().width / 480"
        )
        await tab.picture(tmp_path / "phone.png")

    tab = browse(page.as_uri(), tmp_path, visit)
    assert tab.complaints == []
    assert [url for url in tab.requests if not url.startswith(("file:", "data:"))] == []
    assert seen["levels"] == len(sweep.levels)
    assert seen["verdict"].startswith("T=")
    assert (seen["light"], seen["dark"]) == ("rgb(255, 255, 255)", "rgb(15, 18, 22)")
    assert seen["wide"] <= 360, "nothing sticks out on a phone"
    assert seen["text"] >= 9.5, "axis labels stay readable"
    for arms in (sweep.at, sweep.by_rate):
        for chart, (figure, scale) in (DRAWN if arms == sweep.at else BY_RATE).items():
            wanted = means(sweep, arms, figure, scale)
            if figure.endswith(".p50"):
                tail = means(sweep, arms, figure.replace("p50", "p99"), scale)
                wanted |= {(f"{arm} p99", x): value for (arm, x), value in tail.items()}
            assert_plotted(wanted, *seen[chart])
    assert len(means(sweep, sweep.at, "throughput", 1)) == 2 * len(LEVELS)
    assert (seen["doubts-throughput"], seen["table"]) == (0, 5)
    assert seen["doubts-rate-ttft"] == 5 + 1, "5 of 10 points, and the words for it"


def means(sweep: Sweep, levels: Any, figure: str, scale: float) -> dict[tuple[str, float], float]:
    """By (arm, C or rate)."""
    return {
        (arm, x): scale * statistics.fmean(level.figure(figure) or 0.0 for level in here)
        for arm in sweep.arms
        for x, here in levels(arm).items()
    }


def assert_plotted(wanted: dict[tuple[str, float], float], markers: list[Any], ticks: list[Any]) -> None:
    """Each marker is where the axes' own labels put its value."""
    y_axis = sorted((float(text), y) for text, anchor, x, y in ticks if anchor == "end")
    (low, low_y), (high, high_y) = y_axis[0], y_axis[-1]
    logarithmic = any(name.endswith("p99") for name, _ in wanted)
    scale = math.log if logarithmic else float
    x_axis = {float(text): x for text, anchor, x, y in ticks if anchor == "middle" and text[0].isdigit()}
    drawn = {(series, x): (value, place, y) for series, x, value, place, y in markers}
    assert set(drawn) == set(wanted)
    for (series, x), mean in wanted.items():
        value, place, y = drawn[series, x]
        assert value == pytest.approx(mean, rel=1e-4)
        share = (scale(mean) - scale(low)) / (scale(high) - scale(low))
        assert (y - low_y) / (high_y - low_y) == pytest.approx(share, abs=1 / 150)
        assert place == pytest.approx(x_axis.get(x, place), abs=1)
    places = [x for series, _, _, x, _ in markers if series == "no-spec"]
    assert places == sorted(places)


def test_words_of_others_cannot_become_markup() -> None:
    level = make_level("<b>arm", 1, 1, 10.0, taints=["</script><script>alert(1)"])
    sweep = parse_sweep({"levels": [level], "about": {"host": "<img src=x>"}}, "x")
    page = make_page(sweep)
    assert "<b>arm" not in page
    assert "<img" not in page
    assert page.count("<script") == 1


def test_a_doubt_about_a_rate_names_the_rate() -> None:
    level = make_level("as it is", 16, 1, 10.0, rate=0.5, taints=["client_limited"])
    page = make_page(parse_sweep({"levels": [level], "about": {"deploy": None}}, "x"))
    assert "Measured by rate of requests only" in page
    assert 'id="chart-throughput"' not in page, "nothing was measured over concurrency"
    assert "as it is, 0.5 requests/s, repeat 1: client_limited" in page
    assert "None" not in page.partition("What was measured")[2].partition("<script")[0]


def test_a_sweep_of_one_level_without_a_gate_still_makes_a_page() -> None:
    level = make_level("as it is", 4, 1, 10.0, gate=None, tokens_per_verify=None)
    page = make_page(parse_sweep({"levels": [level]}, "x"))
    assert "do not show a crossover" in page
    assert "not measured" in page


def test_servers_that_admit_different_numbers_are_a_doubt_and_an_arm_names_its_own_arguments() -> None:
    about = {"server": {"tp_size": 8}, "max_running": 48}
    other = {"server": {"tp_size": 8, "speculative_algorithm": "EAGLE3"}, "deploy": "d2", "max_running": 250}
    arms = [
        describe_arm({"name": "no-spec"}, about, about, "launch"),
        describe_arm({"name": "always-on"}, other, about, "launch"),
    ]
    assert "server" not in arms[0]
    assert arms[1]["server"] == {"speculative_algorithm": "EAGLE3"}
    level = make_level("always-on", 4, 1, 10.0)
    page = make_page(parse_sweep({"levels": [level], "about": {**about, "arms": arms}}, "x"))
    assert "most requests at once differ: no-spec 48, always-on 250" in page
    assert "speculative_algorithm: EAGLE3" in page
    assert unequal_room(make_sweep()) is None


def test_rows_csv_and_prometheus_hold_the_same_figures(tmp_path: Path) -> None:
    sweep = make_sweep(noise=0.0, rates=True)
    rows = list(csv.DictReader(io.StringIO(as_csv(sweep))))
    assert len(rows) == len(sweep.levels)
    assert float(rows[0]["throughput"]) == pytest.approx(3000 / 31, rel=1e-4)
    assert as_rows(sweep)[0][:3] == ["no-spec", "1", "96.8"]
    by_rate = next(row for row in rows if row["rate"] == "4.0" and row["arm"] == "no-spec")
    assert (by_rate["rate_sent"], by_rate["rate_served"], by_rate["throughput"]) == ("4.08", "3", "384")
    assert [row[:4] for row in as_rows(sweep) if "/s" in row[1]][2] == [
        "no-spec", "4/s (3 served)", "384.0", "384.0 to 384.0",
    ], "repeats in one row"  # fmt: skip
    text = as_prometheus(sweep)
    of_rate = '{host="box",arm="no-spec",rate="4"} '
    assert f"specops_sweep_throughput_tokens_per_second{of_rate}384\n" in text
    assert f"specops_sweep_requests_served_per_second{of_rate}3\n" in text
    assert f"specops_sweep_tainted{of_rate}1\n" in text
    assert 'concurrency="256"' not in text, "what was let in is no level"
    line = 'specops_sweep_throughput_tokens_per_second{host="box",arm="no-spec",concurrency="1"} 96.77'
    assert line in text
    write_prometheus(sweep, tmp_path / "specops.prom")
    assert (tmp_path / "specops.prom").read_text() == text
    assert [path.name for path in tmp_path.iterdir()] == ["specops.prom"]


def test_a_picture_is_drawn_from_the_same_shapes(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    from specops.sweep.report.png import write_png

    sweep = make_sweep(rates=True)
    charts = [*draw_curves(sweep, decide(sweep)), *draw_rate_curves(sweep)]
    write_png(charts, "a sweep", tmp_path / "run.png")
    with image.open(tmp_path / "run.png") as picture:
        assert picture.size == (1920, 2 * (340 * 6 + 40))
        assert len(picture.getcolors(1 << 24)) > 50


def test_ticks_are_round_and_cover_the_values() -> None:
    assert [tick_step(0, top) for top in (1, 7, 48, 3000)] == [0.2, 2, 10, 1000]
    assert linear_ticks(-2, 97) == [-20, 0, 20, 40, 60, 80, 100]
    assert log_ticks(0.03, 0.9) == pytest.approx([0.02, 0.05, 0.1, 0.2, 0.5, 1])
    assert log_ticks(3, 4000) == [2, 10, 100, 1000, 5000]
    assert log_ticks(10, 10) == [10, 20]
    point = Point(x=3, y=7.3, low=6, high=9)
    shapes = draw(Chart(name="a", title="t", unit="u", series=(Series(name="s", points=(point,), colour=0),)))
    assert shapes
    frame = Frame(x_low=1, x_high=10, y_low=0, y_high=10)
    assert frame.y(10) < frame.y(0)


def test_the_commands_report_and_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from specops.cli.main import run

    for name, scale in (("a", 1.0), ("b", 0.7)):
        sweep = make_sweep(scale=scale)
        raw = {
            "levels": [dict(level.raw) for level in sweep.levels],
            "about": {**sweep.about, "release": name},
        }
        (tmp_path / f"{name}.json").write_text(json.dumps(raw))
    a, b = str(tmp_path / "a.json"), str(tmp_path / "b.json")
    assert run(["report", a, "--csv", "--prometheus", str(tmp_path / "x.prom"), "--json"]) == 0
    assert (tmp_path / "a.html").exists()
    assert (tmp_path / "a.csv").exists()
    capsys.readouterr()
    assert run(["compare", a, b, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["comparison"]
    assert ["release", "a", "b"] in told["conditions"]
    assert all(d["better"] is False for d in told["differences"] if d["figure"] == "throughput")
    assert run(["compare", a, b]) == 0
    assert "worse" in capsys.readouterr().err
    assert run(["report", str(tmp_path / "none.json")]) == 2


def test_rates_are_compared_and_decide_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from specops.cli.main import run

    files = {name: tmp_path / f"{name}.json" for name in ("both", "slower", "levels")}
    rates = make_rates()
    slower = [{**level, "throughput": 0.7 * level["throughput"]} for level in rates]
    closed = [dict(level.raw) for level in make_sweep().levels]
    for path, levels in zip(files.values(), (rates, slower, closed), strict=True):
        path.write_text(json.dumps({"levels": levels, "about": {}}))
    both, other, only = map(str, files.values())
    assert run(["compare", both, other, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["comparison"]["differences"]
    assert {(d["arm"], d["C"], d["rate"]) for d in found} == {(arm, None, r) for arm in MOST for r in RATES}
    assert all(d["better"] is False for d in found if d["figure"] == "throughput")
    assert run(["compare", both, other]) == 0
    assert "0.5/s" in capsys.readouterr().err
    assert run(["compare", both, only]) == 2
    assert "0.5, 2, 4, 8, 16 requests/s against no-spec, always-on at C=1, 2, 5" in " ".join(
        capsys.readouterr().err.split()
    )
    assert run(["tune", both]) == 2
    assert "all by rate" in capsys.readouterr().err
    mixed = [make_sweep(), make_sweep(rates=True)]
    assert decide(mixed[0]) == decide(mixed[1])


def test_tune_decides_by_kept_sweeps_and_writes_t_into_a_playbook(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from specops.cli.main import run

    run_file, book = tmp_path / "a.json", tmp_path / "mine.yaml"
    sweep = make_sweep()
    run_file.write_text(json.dumps({"levels": [dict(level.raw) for level in sweep.levels], "about": {}}))
    book.write_text("name: mine  # ours\nmodel: {path: /m}\ngate:\n  threshold: 5   # a guess\n")
    assert run(["tune", str(run_file), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["tuned"]
    assert 10 <= told["threshold"] < 30
    assert told["interval"][0] <= 16 <= told["interval"][1]
    assert [gain["C"] for gain in told["gains"]] == list(LEVELS)
    assert all(gain["over_plain"] > 0 for gain in told["gains"] if gain["C"] <= 10)
    assert told["next"] == f"specops deploy --threshold {told['threshold']}"
    assert run(["tune", str(run_file), "--write", "--playbook", str(book)]) == 0
    written = book.read_text()
    assert f"threshold: {told['threshold']}  # a guess" in written, "the comment stays where it was"
    assert written.startswith("name: mine  # ours\n")

    plain = [dict(level.raw) for level in sweep.levels if level.arm == "no-spec"]
    run_file.write_text(json.dumps({"levels": plain, "about": {}}))
    capsys.readouterr()
    assert run(["tune", str(run_file), "--write", "--playbook", str(book)]) == 2
    assert "takes always-on and a plain one" in capsys.readouterr().err
    assert book.read_text() == written
