"""What is rendered for the real engine starts there, with the stated effect; what is refused not.

Each key, word and schedule is put to vLLM's own parser and configuration. A method needs a model
that it can load, so only those with one here are asked. Gaps and overlaps of a schedule are found
after the launch, which is not made here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from scripts.engine import install
from specpilot.domain.settings import Setting
from specpilot.engines import Rendered, Runtime, render
from specpilot.engines import capabilities as table
from specpilot.engines.capabilities import Kind
from tests.engine.asking import ask
from tests.engine.conftest import engine
from tests.engine.servers import Subject

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]

VALUES: Mapping[Kind, Any] = {
    Kind.TEXT: "x", Kind.INTEGER: 8, Kind.POSITIVE: 8, Kind.NUMBER: 0.5, Kind.BOOLEAN: False,
    Kind.LIST: [0.5, 0.25], Kind.ANYTHING: {"load_format": "dummy"},
}  # fmt: skip
OTHERS_DECIDE = {
    "quantization", "moe_backend", "attention_backend", "kv_cache_dtype",
    "synthetic_acceptance_rates", "synthetic_acceptance_length", "draft_load_config",
    "dspark_draft_topk",
}  # fmt: skip
"""Keys whose values hardware, models or other keys decide upon."""


def settings() -> Iterator[Setting]:
    def ngram(**fields: Any) -> Setting:
        return Setting(**{"name": "s", "method": "ngram", "num_speculative_tokens": 4, **fields})

    stated = {"method", "model", "num_speculative_tokens", table.LIMIT_KEY, *OTHERS_DECIDE}
    for key, kind in {row.name: row.kind for row in table.KEYS}.items():
        if key not in stated and key != table.SCHEDULE_KEY:
            words = [r.name.partition("=")[2] for r in table.VALUES if r.name.startswith(key + "=")]
            for value in words or [VALUES[kind]]:
                if value != "synthetic":  # needs rates beside it
                    yield ngram(extra={key: value})
    yield ngram()
    yield ngram(disable_above_batch_size=8)
    for schedule in ([[1, 8, 4], [9, 64, 0]], [[1, 8, 9]], [[9, 16, 1], [1, 8, 4]], [[1, 8]]):
        yield ngram(extra={table.SCHEDULE_KEY: schedule})
    yield ngram(extra={"use_heterogeneous_vocab": True})
    yield ngram(extra={"synthetic_acceptance_length": 2.0})
    for key, value in (("rates", [0.9, 0.5, 0.2, 0.1]), ("length", 2.0), ("length", None)):
        yield ngram(extra={"rejection_sample_method": "synthetic",
                           f"synthetic_acceptance_{key}": value})  # fmt: skip
    yield ngram(extra={"prompt_lookup_min": 5, "prompt_lookup_max": 2})
    yield ngram(num_speculative_tokens=None)
    yield ngram(num_speculative_tokens=0)
    for method in ("mtp", "eagle", "draft_model", "dflash", "custom_class", "nonsense"):
        yield Setting(name="s", method=method, num_speculative_tokens=None)
    yield Setting(name="s", method="draft_model", model="DRAFT", num_speculative_tokens=3)
    yield Setting(name="s", method="draft_model", model="DRAFT", num_speculative_tokens=3,
                  disable_above_batch_size=8)  # fmt: skip


def forced(setting: Setting, *, draft: str) -> str:
    """The setting as it stands, whatever the table says of it."""
    config: dict[str, Any] = {"method": setting.method, **setting.extra}
    if setting.model is not None:
        config["model"] = draft
    if setting.num_speculative_tokens is not None:
        config["num_speculative_tokens"] = setting.num_speculative_tokens
    return f"--speculative-config={json.dumps(config)}"


def test_each_setting_starts_or_is_refused_rightly() -> None:
    subject: Subject = engine()
    asked = list(settings())
    rendered = [
        render(setting, version=install.VERSION, runtime=Runtime(data_parallel=1))
        for setting in asked
    ]
    lines = [
        [*subject.arguments, *(
            [forced(setting, draft=subject.draft)] if one.refused
            else [word.replace("DRAFT", subject.draft) for word in one.args]
        )]
        for setting, one in zip(asked, rendered, strict=True)
    ]  # fmt: skip
    wrong = [
        (setting, one.refused or one.effective, answer["output"][-400:])
        for setting, one, answer in zip(asked, rendered, ask(subject, lines), strict=True)
        if not right(one, answer)
    ]
    assert wrong == []


def right(rendered: Rendered, answer: Mapping[str, Any]) -> bool:
    """Whether the engine did what was said of it."""
    done = answer["speculation"]
    if rendered.refused or done is None:
        return bool(rendered.refused) and answer["exit_code"] != 0
    effective = json.loads(rendered.effective)
    keys = ("method", "num_speculative_tokens", table.SCHEDULE_KEY)
    return answer["exit_code"] == 0 and all(done[k] == effective.get(k) for k in keys)
