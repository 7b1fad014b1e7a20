"""Links that fail on their way: a deploy over a real OpenSSH sshd, through a proxy that strikes it.

The controller is the product's own, from the connection to the outcome; only its clocks are wound for less.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from specops.connect import link, watchdog
from specops.connect.payload import agent_zip
from specops.connect.ssh import SshConnector
from specops.connect.ssh_settings import resolve_settings
from specops.engine.deploy import outcome_of, run_plan
from specops.engine.outcome import Deployed, Outcome, RolledBack
from specops.engine.plan import Outage, Plan
from specops.errors import HostUnreachable, LinkLost
from specops.remote import history, journal
from tests.conformance.sshd import Sshd

from .box import sha, step
from .cuts import Cut, Row, broken_row, noting
from .judge import CONTROL, Before
from .points import When, note_bystanders
from .proxy import Blow, Proxy
from .served import SECRETS, ServedBox, free_port, until

Json = Any
AT_ONCE = 4
BLOB_BYTES = 1_000_000
"""Beside the files: more than the buffers on the way hold, less than a channel's window."""
TAIL_BYTES = 16384
"""Handed over by the controller, and not on the host yet."""
CLOCK_S = 8.0
BLOWS = {
    "link delayed": Blow("delay"),
    "link dropped": Blow("drop"),
    "link black-holed": Blow("black hole"),
    "link truncated": Blow("truncate"),
    "link dropped for good": Blow("drop", for_good=True),
    "link black-holed for good": Blow("black hole", for_good=True),
    "link truncated for good": Blow("truncate", for_good=True),
    "link late": Blow("late"),
}
AGENT, REQUEST = "upload of the agent", "upload of the request"
FOLLOWED, ENDED = "starting await", "closed"
PLACES: tuple[tuple[str, When], ...] = (
    (AGENT, "during"),
    (REQUEST, "during"),
    (REQUEST, "at its end"),
    ("opened", "after"),
    (FOLLOWED, "after"),
    (ENDED, "after"),
)


def every() -> list[Cut]:
    return [
        Cut(plan, place, when, by)
        for plan in ("deploy", "deploy that fails")
        for place, when in PLACES
        for by in BLOWS
        # Until it is followed, a deploy that will fail is like any other.
        if plan == "deploy" or place in (FOLLOWED, ENDED)
        # Nothing that a controller sent is on its way any more once the deploy is followed.
        if by != "link late" or place in (REQUEST, "opened")
    ]


def some() -> list[Cut]:
    """Each place and each blow, and a request that arrives after it was sent again."""
    blows = [by for by in BLOWS if by != "link late"]
    pairs = [(*PLACES[number % len(PLACES)], by) for number, by in enumerate(blows)]
    return [Cut("deploy", *pair) for pair in (*pairs, (REQUEST, "at its end", "link late"))]


def try_all(cuts: Iterable[Cut], folder: Path) -> Iterator[Row]:
    """Some at a time: most of each is waiting for a clock."""
    todo = list(cuts)
    with short_clocks():
        for first in range(0, len(todo), AT_ONCE):
            note_bystanders()
            with contextlib.ExitStack() as stack:
                trials = [
                    stack.enter_context(contextlib.closing(LinkTrial(cut, folder / str(first + n))))
                    for n, cut in enumerate(todo[first : first + AT_ONCE])
                ]
                broken: dict[LinkTrial, str] = {}
                for trial in trials:
                    with noting(trial, broken):
                        trial.begin()
                for trial in trials:
                    row = None
                    with noting(trial, broken):
                        row = trial.end() if trial not in broken else None
                    yield row or broken_row(trial.cut, broken[trial])


@contextlib.contextmanager
def short_clocks() -> Iterator[None]:
    modules: Any = {link: ("BANNER_S", "AUTH_S", "CHANNEL_S"), watchdog: ("SILENT_AT_MOST_S", "ASK_EVERY_S")}
    saved = [(module, name, getattr(module, name)) for module, names in modules.items() for name in names]
    try:
        for module, name, _ in saved:
            setattr(module, name, 0.5 if name == "ASK_EVERY_S" else CLOCK_S)
        yield
    finally:
        for module, name, value in saved:
            setattr(module, name, value)


