"""What is not known of a server that is reached by its URL alone, by its own report."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import aiohttp

from .load import Client, Timeout
from .s0 import captured
from .signals import INFO_PAGES
from .spec import Spec

Json = Any
ANSWER_S = 10.0


class Unanswered(Exception):
    """The server cannot be asked; the words say what to do about it."""


async def complete(spec: Spec, client: Client) -> Spec:
    """The specification with what the server says of itself; unchanged where it was not to be asked.

    Raises Unanswered where nothing answers there, or wants a key. A server without a page of its state leaves
    what the playbook said: S0 then finds that there is no server info.
    """
    if not spec.ask_server:
        return spec
    for page in INFO_PAGES:
        info = await ask_page(spec, client, page)
        if isinstance(info, dict) and info.get("version"):
            return fill(spec, info)
    return replace(spec, gate="native") if spec.gate == "auto" else spec


async def ask_page(spec: Spec, client: Client, page: str) -> Json:
    timeout = aiohttp.ClientTimeout(total=ANSWER_S)
    try:
        async with client.session.get(spec.url + page, timeout=timeout) as response:
            if response.status in (401, 403):
                given = "refuses the key that was given" if client.has_key else "wants an API key"
                raise Unanswered(f"{spec.url} {given}: --api-key-env NAME or --api-key-file FILE")
            return json.loads(await response.text()) if response.status == 200 else None
    except ValueError:
        return None
    except (aiohttp.ClientError, OSError, Timeout) as error:
        raise Unanswered(f"nothing answers at {spec.url}: {error or type(error).__name__}") from error


def fill(spec: Spec, info: dict[str, Json]) -> Spec:
    states = info.get("internal_states")
    internal = states[0] if isinstance(states, list) and states and isinstance(states[0], dict) else {}
    gate = spec.gate
    if gate == "auto":
        gate = "batch-gate" if isinstance(internal.get("speculative_gate"), dict) else "native"
    steps, topk = info.get("speculative_num_steps"), info.get("speculative_eagle_topk")
    sizes = captured(info)
    return replace(
        spec,
        release=str(info["version"]),
        gate=gate,
        # A native gate that is closed reports 0 here.
        num_steps=steps if isinstance(steps, int) and steps > 0 else spec.num_steps,
        topk=topk if isinstance(topk, int) and topk > 0 else spec.topk,
        graphs=bool(sizes) if spec.graphs is None else spec.graphs,
    )
