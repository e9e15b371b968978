"""One key in the YAML of Ray Serve; everything else stays to the letter."""

from dataclasses import dataclass

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from specpilot.fleets.kubernetes.workloads import serveconfig

CONFIG = {"method": "ngram", "num_speculative_tokens": 4}
HEAD = """\
# by hand
proxy_location: EveryNode
applications:
  - name: llm   # the one
    args:
      llm_configs:
        - model_loading_config: {model_id: chat}
"""
JSON = '{"method": "ngram", "num_speculative_tokens": 4}'


SHARED = """\
x: &k {speculative_config: {k: 2}}
applications: [{args: {llm_configs: [{engine_kwargs: *k}]}}]
"""


@dataclass(frozen=True)
class Case:
    reason: str
    before: str
    on: str
    off: str


CASES = [
    Case(
        "no key yet, block style",
        "          engine_kwargs:\n            max_model_len: 4096  # fits\n",
        f"          engine_kwargs:\n            speculative_config: {JSON}\n"
        "            max_model_len: 4096  # fits\n",
        "          engine_kwargs:\n            max_model_len: 4096  # fits\n",
    ),
    Case(
        "no arguments at all",
        "",
        f"        - engine_kwargs: {{speculative_config: {JSON}}}\n"
        "          model_loading_config: {model_id: chat}\n",
        "",
    ),
    Case(
        "empty arguments",
        "          engine_kwargs: {}\n",
        f"          engine_kwargs: {{speculative_config: {JSON}}}\n",
        "          engine_kwargs: {}\n",
    ),
    Case(
        "arguments of no value",
        "          engine_kwargs:\n          accelerator_type: L4\n",
        f"          engine_kwargs: {{speculative_config: {JSON}}}\n"
        "          accelerator_type: L4\n",
        "          engine_kwargs:\n          accelerator_type: L4\n",
    ),
    Case(
        "a value of several lines in the middle",
        "          engine_kwargs:\n            a: 1\n            speculative_config:\n"
        "              method: eagle  # old\n              k: 2\n            b: 2\n",
        f"          engine_kwargs:\n            a: 1\n            speculative_config: {JSON}\n"
        "            b: 2\n",
        "          engine_kwargs:\n            a: 1\n            b: 2\n",
    ),
    Case(
        "at the end, with a comment after it",
        "          engine_kwargs:\n            a: 1\n            speculative_config: {k: 2}\n"
        "          # the end\n",
        f"          engine_kwargs:\n            a: 1\n            speculative_config: {JSON}\n"
        "          # the end\n",
        "          engine_kwargs:\n            a: 1\n          # the end\n",
    ),
    Case(
        "flow style, in the middle",
        "          engine_kwargs: {a: 1, speculative_config: {k: 2}, b: 2}\n",
        f"          engine_kwargs: {{a: 1, speculative_config: {JSON}, b: 2}}\n",
        "          engine_kwargs: {a: 1, b: 2}\n",
    ),
    Case(
        "flow style, last",
        "          engine_kwargs: {a: 1, speculative_config: {k: 2}}\n",
        f"          engine_kwargs: {{a: 1, speculative_config: {JSON}}}\n",
        "          engine_kwargs: {a: 1}\n",
    ),
    Case(
        "the only argument",
        "          engine_kwargs:\n            speculative_config: {k: 2}\n",
        f"          engine_kwargs:\n            speculative_config: {JSON}\n",
        "          engine_kwargs: {}\n",
    ),
]


def whole(part: str) -> str:
    if part.startswith("        - "):
        return HEAD.replace("        - model_loading_config: {model_id: chat}\n", part)
    return HEAD + part


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.reason)
def test_on(case: Case) -> None:
    assert serveconfig.write(whole(case.before), CONFIG) == whole(case.on)
    assert serveconfig.find(whole(case.on)).config == CONFIG


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.reason)
def test_off(case: Case) -> None:
    assert serveconfig.write(whole(case.before), None) == whole(case.off)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: [", "not readable"),
        ("", "has 0 entries"),
        ("applications: []", "has 0 entries"),
        ("applications: [{args: {llm_configs: [a.yaml]}}]", "has 0 entries"),
        ("applications: [{args: {llm_configs: [{a: 1}, {b: 1}]}}]", "has 2 entries"),
        (
            SHARED,
            "cannot be changed in place",
        ),
    ],
)
def test_what_cannot_be_written_safely_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        serveconfig.write(text, CONFIG)


scalars = st.one_of(st.integers(), st.booleans(), st.text(st.characters(codec="ascii"), max_size=8))
keys = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)


@given(
    kwargs=st.none() | st.dictionaries(keys, scalars, max_size=3),
    present=st.none() | st.dictionaries(keys, scalars, min_size=1, max_size=2),
    wanted=st.none() | st.just(CONFIG),
    flow=st.booleans(),
)
def test_any_configuration_reads_as_before_but_for_the_one_key(
    kwargs: dict[str, object] | None,
    present: dict[str, object] | None,
    wanted: dict[str, object] | None,
    flow: bool,
) -> None:
    arguments = dict(kwargs or {})
    if present is not None:
        arguments["speculative_config"] = present
    entry = {"id": "m", **({} if kwargs is None else {"engine_kwargs": arguments}), "z": 1}
    document = {"applications": [{"name": "llm", "args": {"llm_configs": [entry]}}]}
    text = yaml.safe_dump(document, default_flow_style=True if flow else None, sort_keys=False)
    written = yaml.safe_load(serveconfig.write(text, wanted))
    [found] = written["applications"][0]["args"]["llm_configs"]
    rest = found.pop("engine_kwargs", None) or {}
    assert rest.pop("speculative_config", None) == wanted
    assert rest == {k: v for k, v in arguments.items() if k != "speculative_config"} or (
        kwargs is None and rest == {}
    )
    assert found == {"id": "m", "z": 1}
