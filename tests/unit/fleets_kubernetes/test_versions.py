"""Which engine version an image is, and asking when it does not say."""

import pytest

from specpilot.domain.ports import FleetError
from specpilot.domain.settings import Declared
from specpilot.domain.targets import Replica
from specpilot.fleets.kubernetes.versions import Versions, ask_engine, version_of_image
from tests.unit.fleets_kubernetes.fakes import serve


@pytest.mark.parametrize(
    ("image", "want", "reason"),
    [
        ("vllm/vllm-openai:v0.32.0", "0.32.0", "the usual"),
        ("registry.example:5000/mirror/vllm-openai:0.10.1", "0.10.1", "a mirror with a port"),
        ("vllm/vllm-openai:v0.8.5.post1", "0.8.5.post1", "post release"),
        ("vllm/vllm-openai:v0.11.0-cu129", "0.11.0", "a build of it"),
        ("vllm/vllm-openai:v0.11.0@sha256:abc", "0.11.0", "pinned by digest as well"),
        ("vllm/vllm-openai@sha256:abc", "", "digest alone"),
        ("vllm/vllm-openai", "", "no tag"),
        ("vllm/vllm-openai:latest", "", "latest says nothing"),
        ("vllm/vllm-openai:nightly-3f2a", "", "nor does nightly"),
        ("acme/vllm-chat:2.1.0", "", "a house's own image has its own tags"),
        ("acme/llm:0.32.0", "", "so has this"),
        ("localhost:5000/vllm", "", "a port is no tag"),
    ],
)
def test_version_of_image(image: str, want: str, reason: str) -> None:
    assert version_of_image(image) == want, reason


def replica(instance: str = "u1", *, ready: bool = True) -> Replica:
    return Replica(
        id="chat-1", instance=instance, declared=Declared(), ready=ready, endpoint="http://h:1"
    )


def test_an_engine_is_asked_once() -> None:
    asked: list[str] = []

    def ask(endpoint: str) -> str:
        asked.append(endpoint)
        return "0.33.0"

    versions = Versions(ask, clock=lambda: 0.0)
    assert versions.of([replica()], image="acme/llm:1") == "0.33.0"
    assert versions.of([replica()], image="acme/llm:1") == "0.33.0"
    assert asked == ["http://h:1"]
    assert versions.of([replica(ready=False)], image="acme/llm:1") == ""
    assert versions.of([replica("u2")], image="vllm/vllm-openai:v0.32.0") == "0.32.0"
    assert len(asked) == 1, "a published image says it itself"


def test_an_engine_that_does_not_answer_is_left_alone_for_a_while() -> None:
    now, asked = [0.0], []

    def ask(endpoint: str) -> str:
        asked.append(endpoint)
        raise FleetError("silence")

    versions = Versions(ask, clock=lambda: now[0], again_s=60)
    for at in (0.0, 1.0, 59.0, 61.0):
        now[0] = at
        assert versions.of([replica()], image="acme/llm:1") == ""
    assert len(asked) == 2


def test_ask_engine() -> None:
    with serve(lambda _, reply: reply.json({"version": "0.32.0"})) as server:
        assert ask_engine(server.url) == "0.32.0"
        assert server.requests[0].path == "/version"


@pytest.mark.parametrize("body", [b"{}", b"[]", b"nonsense"])
def test_ask_something_else(body: bytes) -> None:
    with serve(lambda _, reply: reply.json(body)) as server, pytest.raises(FleetError):
        ask_engine(server.url)
