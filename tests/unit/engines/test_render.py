"""A setting becomes exactly what a version takes, or is refused with the remedy."""

import json
from typing import Any

import pytest

from specpilot.domain.settings import OFF, Setting
from specpilot.engines import On, Runtime, empty_value_is_off, render

NGRAM = Setting(
    name="ngram", method="ngram", num_speculative_tokens=4, extra={"prompt_lookup_max": 4}
)
EAGLE = Setting(name="eagle3", method="eagle3", model="org/head", num_speculative_tokens=3)


def setting(**fields: Any) -> Setting:
    return Setting(
        **{"name": "s", "method": "ngram", "num_speculative_tokens": 4, **fields},
    )


@pytest.mark.parametrize("version", ["", "0.6.6", "0.8.2", "0.32.0", "9.9.9"])
def test_off_is_no_argument(version: str) -> None:
    rendered = render(OFF, version=version)
    assert (rendered.config, rendered.args, rendered.refused) == ("", (), "")


@pytest.mark.parametrize(
    ("given", "version", "args", "reason"),
    [
        (
            NGRAM,
            "0.32.0",
            (
                (
                    '--speculative-config={"method":"ngram","num_speculative_tokens":4,'
                    '"prompt_lookup_max":4}'
                ),
            ),
            "one word, keys sorted, no spaces",
        ),
        (
            NGRAM,
            "0.6.6",
            (
                "--speculative-model",
                "[ngram]",
                "--num-speculative-tokens",
                "4",
                "--ngram-prompt-lookup-max",
                "4",
            ),
            "before the JSON value, n-gram is a model's name",
        ),
        (
            NGRAM,
            "0.5.5",
            (
                "--use-v2-block-manager",
                "--speculative-model",
                "[ngram]",
                "--num-speculative-tokens",
                "4",
                "--ngram-prompt-lookup-max",
                "4",
            ),
            "speculation needed the second block manager",
        ),
        (
            setting(method="draft_model", model="org/draft"),
            "0.7.3",
            ("--speculative-model", "org/draft", "--num-speculative-tokens", "4"),
            "the method is inferred from the model",
        ),
        (
            setting(
                method="draft_model",
                model="d",
                extra={
                    "disable_mqa_scorer": True,
                    "posterior_alpha": 1,
                    "disable_logprobs": False,
                },
            ),
            "0.7.3",
            (
                "--disable-logprobs-during-spec-decoding",
                "false",
                "--speculative-disable-mqa-scorer",
                "--speculative-model",
                "d",
                "--num-speculative-tokens",
                "4",
                "--typical-acceptance-sampler-posterior-alpha",
                "1.0",
            ),
            "switches, truth values and numbers",
        ),
    ],
)
def test_arguments(given: Setting, version: str, args: tuple[str, ...], reason: str) -> None:
    rendered = render(given, version=version)
    assert rendered.refused == ""
    assert rendered.args == args, reason


