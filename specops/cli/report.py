"""Commands about sweeps that are kept: report, compare. They need no host."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from specops.cli.options import AsJson
from specops.cli.reach import speaking

Runs = Annotated[list[str], typer.Argument(metavar="RUN…", help="Kept sweeps; several are shown as one.")]
OutPath = Annotated[
    str | None, typer.Option("--out", "-o", metavar="FILE", help="The page; default: beside the first run.")
]
Png = Annotated[bool, typer.Option("--png", help="A picture as well (needs Pillow: specops[png]).")]
Csv = Annotated[bool, typer.Option("--csv", help="A table of every measurement as well.")]
Prometheus = Annotated[
    str | None,
    typer.Option("--prometheus", metavar="FILE", help="For node_exporter's textfile collector (*.prom)."),
]


def register(app: typer.Typer) -> None:
    for command in (report, compare):
        app.command()(command)


def report(
    runs: Runs,
    out: OutPath = None,
    png: Png = False,
    csv: Csv = False,
    prometheus: Prometheus = None,
    as_json: AsJson = False,
) -> None:
    """One self-contained HTML page of a sweep: curves, crossover, doubts, how to repeat it."""
    with speaking(as_json) as output:
        from specops.sweep.runs import merge, read_sweep

        sweep = merge([read_sweep(run) for run in runs])
        page = Path(out).expanduser() if out else Path(runs[0]).expanduser().with_suffix(".html")
        output.show("report", write_report(sweep, page, png=png, csv=csv, prometheus=prometheus))


def write_report(
    sweep: Any, page: Path, *, png: bool = False, csv: bool = False, prometheus: str | None = None
) -> dict[str, Any]:
    """What was written, by kind, and the verdict. `sweep` is a specops.sweep.runs.Sweep."""
    from specops.sweep.report.curves import draw_curves, draw_rate_curves
    from specops.sweep.report.page import make_page, title_of
    from specops.sweep.report.prometheus import write_prometheus
    from specops.sweep.report.tables import as_csv
    from specops.sweep.verdict import decide
    from specops.ui.keep import write_text

    crossover = decide(sweep)
    written: dict[str, Any] = {"verdict": crossover.sentence() if crossover else None}
    written["page"] = write_text(page, make_page(sweep))
    if csv:
        written["csv"] = write_text(page.with_suffix(".csv"), as_csv(sweep))
    if png:
        from specops.sweep.report.png import write_png

        charts = [*draw_curves(sweep, crossover), *draw_rate_curves(sweep)]
        write_png(charts, title_of(sweep), page.with_suffix(".png"))
        written["png"] = str(page.with_suffix(".png"))
    if prometheus:
        write_prometheus(sweep, Path(prometheus).expanduser())
        written["prometheus"] = prometheus
    return written


def compare(
    before: Annotated[str, typer.Argument(metavar="A", help="A kept sweep.")],
    after: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    as_json: AsJson = False,
) -> None:
    """What changed from A to B beyond noise, and what was different about them."""
    with speaking(as_json) as output:
        from specops.errors import UsageError
        from specops.sweep.runs import read_sweep
        from specops.sweep.verdict import compare_sweeps, differing

        one, other = read_sweep(before), read_sweep(after)
        found = compare_sweeps(one, other)
        if not found:
            raise UsageError(
                f"{before} and {after} have no arm and level in common: "
                f"{', '.join(one.arms)} at {one.loads} against {', '.join(other.arms)} at {other.loads}"
            )
        output.show(
            "comparison",
            {
                "before": one.name,
                "after": other.name,
                "differences": [
                    {
                        "arm": d.arm, "C": d.at_once, "rate": d.rate, "figure": d.figure, "unit": d.unit,
                        "before": d.change.before.mean, "after": d.change.after.mean,
                        "share": d.change.share, "interval": [d.change.low, d.change.high],
                        "known": d.change.known, "better": d.better, "words": d.words(),
                    }
                    for d in found
                ],
                "conditions": [list(row) for row in differing(one.about, other.about)],
            },
        )  # fmt: skip
