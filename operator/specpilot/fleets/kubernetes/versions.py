"""Which version of the engine a workload runs: the engine's own word, else the image's tag."""

import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import httpx

from specpilot.domain.ports import FleetError
from specpilot.domain.targets import Replica

Ask = Callable[[str], str]
"""Asks the engine at a base URL for its version.

Raises:
    FleetError: It did not answer.
"""

_TAG = re.compile(r"v?(\d+\.\d+(?:\.\d+)?(?:(?:\.|-)?(?:rc|post|dev|a|b)\d+)*)(?:[-+_.].*)?")
_OFFICIAL = re.compile(r"(^|/)vllm(-(openai|cpu|rocm|tpu|xpu)[^/]*)?$")


def version_of_image(image: str) -> str:
    """Read the version from the tag of an image published by vLLM, "" when it does not say.

    A house's own image has a tag of its own (`acme/vllm-chat:2.1.0`), which says nothing.
    """
    name, _, tag = image.partition("@")[0].rpartition(":")
    if not name or "/" in tag or not _OFFICIAL.search(name):
        return ""
    match = _TAG.fullmatch(tag)
    return match.group(1) if match else ""


def ask_engine(endpoint: str, *, timeout_s: float = 2.0) -> str:
    """Ask `GET /version`, which every vLLM answers with `{"version": "0.32.0"}`.

    Raises:
        FleetError: It did not answer, or not with that.
    """
    try:
        answer = httpx.get(f"{endpoint}/version", timeout=timeout_s, trust_env=False)
        answer.raise_for_status()
        return str(answer.json()["version"])
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        raise FleetError(f"{endpoint}/version: {error}") from error


def get_text(address: str, *, timeout_s: float = 2.0) -> str:
    """Get the text at an address.

    Raises:
        FleetError: It was not answered, or not with success.
    """
    try:
        return httpx.get(address, timeout=timeout_s, trust_env=False).raise_for_status().text
    except httpx.HTTPError as error:
        raise FleetError(f"{address}: {error}") from error


@dataclass(frozen=True, slots=True)
class _Failure:
    until: float


class Versions:
    """Remembers what each image's engine answered, so that each is asked once.

    Args:
        ask: See `Ask`; None goes by the image's tag alone.
        clock: Monotonic seconds.
        again_s: How long an engine that did not answer is left alone.
    """

    def __init__(
        self, ask: Ask | None, *, clock: Callable[[], float], again_s: float = 60.0
    ) -> None:
        self._ask = ask
        self._clock = clock
        self._again_s = again_s
        self._lock = threading.Lock()
        self._known: dict[str, str | _Failure] = {}

    def of(self, replicas: Iterable[Replica], *, image: str) -> str:
        """Version of the engine in an image, "" when it cannot be told.

        Args:
            replicas: Replicas that run the image.
            image: Its full name.
        """
        by_tag = version_of_image(image)
        if by_tag or self._ask is None:
            return by_tag
        for replica in replicas:
            if replica.ready and not replica.terminating and replica.endpoint:
                return self._asked(replica)
        return ""

    def _asked(self, replica: Replica) -> str:
        assert self._ask is not None
        with self._lock:
            known = self._known.get(replica.instance)
        if isinstance(known, str):
            return known
        if known is not None and self._clock() < known.until:
            return ""
        try:
            answer: str | _Failure = self._ask(replica.endpoint)
        except FleetError:
            answer = _Failure(self._clock() + self._again_s)
        with self._lock:
            if len(self._known) > 10_000:  # noqa: PLR2004 - far more pods than are ever alive
                self._known.clear()
            self._known[replica.instance] = answer
        return answer if isinstance(answer, str) else ""