@pytest.mark.parametrize(
    ("given", "version", "rendered_as", "instead", "reason"),
    [
        (NGRAM, "0.6.6", {"disable_by_batch_size": 33}, "", "the flag; it stops at >= N"),
        (NGRAM, "0.8.2", {"disable_by_batch_size": 33}, "VLLM_USE_V1=0", "V1 never reads it"),
        (EAGLE, "0.9.2", {"disable_by_batch_size": 33}, "VLLM_USE_V1=0", "V1 never reads it"),
        (
            setting(method="mlp_speculator", model="m"),
            "0.9.2",
            {"disable_by_batch_size": 33},
            "",
            "a method that only V0 has falls back to V0",
        ),
        (NGRAM, "0.10.0", {}, "batch-guard", "ignored there"),
        (NGRAM, "0.16.0", {}, "batch-guard", "ignored there"),
        (NGRAM, "0.17.0", {}, "batch-guard", "it would crash the pod"),
        (NGRAM, "0.23.0", {}, "returns as a schedule in 0.24.0", "nothing between"),
        (
            NGRAM,
            "0.24.0",
            {"num_speculative_tokens_per_batch_size": [[1, 32, 4], [33, 1000000, 0]]},
            "--data-parallel-size 1 only",
            "may hang with data parallelism",
        ),
        (
            EAGLE,
            "0.30.0",
            {"num_speculative_tokens_per_batch_size": [[1, 32, 3], [33, 1000000, 0]]},
            "Model Runner V2 accepts the schedule and drafts at full depth",
            "accepted and ignored",
        ),
        (
            EAGLE,
            "0.33.0",
            {"num_speculative_tokens_per_batch_size": [[1, 32, 3], [33, 1000000, 0]]},
            "--data-parallel-size 1 only, which is assumed",
            "works",
        ),
        (
            setting(method="suffix", num_speculative_tokens=8),
            "0.33.0",
            {},
            "not on the list of those that follow a schedule",
            "not on the allow-list",
        ),
        (
            setting(method="mtp", model="m", num_speculative_tokens=None),
            "0.33.0",
            {},
            "numSpeculativeTokens is unset",
            "a schedule states depths",
        ),
    ],
)
def test_the_batch_limit_is_rendered_for_the_version(
    given: Setting, version: str, rendered_as: dict[str, Any], instead: str, reason: str
) -> None:
    limited = Setting(
        name=given.name,
        method=given.method,
        model=given.model,
        num_speculative_tokens=given.num_speculative_tokens,
        extra=given.extra,
        disable_above_batch_size=32,
    )
    plain, rendered = render(given, version=version), render(limited, version=version)
    assert rendered.refused == ""
    before, after = json.loads(plain.config), json.loads(rendered.config)
    assert {k: v for k, v in after.items() if k not in before} == rendered_as, reason
    assert instead in rendered.instead
    assert bool(instead) == bool(rendered.instead)


