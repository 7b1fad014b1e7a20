"""The one error tree: every failure that specops itself can name, with the exit code it ends in.

A message says what is wrong and where; `host_state` what is true on the host now; `next_command`
what to type. The command line prints all three and never a traceback.
"""

from __future__ import annotations


class SpecopsError(Exception):
    """Base of every error that is shown without a traceback."""

    exit_code = 1

    def __init__(self, message: str, *, host_state: str = "", next_command: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.host_state = host_state
        self.next_command = next_command
        self.detail: object = None
        """What the agent added for machines, such as the diff of a drifted file; JSON."""
        self.code = ""
        """The agent's own name of it, where the agent said so."""


class UsageError(SpecopsError):
    """The command line asks for something that cannot be."""

    exit_code = 2


class ConfigError(SpecopsError):
    """A file of ours (inventory, playbook, patch, prompts) is wrong; the message starts with file:line."""

    exit_code = 10


class Locked(SpecopsError):
    """Another deploy holds the instance; the message says who, where, since when and why."""

    exit_code = 11


class HostUnreachable(SpecopsError):
    """No connection, or the host's key or ours was refused. Nothing was changed."""

    exit_code = 12


class Refused(SpecopsError):
    """Preflight says no, on the controller or on the host. Nothing was changed."""

    exit_code = 13


class Unfinished(SpecopsError):
    """An earlier deploy on this instance never ended; `specops recover` ends it."""

    exit_code = 14


class CheckFailed(SpecopsError):
    """A smoke check or a verification failed outside a deploy."""

    exit_code = 16


class LinkLost(SpecopsError):
    """The link broke after the request was sent: the host goes on by itself, the outcome is unknown."""

    exit_code = 22


class AgentError(SpecopsError):
    """The agent answered that a request failed in a way the controller has no better name for."""

    def __init__(self, code: str, message: str, *, host_state: str = "", next_command: str = "") -> None:
        super().__init__(message, host_state=host_state, next_command=next_command)
        self.code = code
