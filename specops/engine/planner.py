"""The only place that knows the order of a deploy. Making a plan only reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from specops.config.playbook import OnInconclusive, Playbook
from specops.engine import preflight
from specops.engine.changes import Changes, Reader, added_file, in_copy, patch_changes
from specops.engine.check import Check
from specops.engine.patches import WHOLE_PROOF, choose_patches, find_unproven, fits, gate_candidates
from specops.engine.plan import Outage, Plan, new_id
from specops.engine.proven import faster_than_native, require_tried
from specops.engine.room import check_others, check_room, derived_ports
from specops.engine.same import ask_for_secrets, has_arguments, has_variable
from specops.engine.secrets import hide_secrets
from specops.engine.words import describe, supervisor_notes
from specops.errors import Refused
from specops.facts.host import HostFacts, Question, read_host_facts
from specops.steps.activation import COPY, make_copy, prove_copy
from specops.steps.files import back_up, check_files, digest, stage, swap
from specops.steps.gate import Gate, choose_gate, has_native, native_config
from specops.steps.launch import Launch, build_launch, graphs_on
from specops.steps.patch_launch import patch_env
from specops.steps.server import Clocks, LaunchSpec, await_ready, capture, launch, rehearse, stop, warm
from specops.steps.server import smoke as smoke_step
from specops.steps.smoke import build_smoke

if TYPE_CHECKING:
    from specops.config.patch import Patch
    from specops.connect.base import Connector
    from specops.engine.place import Place
    from specops.facts.install import Install
    from specops.facts.state import Current
    from specops.steps.step import Step

WHOLE_BUDGET_S = 600.0
"""For S0 to S7 together, where the playbook gives less."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """What was asked for: the playbook, the patches that can be had, and a sweep's levels if one follows."""

    playbook: Playbook
    available: Mapping[str, Patch]
    levels: tuple[int, ...] = ()
    prompts: tuple[str, ...] | None = None
    accept_unproven: bool = False
    accept_no_restore: bool = False
    drop: bool = False
    """Back to the bytes from before every deploy in force: no patch, and no gate that needs one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Nothing:
    """Everything asked for is already so."""

    facts: HostFacts
    why: str


def make_plan(place: Place, wish: Wish, connector: Connector) -> Plan | Nothing:
    """Read the host and work out the whole deploy. Raises what preflight and the patches refuse."""
    preflight.require_threshold(wish.playbook)
    question = ask(place, wish)
    facts = read_host_facts(connector, question)
    preflight.require_free(facts, place.host)
    install = preflight.require_install(facts, place.host, place.python)
    current = facts.state.current
    gate = _gate(wish, install, current, place.host)
    preflight.require_server(facts, place.host)
    preflight.require_restorable(facts, wish.accept_no_restore, place.host)
    preflight.require_models(facts, place.host)
    checks = (*check_others(facts), *check_room(facts, wish.playbook, place.host))
    patches = _patches(wish, gate)
    if wish.drop:
        preflight.require_patched(install, current, wish.available, place.host)
    reader = Reader(connector=connector, place=place, held=facts.contents)
    changes = patch_changes(patches, install, current, reader, place.host)
    unproven = _unproven(wish, patches, facts, install, place, connector)
    if unproven:
        wish = replace(wish, playbook=prove_in_full(wish.playbook))
    deploy = _Deploy(
        place=place,
        wish=wish,
        facts=facts,
        install=install,
        gate=gate,
        patches=patches,
        unproven=unproven,
        checks=checks,
    )
    return deploy.plan(changes)


def ask(place: Place, wish: Wish) -> Question:
    playbook = wish.playbook
    files = {f.path for patch in wish.available.values() for r in patch.releases.values() for f in r.files}
    models = [playbook.model.path, *([playbook.draft.path] if playbook.draft else [])]
    # Of patches that may be wanted: which release this is, and so which of them, comes with the answer.
    likely = [patch for patch in wish.available.values() if patch.id in playbook.patches or patch.gate]
    before = {f.before for patch in likely for r in patch.releases.values() for f in r.files if f.diff}
    return place.question(
        contents=tuple(sorted(before)),
        files=tuple(sorted(files)),
        paths=(gate_path(place, playbook),),
        models=tuple(models),
        hub=place.hub(playbook),
        ports=derived_ports(playbook.server.args, place.port),
        secrets=ask_for_secrets({**place.env, **playbook.env.set}, playbook.server.args),
    )


def gate_path(place: Place, playbook: Playbook) -> str:
    """Where the native gate's file goes. Named by its content: no deploy ever rewrites another's gate."""
    steps = playbook.draft.num_steps if playbook.draft else 0
    content = digest(native_config(steps, playbook.gate.threshold))
    return f"{place.state}/gates/{place.port}-{content[:12]}.json"


def _gate(wish: Wish, install: Install, current: Current | None, host: str) -> Gate:
    playbook = wish.playbook
    if playbook.draft is None:
        return Gate(kind="none", why="the playbook has no draft: nothing speculates")
    candidates = gate_candidates(wish.available, install, current, playbook.patches)
    kind = playbook.gate.kind
    if wish.drop:
        candidates = []
        if not has_native(install.version, playbook.draft.topk) or kind == "batch-gate":
            return Gate(kind="none", why="the patches are dropped, and this release has no gate of its own")
    fitting = [wish.available[name] for name in candidates]
    fitting = [patch for patch in fitting if not patch.origin and fits(patch, install, current)]
    return choose_gate(
        kind,
        faster=faster_than_native(fitting, install.version, playbook.draft.topk),
        host=host,
        release=install.version,
        topk=playbook.draft.topk,
        num_steps=playbook.draft.num_steps,
        threshold=playbook.gate.threshold,
        gate_patches=candidates,
    )


def _patches(wish: Wish, gate: Gate) -> tuple[Patch, ...]:
    if wish.drop:
        return ()
    patches = choose_patches(wish.available, [*wish.playbook.patches, *([gate.patch] if gate.patch else [])])
    preflight.require_one_gate(patches, gate)
    return patches


def _unproven(
    wish: Wish,
    patches: tuple[Patch, ...],
    facts: HostFacts,
    install: Install,
    place: Place,
    connector: Connector,
) -> tuple[Patch, ...]:
    """Rebased patches that this host has not proven, and gates of which no closed step was ever executed.
    Raises Refused unless they are accepted."""
    rebased = find_unproven(patches, place, connector)
    preflight.require_proven(rebased, wish.accept_unproven, place.host)
    env = {**(facts.server.env if facts.server else {}), **place.env}
    try:
        require_tried(patches, install.version, wish.playbook, env, accepted=False)
    except Refused:
        if not wish.accept_unproven:
            raise
        return (*rebased, *(patch for patch in patches if patch.gate and not patch.origin))
    return rebased


def prove_in_full(playbook: Playbook) -> Playbook:
    """Every check, and without data no trust: what nobody has proven is kept only if all of it passes."""
    whole = OnInconclusive(boundary="roll_back", others="roll_back")
    smoke = replace(playbook.smoke, checks=WHOLE_PROOF, on_inconclusive=whole)
    return replace(playbook, smoke=replace(smoke, budget_s=max(smoke.budget_s, WHOLE_BUDGET_S)))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Deploy:
    place: Place
    wish: Wish
    facts: HostFacts
    install: Install
    gate: Gate
    patches: tuple[Patch, ...]
    unproven: tuple[Patch, ...] = ()
    checks: tuple[Check, ...] = ()

    def plan(self, changes: Changes) -> Plan | Nothing:
        if self.wish.playbook.activation == "copy":
            changes = in_copy(changes, self.install.root)
        preflight.require_activation(changes, self.install, self.facts, self.place.host)
        changes = self._with_gate_file(changes)
        start = build_launch(
            self._on_host(),
            python=expand(self.place.python, self.facts.platform.home),
            port=self.place.port,
            release=self.install.version,
            gate=self.gate,
            gate_path=self._gate_path(),
            levels=self.wish.levels,
            patches=self.patches,
        )
        preflight.require_patches_fit(self.patches, start.argv, self.facts, self.wish.playbook)
        if not changes.files and self._serves(start, changes):
            return Nothing(facts=self.facts, why="the files, the arguments and the server are already so")
        name = new_id()
        spec = self._spec(name, start, changes)
        plan = Plan(
            id=name,
            kind="deploy",
            host=self.place.host,
            instance=self._instance(),
            facts_digest=self.facts.digest,
            summary=self._summary(changes),
            steps=self._steps(changes, spec, start),
            blobs={c.after: c.content for c in changes.all if c.after and c.content is not None},
            outage=foresee_outage(self.facts, start.argv),
            diffs=changes.diffs,
            launch=start.argv,
            env_changes=self._env_changes(spec),
            restores=self._restores(changes),
            checks=self.checks,
            notes=(
                f"gate: {self.gate.kind}: {self.gate.why}",
                *map(_unproven_note, self.unproven),
                *supervisor_notes(self.facts.server),
                *self._copy_notes(changes),
                *start.notes,
            ),
        )
        return hide_secrets(plan)

    def _on_host(self) -> Playbook:
        """The playbook with `~` filled in: argv words are not expanded by any shell."""
        home, book = self.facts.platform.home, self.wish.playbook
        draft = replace(book.draft, path=expand(book.draft.path, home)) if book.draft else None
        return replace(book, model=replace(book.model, path=expand(book.model.path, home)), draft=draft)

    def _gate_path(self) -> str:
        return expand(gate_path(self.place, self.wish.playbook), self.facts.platform.home)

    def _with_gate_file(self, changes: Changes) -> Changes:
        if self.gate.config is None:
            return changes
        path, asked = self._gate_path(), gate_path(self.place, self.wish.playbook)
        found = self.facts.paths.get(path, self.facts.paths.get(asked))
        if found == digest(self.gate.config):
            return changes
        file, diff = added_file(path, found, self.gate.config)
        return replace(changes, files=(*changes.files, file), diffs=(*changes.diffs, diff))

    def _serves(self, start: Launch, changes: Changes) -> bool:
        server, current = self.facts.server, self.facts.state.current
        if server is None or current is None or not server.healthy or server.cookie not in current.cookies:
            return False
        if (current.summary.get("copied") or {}) != {c.path: c.after for c in changes.copied}:
            return False
        same_env = all(has_variable(server, key, value) for key, value in self._env().items())
        return has_arguments(server, start.argv) and same_env

    def _spec(self, name: str, start: Launch, changes: Changes) -> LaunchSpec:
        server, book = self.facts.server, self.wish.playbook
        return LaunchSpec(
            argv=start.argv,
            cwd=server.cwd if server and not server.no_restore else self.facts.platform.home,
            base="old_server" if server else "login",
            set=self._env(),
            unset=book.env.unset,
            path=(start.argv[0].rsplit("/", 1)[0],),
            modules=(COPY,) if changes.copied else (),
            port=self.place.port,
            cookie=name,
            scope=book.server.scope if book.server.scope != "none" else None,
        )

    def _env(self) -> dict[str, str]:
        """Variables of the new server, over what it starts from."""
        book = self.wish.playbook
        return {**patch_env(self.patches, book, self.place.env), **self.place.env, **book.env.set}

    def _instance(self) -> dict[str, object]:
        return {**self.place.reference(), "root": self.install.root}

    def _copy_notes(self, changes: Changes) -> tuple[str, ...]:
        if not changes.copied:
            return ()
        return (
            f"activation: copy: the server starts from a copy of {self.install.root}, which stays as it is",
        )

    def _summary(self, changes: Changes) -> dict[str, object]:
        current = self.facts.state.current
        book = self.wish.playbook
        copied = {"copied": {c.path: c.after for c in changes.copied}} if changes.copied else {}
        return {
            **copied,
            "playbook": book.name,
            "gate": self.gate.kind,
            "threshold": book.gate.threshold if self.gate.kind != "none" else None,
            "patches": [patch.id for patch in self.patches],
            "release": self.install.version,
            "model": book.model.path,
            "replaces": current.id if current else None,
        }

    def _steps(self, changes: Changes, spec: LaunchSpec, start: Launch) -> tuple[Step, ...]:
        server, book, port = self.facts.server, self.wish.playbook, self.place.port
        clocks = Clocks(progress_s=book.ready.progress_s, cap_s=book.ready.cap_s)
        pid, ticks = (server.pid, server.start_ticks) if server else (None, None)
        files, copied = changes.files, changes.copied
        staged = [{"path": c.path, "sha256": c.after} for c in files if c.path.startswith(self.install.root)]
        smoke = build_smoke(
            book,
            port=port,
            gate=self.gate.kind,
            release=self.install.version,
            max_running=start.max_running,
            graphs=graphs_on(book),
            log="{deploy_dir}/server.log",
            prompts=list(self.wish.prompts) if self.wish.prompts else None,
        )
        return (
            *([check_files(changes.all)] if changes.all else []),
            *([back_up(files)] if any(c.before for c in files) else []),
            capture(pid, ticks, port, accept_no_restore=self.wish.accept_no_restore),
            *([stage(changes.all)] if changes.all else []),
            *([make_copy(copied)] if copied else []),
            rehearse(spec, staged, changes.modules, COPY if copied else None),
            *self._warm(),
            stop(
                pid,
                ticks,
                port,
                drain_s=book.stop.drain_s,
                term_s=book.stop.term_s,
                clocks=clocks,
                ranks=self.facts.ranks,
                holders=self.facts.holders,
            ),
            *([swap(files)] if files else []),
            launch(spec),
            await_ready(port, spec.cookie, clocks, start.expect, self.gate.kind),
            *([prove_copy(copied, spec.cookie)] if copied else []),
            smoke_step({**smoke, "python": spec.argv[0], "cookie": spec.cookie}),
        )

    def _warm(self) -> tuple[Step, ...]:
        """Where nothing serves there is no outage to shorten."""
        models = [model.folder or path for path, model in self.facts.models.items() if model.bytes]
        seconds = self.wish.playbook.ready.warm_s
        return (warm(models, seconds),) if self.facts.server and models and seconds else ()

    def _env_changes(self, spec: LaunchSpec) -> dict[str, str | None]:
        server = self.facts.server
        had = server.env if server else {}
        gone = {key: None for key in spec.unset if key in had}
        front = {"PYTHONPATH": f"{COPY} in front"} if spec.modules else {}
        new = {k: v for k, v in spec.set.items() if not (server and has_variable(server, k, v))}
        return {**gone, **front, **new}

    def _restores(self, changes: Changes) -> tuple[str, ...]:
        files = [f"{c.path}: {'removed' if c.before is None else c.before[:12] + '…'}" for c in changes.files]
        server, line = self.facts.server, describe(self.facts.server)
        if server and server.no_restore:
            return (*files, f"no server: {server.no_restore}")
        return (*files, f"server: {line}" if server else "no server: nothing was serving")


def foresee_outage(facts: HostFacts, argv: Sequence[str]) -> Outage:
    """From what loads took on this instance: that of `argv`, and that of the server which a failure
    would start again."""
    server, known = facts.server, facts.state
    return Outage(
        load_s=known.load_s(argv) if argv else None,
        restore_s=known.load_s(server.argv) if server else None,
        replaces=describe(server),
    )


def _unproven_note(patch: Patch) -> str:
    return f"patch {patch.id} is unproven here: it is kept only if S0 to S7 all pass"


def expand(path: str, home: str) -> str:
    return home + path[1:] if path == "~" or path.startswith("~/") else path


def plan_levels(sweep: bool, asked: Sequence[int] | None, playbook: Playbook) -> tuple[int, ...]:
    """The levels that the server must admit: none without a sweep."""
    return tuple(asked or playbook.sweep.levels) if sweep else ()