@pytest.mark.parametrize(
    ("given", "version", "says", "reason"),
    [
        (setting(method="eagle33", model="m"), "0.32.0", "did you mean eagle3?", "a typo"),
        (setting(method="xyz"), "0.32.0", "it knows custom_class", "nothing near"),
        (setting(method="suffix"), "0.10.0", "exists in 0.12.0 and later", "too early"),
        (setting(method="medusa", model="m"), "0.33.0", "not including, 0.33.0", "gone"),
        (setting(method="draft_model", model="m"), "0.12.0", "use a version outside", "a gap"),
        (setting(method="eagle3"), "0.32.0", "needs a model; add model:", "no head"),
        (setting(model="m"), "0.32.0", "drafts without a model; remove", "a model for n-gram"),
        (setting(num_speculative_tokens=None), "0.32.0", "add numSpeculativeTokens", "no depth"),
        (
            setting(extra={"index_share_for_mtp_iteration": False}),
            "0.32.0",
            "it is for method mtp alone; remove it",
            "false is given, too",
        ),
        (
            setting(extra={"use_heterogeneous_vocab": True}),
            "0.32.0",
            "it is for method draft_model alone",
            "a value that goes with one method",
        ),
        (
            setting(extra={"synthetic_acceptance_length": 2.0}),
            "0.32.0",
            "goes with exactly one of",
            "without the method that it is for",
        ),
        (
            setting(extra={"rejection_sample_method": "synthetic"}),
            "0.32.0",
            "there is none",
            "the method without its lengths",
        ),
        (
            setting(method="mtp", num_speculative_tokens=None),
            "0.32.0",
            "needs a depth or a model",
            "the target stands in for the draft only where a depth is given",
        ),
        (
            setting(extra={"rejection_sample_method": "fly"}),
            "0.32.0",
            "takes standard, synthetic, block",
            "a word of a later version",
        ),
        (
            setting(extra={"prompt_lookup_min": 5, "prompt_lookup_max": 2}),
            "0.32.0",
            "above prompt_lookup_max 2",
            "crossed bounds",
        ),
        (setting(extra={"prompt_lookup_max": "4"}), "0.32.0", "whole number above 0", "a type"),
        (
            setting(extra={"num_speculative_tokens_per_batch_size": [[2, 8, 1]]}),
            "0.32.0",
            "must begin at batch 1",
            "a schedule with a gap",
        ),
        (
            setting(extra={"num_speculative_tokens_per_batch_size": [[1, 8, 1], [8, 9, 1]]}),
            "0.32.0",
            "must not overlap",
            "a schedule that overlaps",
        ),
        (
            setting(extra={"num_speculative_tokens_per_batch_size": [[1, 8]]}),
            "0.32.0",
            "write rows of",
            "a schedule of pairs",
        ),
        (setting(method="draft_model", model="[ngram]"), "0.7.3", "use method: ngram", "a name"),
        (setting(num_speculative_tokens=0), "0.32.0", 'use the setting "off"', "depth 0"),
        (setting(extra={"promt_lookup_max": 4}), "0.32.0", "mean prompt_lookup_max?", "a typo"),
        (setting(extra={"promt_lookup_max": 4}), "", "mean prompt_lookup_max?", "no version"),
        (
            setting(extra={"num_speculative_tokens_per_batch_size": [[1, 2, 3]]}),
            "0.23.0",
            "exists in 0.24.0 and later",
            "an unknown key stops the engine",
        ),
        (
            setting(extra={"disable_logprobs": True}),
            "0.12.0",
            "not including, 0.12.0",
            "a key that is gone",
        ),
        (
            setting(extra={"disable_by_batch_size": 8}),
            "0.9.2",
            "state it as disableAboveBatchSize",
            "an intent has a field",
        ),
        (setting(extra={"model": "x"}), "0.32.0", "state it as model", "a field of its own"),
        (
            setting(
                disable_above_batch_size=8,
                extra={"num_speculative_tokens_per_batch_size": [[1, 8, 4]]},
            ),
            "0.32.0",
            "say the same; remove one",
            "two schedules",
        ),
        (setting(disable_above_batch_size=0), "0.32.0", "use 1 or more", "a limit of 0"),
        (setting(extra={"acceptance": float("nan")}), "9.9", "use plain values", "no JSON"),
        (setting(extra={}), "0.7.3", "add extra: {prompt_lookup_max: 4}", "required there"),
        (
            setting(extra={"prompt_lookup_max": 4, "revision": "main"}),
            "0.7.3",
            "has no flag for revision",
            "no such flag",
        ),
        (
            setting(extra={"prompt_lookup_max": "4"}),
            "0.7.3",
            "takes a whole number",
            "a flag has a type",
        ),
        (
            setting(extra={"prompt_lookup_max": 4, "disable_mqa_scorer": "yes"}),
            "0.7.3",
            "write true or false",
            "a switch is set or not",
        ),
        (NGRAM, "latest", "use an image tag", "no version"),
        (NGRAM, "0.3.0", "use vLLM 0.4.1 or later", "too old"),
    ],
)
def test_refusals_name_the_remedy(given: Setting, version: str, says: str, reason: str) -> None:
    rendered = render(given, version=version)
    assert says in rendered.refused, reason
    assert rendered.refused.startswith(f"setting {given.name}: ")
    assert (rendered.config, rendered.args) == ("", ())


