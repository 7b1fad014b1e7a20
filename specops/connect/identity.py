"""Who we are to a host: the keys to offer, in which order, and why none of them did."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from cryptography.exceptions import UnsupportedAlgorithm

from specops.connect.library import paramiko

if TYPE_CHECKING:
    from specops.connect.ssh_settings import SshSettings

AskPassphrase = Callable[[str], str | None]
"""Called with the key's path; None where nobody can be asked."""

MOST_KEYS = 5
"""sshd closes a connection at its sixth failure (MaxAuthTries) with an error that names no cause."""


@dataclass(frozen=True, slots=True)
class Candidate:
    label: str
    load: Callable[[], paramiko.PKey | str]
    """The key, or why it cannot be used."""


class OfferKeys(paramiko.auth_strategy.AuthStrategy):
    """Keys only: nothing here ever types a password into a host."""

    def __init__(self, settings: SshSettings, ask: AskPassphrase | None) -> None:
        super().__init__(ssh_config=paramiko.SSHConfig())
        self._user = settings.user
        self._settings = settings
        self._ask = ask
        self.report: list[str] = []
        """A line for each key: what became of it."""

    def get_sources(self) -> Iterator[paramiko.auth_strategy.AuthSource]:
        """Unused: `authenticate` is replaced whole, to stop at the key that is one too many."""
        return iter(())

    def authenticate(self, transport: paramiko.Transport) -> paramiko.auth_strategy.AuthResult:
        agent = _open_agent()
        try:
            return self._offer_all(transport, list_candidates(self._settings, self._ask, _held_keys(agent)))
        finally:
            if agent is not None:
                # It signs until the login is through; paramiko never closes its socket by itself.
                agent.close()

    def _offer_all(
        self, transport: paramiko.Transport, candidates: Sequence[Candidate]
    ) -> paramiko.auth_strategy.AuthResult:
        offered = 0
        for candidate in candidates:
            key = candidate.load()
            if isinstance(key, str):
                self.report.append(f"{candidate.label}: {key}")
                continue
            if offered == MOST_KEYS:
                self.report.append(f"{candidate.label}: not offered, {MOST_KEYS} others were refused before")
                continue
            offered += 1
            if self._offer(transport, candidate.label, key):
                return paramiko.auth_strategy.AuthResult(self)
            if not transport.is_active():
                break
        raise paramiko.auth_strategy.AuthFailure(paramiko.auth_strategy.AuthResult(self))

    def _offer(self, transport: paramiko.Transport, label: str, key: paramiko.PKey) -> bool:
        try:
            more = transport.auth_publickey(self._user, key)
        except paramiko.AuthenticationException:
            self.report.append(f"{label}: refused ({key.fingerprint})")
            return False
        except paramiko.SSHException as error:
            self.report.append(f"{label}: {error or 'the host closed the connection'}")
            return False
        if more:
            self.report.append(f"{label}: accepted, but the host also wants {', '.join(more)}")
            return False
        return True


def list_candidates(
    settings: SshSettings, ask: AskPassphrase | None, held: dict[bytes, paramiko.PKey]
) -> list[Candidate]:
    """Configured files first (through the ssh-agent where it holds them), then the agent's other keys."""
    candidates = [_from_file(path, held, ask) for path in settings.identity_files]
    if not settings.only_these_identities:
        in_files = {_public_blob(path) for path in settings.identity_files}
        others = [key for blob, key in held.items() if blob not in in_files]
        candidates += [_from_agent(key) for key in others]
    return candidates


def _from_agent(key: paramiko.PKey) -> Candidate:
    return Candidate(f"{getattr(key, 'comment', '') or key.get_name()} (ssh-agent)", lambda: key)


def _from_file(path: Path, held: dict[bytes, paramiko.PKey], ask: AskPassphrase | None) -> Candidate:
    blob = _public_blob(path)
    key = None if blob is None else held.get(blob)
    if key is not None:
        return Candidate(f"{path} (ssh-agent)", lambda: key)
    return Candidate(str(path), lambda: _load(path, ask))


def _load(path: Path, ask: AskPassphrase | None) -> paramiko.PKey | str:
    try:
        return paramiko.PKey.from_path(path)
    except (paramiko.PasswordRequiredException, TypeError):
        # cryptography says TypeError for an encrypted file that is read without a passphrase.
        passphrase = ask(str(path)) if ask is not None else None
    except (OSError, ValueError, paramiko.SSHException, UnsupportedAlgorithm) as error:
        return f"cannot be read: {error}"
    if passphrase is None:
        return f"is encrypted and not in the ssh-agent: ssh-add {path}"
    try:
        # paramiko hands it on to cryptography, which takes bytes; the annotation says str.
        return paramiko.PKey.from_path(path, cast(str, passphrase.encode()))
    except (OSError, ValueError, paramiko.SSHException, TypeError):
        return "does not open with that passphrase"


def _open_agent() -> paramiko.Agent | None:
    try:
        return paramiko.Agent()
    except (paramiko.SSHException, OSError):
        return None


def _held_keys(agent: paramiko.Agent | None) -> dict[bytes, paramiko.PKey]:
    """By public blob. Security keys are left out: paramiko cannot sign with them and breaks the login."""
    keys: Sequence[paramiko.PKey] = agent.get_keys() if agent is not None else ()
    return {key.asbytes(): key for key in keys if not key.get_name().startswith("sk-")}


def _public_blob(path: Path) -> bytes | None:
    try:
        fields = path.with_name(path.name + ".pub").read_text().split()
        return b64decode(fields[1])
    except (OSError, ValueError, IndexError):
        return None
