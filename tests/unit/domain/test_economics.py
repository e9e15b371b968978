"""From a comparison of arms to the cost of a step, against published figures."""

import math
from dataclasses import dataclass, replace

import pytest

from specpilot.domain.changes import FlagChange, Phase, Slice
from specpilot.domain.economics import Measurement, NotMeasured, decode_steps, measure
from specpilot.domain.engine_run import EngineRun
from specpilot.domain.policy import Canary
from specpilot.domain.readings import UnknownReason
from specpilot.domain.settings import Declared
from specpilot.domain.targets import TargetState
from tests.unit.domain.builders import OLD, REF, at, change, state

OFF = Declared(setting="off", config="", change_id="c0")
ON = Declared(setting="ngram", config='{"method":"ngram"}', change_id="c1")
HERE: TargetState = state(ON, engine=EngineRun(version="0.32.0"))
LEAST = Canary(min_requests=20, min_drafts=1000)


@dataclass(frozen=True, kw_only=True)
class Arms:
    """Two arms of which everything is known: an engine whose steps take what they take.

    `length` is tokens per drafted step, `share` the share of steps that are drafted.
    """

    step_on: float = 0.012
    step_off: float = 0.010
    length: float = 2.0
    share: float = 1.0
    batch_on: float = 8.0
    batch_off: float = 8.0
    steps: float = 2000.0
    output: float = 200.0

    def on(self) -> dict[str, float]:
        per_step = 1 + self.share * (self.length - 1)
        decoded = self.steps * per_step
        return {
            "tpot_mean": self.step_on / per_step,
            "batch_size": self.batch_on,
            "drafts": self.share * self.steps,
            "mean_acceptance_length": self.length,
            "generated_tokens": decoded * self.output / (self.output - 1),
            "generation_length_mean": self.output,
        }

    def off(self) -> dict[str, float]:
        return {"tpot_mean": self.step_off, "batch_size": self.batch_off}

    def probe(self, *noise: float, **fields: object) -> FlagChange:
        """A probe of the setting; each slice's steps take `noise` times as long on the canary."""
        parts = []
        for i, factor in enumerate(noise or (1.0, 1.0, 1.0)):
            on = self.on()
            on["tpot_mean"] *= factor
            parts.append(
                Slice(
                    start=at(60 * i),
                    end=at(60 * (i + 1)),
                    canary=on,
                    control=self.off(),
                    canary_requests=20,
                    control_requests=40,
                    canary_drafts=on["drafts"],
                )
            )
        return change(Phase.ANALYSING, origin=OFF, wanted=ON, **{"slices": tuple(parts), **fields})


def measured(probe: FlagChange, *, target: TargetState = HERE) -> Measurement:
    found = measure(probe, state=target, least=LEAST)
    assert isinstance(found, Measurement), found
    return found


def refused(probe: FlagChange, *, target: TargetState = HERE, least: Canary = LEAST) -> NotMeasured:
    found = measure(probe, state=target, least=least)
    assert isinstance(found, NotMeasured), found
    return found


def test_a_measurement_says_what_it_rests_on() -> None:
    found = measured(Arms().probe())
    assert (found.change_id, found.target, found.setting) == ("c1", str(REF), "ngram")
    assert (found.engine, found.template) == ("0.32.0", "t1")
    assert (found.start, found.at, found.slices) == (at(0), at(180), 3)
    assert (found.requests_on, found.requests_off, found.drafts) == (60, 120, 6000)
    assert found.ratio == found.step_ratio == pytest.approx(1.2)
    assert found.speedup == pytest.approx(2.0 / 1.2)
    assert found.error == pytest.approx(0.0, abs=1e-9)
    assert found.same_window
    evidence = found.evidence()
    assert (evidence.signal, evidence.count, evidence.window_s) == ("cost_ratio", 180, 180)


VERIFY_MS = (5.886, 0.02101, 3.926e-5)
"""A step of Llama 3.1 8B on one H100: fixed, per token in it, per token of context."""


def _verify(batch: int, tokens: int) -> float:
    fixed, token, context = VERIFY_MS
    return fixed + token * tokens + context * 1000 * batch


def _llama(batch: int, k: int, *, length: float) -> Arms:
    """One step with an EAGLE head of `k` tokens and one without, 1,000 tokens of context."""
    overhead = 1.207
    draft = 2.135 * k / 3 + 2.38e-6 * 1000 * batch + 8.4e-4 * batch * (k + 1)
    return Arms(
        step_on=(_verify(batch, batch * (k + 1)) + draft + overhead) / 1000,
        step_off=(_verify(batch, batch) + overhead) / 1000,
        length=length,
        batch_on=batch,
        batch_off=batch,
    )