RUNTIMES = [
    ("0.8.2", Runtime(engine=On.V0), {"disable_by_batch_size": 33}, None, "V0 reads it"),
    ("0.8.2", Runtime(engine=On.V1), {}, 32, "V1 does not"),
    ("0.8.2", Runtime(), {}, 32, "V1 is the default"),
    ("0.24.0", Runtime(data_parallel=2), {}, 32, "may hang"),
    ("0.30.0", Runtime(runner=On.MRV1, data_parallel=1), {"num_speculative_tokens_per_batch_size":
     [[1, 32, 4], [33, 1000000, 0]]}, None, "runner V1 follows"),
    ("0.30.0", Runtime(runner=On.MRV2), {}, 32, "runner V2 does not"),
    ("0.30.0", Runtime(), {}, 32, "runner V2 is the default"),
    ("0.33.0", Runtime(data_parallel=8), {}, 32, "dropped with data parallelism"),
    ("0.33.0", Runtime(data_parallel=1, runner=On.MRV2),
     {"num_speculative_tokens_per_batch_size": [[1, 32, 4], [33, 1000000, 0]]}, None, "followed"),
]  # fmt: skip


@pytest.mark.parametrize(("version", "runtime", "keeps", "guard", "reason"), RUNTIMES)
def test_what_takes_effect_depends_on_how_the_engine_is_run(
    version: str, runtime: Runtime, keeps: dict[str, Any], guard: int | None, reason: str
) -> None:
    rendered = render(setting(disable_above_batch_size=32), version=version, runtime=runtime)
    plain = {"method": "ngram", "num_speculative_tokens": 4}
    assert json.loads(rendered.effective) == {**plain, **keeps}, reason
    assert rendered.guard == guard
    assert bool(rendered.instead) == (guard is not None)


@pytest.mark.parametrize(
    ("given", "version", "runtime", "says"),
    [
        (NGRAM, "0.10.0", Runtime(engine=On.V0), "no V0 engine: it exists in 0.4.1 up to"),
        (NGRAM, "0.7.3", Runtime(engine=On.V1), "no V1 engine: it exists in 0.8.0 and later"),
        (NGRAM, "0.23.0", Runtime(runner=On.MRV2), "no Model Runner V2"),
        (EAGLE, "0.9.2", Runtime(engine=On.V0), "V0 engine of vLLM 0.9.2 is not known to have"),
        (
            setting(method="draft_model", model="d"),
            "0.9.2",
            Runtime(engine=On.V1),
            "the V1 engine of vLLM 0.9.2 is not known to have method draft_model",
        ),
    ],
)
def test_an_engine_that_the_version_does_not_have_is_refused(
    given: Setting, version: str, runtime: Runtime, says: str
) -> None:
    assert says in render(given, version=version, runtime=runtime).refused


def test_a_key_that_does_nothing_is_said() -> None:
    rendered = render(
        setting(method="suffix", extra={"num_speculative_tokens_per_batch_size": [[1, 8, 4]]}),
        version="0.33.0",
    )
    assert "does nothing there" in rendered.instead
    assert json.loads(rendered.effective) == {"method": "suffix", "num_speculative_tokens": 4}


def test_a_newer_engine_gets_what_the_table_does_not_know() -> None:
    rendered = render(setting(method="telepathy", extra={"range_m": 3}), version="0.40.0")
    assert rendered.refused == ""
    assert json.loads(rendered.config)["range_m"] == 3
    assert "vLLM 0.40.0 is newer than 0.33.0" in rendered.instead
    assert "extra.range_m is not described and is passed on" in rendered.instead
    assert "method telepathy is not described and is passed on" in rendered.instead


def test_a_newer_engine_does_not_get_what_is_known_to_be_gone() -> None:
    assert (
        "not including, 0.21.0"
        in render(setting(extra={"speculative_token_tree": "[]"}), version="0.40.0").refused
    )


def test_a_version_that_is_not_known_is_said() -> None:
    assert "is not known and is read as 0.33.0" in render(NGRAM, version="").instead


@pytest.mark.parametrize(
    ("version", "works"),
    [("0.10.0", False), ("0.10.1", True), ("0.33.0", True), ("", True), ("latest", False)],
)
def test_where_an_empty_value_is_off(version: str, works: bool) -> None:
    assert empty_value_is_off(version=version) is works