@dataclass(frozen=True, kw_only=True, slots=True)
class Written(Plan):
    """A plan of the fault suite, as it goes over the wire."""

    wire: dict[str, Json]

    def as_wire(self) -> dict[str, Json]:
        return self.wire


class LinkTrial:
    """One cut: a box, an sshd and a proxy of its own."""

    def __init__(self, cut: Cut, folder: Path) -> None:
        self.cut, self.blow = cut, BLOWS[cut.by]
        self.box = ServedBox(folder)
        self.sshd = Sshd(folder / "sshd", free_port(), options=(f"SetEnv BOX={folder}",))
        self.proxy = Proxy(self.sshd.port)
        self.once = folder / "once"
        self.plan = self._plan()
        self.before = Before(cut.plan, self.box)
        self.told: Outcome | Exception | None = None
        self._controller = threading.Thread(target=self._run, daemon=True)

    def _plan(self) -> Written:
        made = self.box.deploy_plan()
        *steps, smoke = made["steps"]
        wanted = self.box.after["a.py"] if self.cut.plan == "deploy" else self.box.before["a.py"]
        assert wanted is not None
        file = {"path": str(self.box.root / "a.py"), "sha256": sha(wanted)}
        smoke = step(smoke["name"], "smoke", "files.check", {"files": [file]})
        next(s for s in steps if s["name"] == "launch")["do"]["args"]["launch"]["argv"] += [
            "--once",
            str(self.once),
        ]
        if self.cut.point != FOLLOWED:
            self.once.touch()
        rest = os.urandom(BLOB_BYTES)
        files = (*self.box.before.values(), *self.box.after.values())
        contents = [data for data in (*files, b"A = 'mid'\n", rest) if data is not None]
        return Written(
            id=self.box.id,
            kind="deploy",
            host="box",
            instance=self.box.ref,
            facts_digest="0" * 64,
            summary={},
            steps=(),
            blobs={str(sha(data)): data for data in contents},
            outage=Outage(load_s=None, restore_s=None, replaces=None),
            wire={**made, "steps": [*steps, smoke]},
        )

    def connector(self, port: int) -> SshConnector:
        known = self.box.folder / f"known_hosts_{port}"
        known.write_text(self.sshd.known_line(port=port))
        settings = resolve_settings(
            "127.0.0.1",
            port=port,
            user=self.sshd.user,
            identity_file=self.sshd.identity,
            known_hosts=known,
            config_file=Path("/dev/null"),
        )
        return SshConnector(name="box", settings=settings, python=sys.executable)

    # -- the deploy

    def begin(self) -> None:
        agent = len(agent_zip())
        request = sum(len(data) for data in self.plan.blobs_as_wire().values())
        if self.cut.point == AGENT:
            self.proxy.strike_after(agent // 2, self.blow)
        elif self.cut == replace(self.cut, point=REQUEST, when="during"):
            self.proxy.strike_after(agent + request // 2, self.blow)
        elif self.cut.point == REQUEST:
            self.proxy.strike_after(agent + request - TAIL_BYTES, self.blow)
        elif self.cut.point == "opened":
            self.proxy.deaf_after = agent // 2
            threading.Thread(target=self._strike_opened, daemon=True).start()
        self._controller.start()

    def _run(self) -> None:
        connector = self.connector(self.proxy.port)
        try:
            self.told = run_plan(self.plan, connector, self._listen, secrets={"key": SECRETS["request"]})
        except Exception as error:
            self.told = error
        finally:
            connector.close()

    def _strike_opened(self) -> None:
        """The host has the deploy, and the controller has not heard a word of it."""
        until(lambda: journal.replay_deploy(self.box.deploy_dir(self.box.id)).opened)
        self.proxy.strike(self.blow)

    def _listen(self, event: dict[str, Json]) -> None:
        entry = event.get("entry") or {}
        name = " ".join(filter(None, (entry.get("entry"), entry.get("name"))))
        if name == self.cut.point and not self.proxy.fell:
            self.proxy.strike(self.blow)
            self.once.touch()

    def end(self) -> Row:
        self._controller.join(timeout=120)
        fell = self.proxy.fell
        self.proxy.close()
        self.box.await_free()
        with contextlib.suppress(AssertionError):
            # Whoever served a connection goes once it is gone.
            until(lambda: not self._others(), 20.0)
        row = self._judge()
        wrong = row.wrong if fell else (*row.wrong, "the link was never struck")
        return replace(row, wrong=wrong, leftovers=(*row.leftovers, *self.close()))

    def close(self) -> list[str]:
        """End what is left of it, whatever happened; what still holds its port then."""
        self.proxy.close()
        self.sshd.close()
        held = self.box.end()
        shutil.rmtree(self.box.folder, ignore_errors=True)
        return held

    def _others(self) -> list[list[str]]:
        """Processes of the box that are no servers, nor keep a server's log."""
        servers = self.box.servers()
        known = {*servers, self.sshd.pid}
        every = {pid: argv for pid, argv in self.box.processes().items() if pid not in known}
        return [argv for argv in every.values() if not (servers and "child-keeper" in argv)]

    # -- how it ended

    def _judge(self) -> Row:
        deploys = history.read_deploys(self.box.instance)
        how = str(deploys[-1].closed.get("how")) if deploys else None
        ended, what = self.before.ended(server_gone=False)
        wrong = [what] if what else []
        if how not in self._outcomes():
            wrong.append(f"the journal says {how!r}, not {self._outcomes()!r}")
        if ended != ("new" if how == "deployed" else "old"):
            wrong.append(f"{how!r} is not what is there")
        if len(deploys) > 1:
            wrong.append(f"it became {len(deploys)} deploys")
        left = [name for name in self.box.leftovers() if not name.startswith("process ")]
        left += [f"process {argv}" for argv in self._others()]
        # A real agent's note is where all can see it.
        left += map(str, Path("/var/tmp").glob(f"specops-*/{self.box.instance.key}-*"))
        if how != "deployed" and (self.box.deploy_dir(self.box.id) / "vault.json").exists():
            left.append("the vault of a deploy that is not in force")
        wrong += [*self._told_wrong(how), *(self._attach_wrong(how) if how else [])]
        return Row(self.cut, ended, how, tuple(wrong), tuple(left))

    def _outcomes(self) -> set[str | None]:
        control: str | None = CONTROL[self.cut.plan]
        if self.cut.point not in (AGENT, REQUEST) or self.blow.kind == "delay":
            return {control}
        if self.cut.when == "during" or self.blow.for_good:
            return {None}
        # The end of the link may be seen before the last bytes are handed over, or after.
        return {control} if self.blow.kind in ("black hole", "late") else {control, None}

    def _told_wrong(self, how: str | None) -> list[str]:
        """The controller knows what the host knows, or says that it does not."""
        told, words = self.told, f"it was told {self.told!r}"
        if isinstance(told, HostUnreachable):
            right = how is None and self.cut.when != "after" and told.host_state == "nothing was changed"
            return [] if right else [words]
        if isinstance(told, LinkLost):
            # Where nobody can be reached any more, and only there.
            right = self.blow.for_good and self.box.id in told.host_state and "attach" in told.next_command
            return [] if right and told.exit_code == 22 else [words]
        if self.blow.for_good and self.cut.point != ENDED:
            return [words]
        if self.blow.kind == "delay" and self.cut.point != "opened" and self.proxy.connections != 1:
            return [f"{self.proxy.connections} connections for a delay"]
        return [] if _name(told) == how else [words]

    def _attach_wrong(self, how: str | None) -> list[str]:
        """Another controller, that nothing of this has reached, is told the same."""
        connector = self.connector(self.sshd.port)
        try:
            following = {"instance": self.box.ref, "deploy": self.box.id}
            told = outcome_of(connector.call("follow", following), self.box.id)
        finally:
            connector.close()
        return [] if _name(told) == how else [f"another controller was told {told!r}"]


def _name(told: object) -> str | None:
    return {Deployed: "deployed", RolledBack: "rolled back"}.get(type(told))