BREAK_EVEN = {
    1: (1.10, 1.14, 1.21, 1.26, 1.32),
    3: (1.31, 1.40, 1.60, 1.74, 1.88),
    5: (1.51, 1.67, 1.98, 2.21, 2.44),
    7: (1.72, 1.93, 2.37, 2.69, 3.00),
}
"""Acceptance length that must be exceeded, at a batch of 1, 16, 64, 128 and 256: worked out from
the constants of SpecDecode-Bench's simulator (arXiv 2601.11580)."""


@pytest.mark.parametrize(
    ("k", "batch", "length"),
    [
        (k, batch, want)
        for k, row in BREAK_EVEN.items()
        for batch, want in zip((1, 16, 64, 128, 256), row, strict=True)
    ],
)
def test_the_cost_of_an_eagle_head_comes_out_as_published(
    k: int, batch: int, length: float
) -> None:
    for traffic in (1.0 + 0.2 * k, 1.0 + 0.7 * k):
        found = measured(_llama(batch, k, length=traffic).probe())
        assert found.ratio == pytest.approx(length, abs=0.011), "whatever was accepted meanwhile"
        assert found.batch == batch


@dataclass(frozen=True, kw_only=True)
class Published:
    reason: str
    length: float
    speedup: float
    ratio: float


PUBLISHED = [
    Published(
        reason="a draft model that costs five steps (Apertus 70B with 8B, chat): R = AL / speedup",
        length=2.883,
        speedup=0.442,
        ratio=6.52,
    ),
    Published(
        reason="the same with code accepts more and costs as much",
        length=3.362,
        speedup=0.469,
        ratio=7.17,
    ),
    Published(
        reason="n-gram on Llama 8B at a batch of 1: a step costs nothing more (SpecDecode-Bench)",
        length=1.164,
        speedup=1.17,
        ratio=0.995,
    ),
    Published(
        reason="and at a batch of 128 it costs a tenth",
        length=1.164,
        speedup=1.05,
        ratio=1.109,
    ),
]


@pytest.mark.parametrize("case", PUBLISHED, ids=lambda c: c.reason)
def test_published_pairs_of_length_and_speedup(case: Published) -> None:
    """Their acceptance lengths are per step, so that every step counts as drafted."""
    found = measured(
        Arms(step_on=case.length / case.speedup, step_off=1.0, length=case.length).probe()
    )
    assert found.speedup == pytest.approx(case.speedup)
    assert found.ratio == pytest.approx(case.ratio, abs=0.005)


@pytest.mark.parametrize("share", [1.0, 0.6, 0.2, 0.06])
@pytest.mark.parametrize("length", [1.2, 2.0, 4.0])
def test_a_method_that_drafts_in_some_steps_is_judged_on_the_scale_of_those(
    share: float, length: float
) -> None:
    """Break-even: `length < ratio` exactly when tokens come slower than without."""
    for excess in (0.05, 0.25, 0.8, 2.5):
        arms = Arms(step_on=0.010 * (1 + share * excess), share=share, length=length, steps=20_000)
        found = measured(arms.probe())
        assert found.ratio == pytest.approx(1 + excess), "the cost of a draft, however many"
        assert (length < found.ratio) == (found.speedup < 1), "and the verdict is right"
        assert found.acceptance_length == pytest.approx(length)


def test_length_per_drafted_step_alone_would_be_wrong_for_them() -> None:
    """A twentieth of the steps gains two tokens, each step costs a tenth: that loses."""
    found = measured(
        Arms(step_on=0.0115, step_off=0.010, share=0.06, length=3.0, steps=20_000).probe()
    )
    assert found.speedup < 1
    assert found.acceptance_length > found.step_ratio, "the naive test would keep it on"
    assert found.acceptance_length < found.ratio


def test_the_first_token_of_a_request_is_no_decode_step() -> None:
    short = Arms(output=8)
    assert measured(short.probe()).ratio == pytest.approx(1.2)
    values = short.on()
    whole = decode_steps({k: v for k, v in values.items() if k != "generation_length_mean"})
    less = decode_steps(values)
    assert not isinstance(whole, str)
    assert not isinstance(less, str)
    assert less.per_step == pytest.approx(2.0)
    assert whole.per_step < less.per_step, "the published form counts it as one"


def test_tokens_accepted_past_the_end_of_a_request_make_no_step_vanish() -> None:
    found = decode_steps(
        {"generated_tokens": 190.0, "drafts": 100.0, "mean_acceptance_length": 2.0}
    )
    assert not isinstance(found, str)
    assert found.steps == 100


def test_switching_off_measures_as_well_with_the_arms_the_other_way_round() -> None:
    probe = Arms().probe()
    turned = replace(
        probe,
        origin=ON,
        wanted=OFF,
        slices=tuple(
            replace(
                s,
                canary=s.control,
                control=s.canary,
                canary_requests=s.control_requests,
                control_requests=s.canary_requests,
            )
            for s in probe.slices
        ),
    )
    there, back = measured(probe), measured(turned)
    assert (back.ratio, back.setting, back.config) == (there.ratio, "ngram", there.config)
    assert (back.requests_on, back.requests_off) == (there.requests_on, there.requests_off)


def test_the_time_before_stands_in_for_the_control_arm_of_a_lone_replica() -> None:
    arms = Arms()
    found = measured(arms.probe(before=arms.off()))
    assert not found.same_window, "and is worth less"


def test_slices_that_differ_make_it_less_certain_and_then_refuse() -> None:
    calm, noisy = measured(Arms().probe(1, 1.02, 0.98)), measured(Arms().probe(1, 1.15, 0.87))
    assert 0 < calm.error < noisy.error
    assert calm.ratio == pytest.approx(1.2, rel=0.01)
    assert "differ too much" in refused(Arms().probe(1, 3.0, 0.3)).words


def test_unlike_loads_make_it_less_certain_and_then_refuse() -> None:
    same = measured(Arms(batch_on=16, batch_off=16).probe())
    apart = measured(Arms(batch_on=16, batch_off=20).probe())
    assert apart.error > same.error
    assert apart.batch == pytest.approx(math.sqrt(16 * 20))
    assert (
        "further apart than a factor of 1.5"
        in refused(Arms(batch_on=8, batch_off=16).probe()).words
    )
    assert measured(Arms(batch_on=0.1, batch_off=0.9).probe()).batch == 1, "no step sees less"


def _without(signal: str) -> FlagChange:
    probe = Arms().probe()
    return replace(
        probe,
        slices=tuple(
            replace(s, canary={k: v for k, v in s.canary.items() if k != signal})
            for s in probe.slices
        ),
    )


def _with(signal: str, value: float) -> FlagChange:
    probe = Arms().probe()
    return replace(
        probe, slices=tuple(replace(s, canary={**s.canary, signal: value}) for s in probe.slices)
    )


@dataclass(frozen=True, kw_only=True)
class Refused:
    reason: str
    probe: FlagChange
    says: str
    why: UnknownReason = UnknownReason.TOO_FEW_SAMPLES
    target: TargetState = HERE


REFUSED = [
    Refused(
        reason="two settings that both speculate say nothing of off",
        probe=replace(Arms().probe(), origin=OLD),
        says="not exactly one",
        why=UnknownReason.NO_DATA,
    ),
    Refused(reason="no slices", probe=Arms().probe(slices=()), says="0 of at least 3 slices"),
    Refused(reason="two slices", probe=Arms().probe(1, 1), says="2 of at least 3 slices"),
    Refused(
        reason="a change from before the upgrade",
        probe=_without("generated_tokens"),
        says="generated_tokens is Unknown",
    ),
    Refused(
        reason="acceptance unknown",
        probe=_without("mean_acceptance_length"),
        says="mean_acceptance_length is Unknown",
    ),
    Refused(reason="no batch size", probe=_without("batch_size"), says="batch_size is Unknown"),
    Refused(reason="not a number", probe=_with("tpot_mean", math.nan), says="tpot_mean is Unknown"),
    Refused(reason="no time", probe=_with("tpot_mean", 0.0), says="tpot_mean is 0"),
    Refused(
        reason="no token after the first",
        probe=_with("generation_length_mean", 1.0),
        says="no token was decoded",
    ),
    Refused(
        reason="few requests",
        probe=replace(
            Arms().probe(),
            slices=tuple(replace(s, canary_requests=2) for s in Arms().probe().slices),
        ),
        says="6 of 20 requests",
    ),
    Refused(reason="few drafts", probe=Arms(steps=100).probe(), says="300 of 1000 drafts"),
    Refused(
        reason="hardly any step has a draft",
        probe=Arms(share=0.02, steps=50_000).probe(),
        says="only 2.0% of the steps had a draft",
    ),
    Refused(
        reason="somebody edited the workload meanwhile",
        probe=Arms().probe(),
        target=replace(HERE, user_template="t2"),
        says="edited meanwhile",
        why=UnknownReason.AMBIGUOUS,
    ),
    Refused(
        reason="neither version nor template is known",
        probe=Arms().probe(base_template=""),
        target=replace(HERE, engine=EngineRun(version=""), user_template=""),
        says="engine version is not known",
        why=UnknownReason.AMBIGUOUS,
    ),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda c: c.reason)
def test_what_cannot_be_known_is_refused_in_words(case: Refused) -> None:
    found = refused(case.probe, target=case.target)
    assert case.says in found.words
    assert found.reason is case.why
    assert found.evidence().value is None


def test_without_a_version_the_template_stands_for_the_engine() -> None:
    found = measured(Arms().probe(), target=replace(HERE, engine=EngineRun(version="")))
    assert found.engine == "template t1"
