"""What a step costs: one comparison of arms turned into a number that outlives it.

A replica that speculates shows what drafts bring (the acceptance length) but not what they cost:
how long a step would take without them. A canary beside the others shows both, in the same minutes
and at the same load. Here that is worked out, once, so that it can be remembered
(`specpilot.domain.recall`) and the question "does it still pay" answered while all replicas
speculate and nothing is left to compare with.

Speedup = L / R, where L is tokens per decode step of a request and R the time of a step with
speculation over that of one without at a like load (Leviathan et al. 2211.17192 with the cost left
in, as measured: Liu et al. 2406.14066). Time per output token (TPOT) is step time over tokens a
step, hence

    R = L * TPOT_on / TPOT_off.

L is counted over *all* decode steps: tokens after the first over (those - accepted drafts), for a
step yields one token and what was accepted. `1 + accepted / drafts` will not do: a method that
drafts only where it finds a match (n-gram, suffix), or that a schedule stops, has steps without a
draft, and that figure leaves them out. Tokens per engine step over running requests would do too,
but divides a mean over steps by a mean over time.

Rules compare with `mean_acceptance_length`, which is per drafted step. With a share p of steps
drafted, L = 1 + p * (length - 1), and L = R exactly where length = 1 + (R - 1) / p. That is the
`ratio` of a measurement: the acceptance length at which the setting breaks even, equal to R where
every step drafts. It also keeps when p changes, since a step costs more only where it has drafts
to verify (cost of verification is linear in tokens below the knee).
"""

import functools
import hashlib
import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from specpilot.domain.changes import Evidence, FlagChange, Slice
from specpilot.domain.policy import Canary
from specpilot.domain.readings import UnknownReason
from specpilot.domain.sequential import MIN_SLICES
from specpilot.domain.settings import Declared
from specpilot.domain.targets import TargetState

LIKE_LOAD = 1.5
"""Largest factor between the batch sizes of two arms that are compared."""

ELASTICITY = 0.25
"""By how much a step grows with the batch, as d log(time) / d log(batch). Llama 3.1 8B on one H100
with 1,000 tokens of context takes 9.0 ms at a batch of 32 and 10.0 ms at 48 (SpecDecode-Bench,
arXiv 2601.11580). Arms at unlike batch sizes are that much less certain."""

LEAST_SHARE = 0.05
"""Smallest share of drafted steps on which a cost per draft is stated: it divides by it."""

LARGEST_ERROR = 0.15
"""Largest standard error of a ratio, relative to it: more would be a guess."""


@functools.lru_cache(maxsize=4096)
def config_hash(config: str) -> str:
    """Short name of a rendered config, for telling whether two are the same."""
    return hashlib.sha256(config.encode()).hexdigest()[:16]


def engine_of(state: TargetState) -> str:
    """What a cost belongs to: the engine's version, or the very template where that is not known.

    "" when neither is known; it equals nothing.
    """
    if state.engine_version:
        return state.engine_version
    return f"template {state.user_template}" if state.user_template else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Decode steps of requests, of one arm in one window.

    Attributes:
        tokens: Output tokens after the first of each request.
        steps: Steps that made them, counted once per request they served.
        drafts: Those of the steps that verified a draft.
        accepted: Drafted tokens that were accepted.
    """

    tokens: float
    steps: float
    drafts: float
    accepted: float

    @property
    def per_step(self) -> float:
        """Tokens per decode step, L."""
        return self.tokens / self.steps

    @property
    def per_draft(self) -> float:
        """Acceptance length per drafted step, as the signal `mean_acceptance_length` has it."""
        return 1 + self.accepted / self.drafts if self.drafts else 1.0

    @property
    def share(self) -> float:
        """Share of steps that verified a draft, p."""
        return self.drafts / self.steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The cost of a setting, from one comparison with off.

    Attributes:
        change_id: The flag change or probe it comes from; there is one measurement of each.
        target: The target, as text.
        setting: Name of the setting, for people; `config` decides.
        config: `config_hash` of what the engine ran.
        engine: `engine_of` the target at the time.
        template: Hash of the workload's template at the time.
        start: Start of the first slice used.
        at: End of the last one.
        batch_on: Running requests per replica, mean over the slices, with speculation.
        batch_off: The same without.
        ratio: Acceptance length at which the setting breaks even; the signal `cost_ratio`.
        error: Its standard error, with what unlike batch sizes of the arms may add.
        step_ratio: Step time with speculation over without, R.
        acceptance_length: Per drafted step.
        tokens_per_step: Per decode step, L.
        speedup: TPOT without over TPOT with.
        requests_on: Requests finished with speculation.
        requests_off: Requests finished without.
        drafts: Drafts verified.
        slices: Slices used.
        same_window: Both arms ran at the same time; otherwise off is the time before or after.
    """

    change_id: str
    target: str
    setting: str
    config: str
    engine: str
    template: str
    start: datetime
    at: datetime
    batch_on: float
    batch_off: float
    ratio: float
    error: float
    step_ratio: float
    acceptance_length: float
    tokens_per_step: float
    speedup: float
    requests_on: float
    requests_off: float
    drafts: float
    slices: int
    same_window: bool

    @property
    def batch(self) -> float:
        """The batch size it stands for: between the arms'."""
        return math.sqrt(clamped(self.batch_on) * clamped(self.batch_off))

    def evidence(self) -> Evidence:
        """The number for the audit record of the change."""
        return Evidence(
            signal="cost_ratio",
            value=self.ratio,
            at=self.at,
            count=self.requests_on + self.requests_off,
            window_s=(self.at - self.start).total_seconds(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NotMeasured:
    """Why a comparison leaves no measurement."""

    reason: UnknownReason
    words: str

    def evidence(self) -> Evidence:
        """For the audit record of the change."""
        return Evidence(signal="cost_ratio", value=None, reason=str(self.reason))


def clamped(batch: float) -> float:
    """A batch size as a step sees it: never below 1, which a mean over idle time can be."""
    return max(1.0, batch)


def decode_steps(values: Mapping[str, float]) -> Steps | str:
    """Work out the decode steps of an arm that speculates, or say what is missing for it.

    The first token of a request comes out of its prefill and is no decode step; where the mean
    output length is known they are taken off. A last step may verify more than the request still
    wanted, so that accepted tokens are a little too many; steps are never fewer than drafts.

    Args:
        values: Signals of the arm over one window.
    """
    generated, drafts = values.get("generated_tokens"), values.get("drafts")
    if generated is None or drafts is None:
        return f"{'generated_tokens' if generated is None else 'drafts'} is Unknown"
    length = values.get("mean_acceptance_length") if drafts else 1.0
    if length is None:
        return "mean_acceptance_length is Unknown"
    accepted = drafts * (length - 1)
    output = values.get("generation_length_mean")
    tokens = generated if output is None else generated * (1 - 1 / max(output, 1.0))
    steps = max(tokens - accepted, drafts)
    if not (math.isfinite(steps) and tokens > 0 and steps > 0 and accepted >= 0):
        return "no token was decoded after the first of a request"
    return Steps(tokens=tokens, steps=steps, drafts=drafts, accepted=accepted)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """One slice that counts."""

    part: Slice
    tpot_ratio: float
    steps: Steps
    batch_on: float
    batch_off: float

    @property
    def step_ratio(self) -> float:
        return self.tpot_ratio * self.steps.per_step

    @property
    def apart(self) -> float:
        return math.log(clamped(self.batch_on) / clamped(self.batch_off))


def _pair(part: Slice, *, speculating: str) -> _Pair | str:
    arms = {"canary": part.canary, "control": part.control}
    on = arms.pop(speculating)
    (off,) = arms.values()
    for signal in ("tpot_mean", "batch_size"):
        for values in (on, off):
            value = values.get(signal)
            if value is None or not math.isfinite(value) or value < 0:
                return f"{signal} is Unknown on an arm"
    if on["tpot_mean"] <= 0 or off["tpot_mean"] <= 0:
        return "tpot_mean is 0 on an arm"
    apart = clamped(on["batch_size"]) / clamped(off["batch_size"])
    if not 1 / LIKE_LOAD <= apart <= LIKE_LOAD:
        return (
            f"the arms ran at batch sizes of {on['batch_size']:.3g} and {off['batch_size']:.3g}, "
            f"further apart than a factor of {LIKE_LOAD:g}"
        )
    steps = decode_steps(on)
    if isinstance(steps, str):
        return steps
    return _Pair(
        part=part,
        tpot_ratio=on["tpot_mean"] / off["tpot_mean"],
        steps=steps,
        batch_on=on["batch_size"],
        batch_off=off["batch_size"],
    )


def compared(change: FlagChange) -> tuple[Declared, str] | None:
    """What speculates in a comparison and on which arm; None where not exactly one arm does."""
    if bool(change.origin.config) == bool(change.wanted.config):
        return None
    return (change.wanted, "canary") if change.wanted.config else (change.origin, "control")


def measure(change: FlagChange, *, state: TargetState, least: Canary) -> Measurement | NotMeasured:
    """Work out what a step costs from the slices of a change's analysis.

    Args:
        change: A change whose analysis is over.
        state: The target now; what was measured belongs to its engine.
        least: The policy's own minimum of requests and drafts.
    """
    found = compared(change)
    if found is None:
        return NotMeasured(
            reason=UnknownReason.NO_DATA, words="not exactly one of the arms speculates"
        )
    declared, arm = found
    engine = engine_of(state)
    if not engine or state.user_template != change.base_template:
        return NotMeasured(
            reason=UnknownReason.AMBIGUOUS,
            words="the workload was edited meanwhile, or its engine version is not known",
        )
    looked = [_pair(part, speculating=arm) for part in change.slices]
    pairs = [pair for pair in looked if isinstance(pair, _Pair)]
    if len(pairs) < MIN_SLICES:
        faults = Counter(fault for fault in looked if isinstance(fault, str))
        most = f": {faults.most_common(1)[0][0]}" if faults else ""
        return NotMeasured(
            reason=UnknownReason.TOO_FEW_SAMPLES,
            words=f"{len(pairs)} of at least {MIN_SLICES} slices can be compared{most}",
        )
    return _measurement(change, declared, arm, pairs, engine=engine, least=least)


def _measurement(
    change: FlagChange,
    declared: Declared,
    arm: str,
    pairs: Sequence[_Pair],
    *,
    engine: str,
    least: Canary,
) -> Measurement | NotMeasured:
    requests = {
        "canary": math.fsum(p.part.canary_requests for p in pairs),
        "control": math.fsum(p.part.control_requests for p in pairs),
    }
    on = requests.pop(arm)
    (off,) = requests.values()
    whole = Steps(
        tokens=math.fsum(p.steps.tokens for p in pairs),
        steps=math.fsum(p.steps.steps for p in pairs),
        drafts=math.fsum(p.steps.drafts for p in pairs),
        accepted=math.fsum(p.steps.accepted for p in pairs),
    )
    if short := _short(on, off, whole, least=least):
        return NotMeasured(reason=UnknownReason.TOO_FEW_SAMPLES, words=short)
    logs = [math.log(p.step_ratio) for p in pairs]
    step_ratio = math.exp(statistics.fmean(logs))
    apart = statistics.fmean(p.apart for p in pairs)
    spread = math.hypot(statistics.stdev(logs) / math.sqrt(len(logs)), ELASTICITY * apart)
    error = step_ratio * spread / whole.share
    ratio = 1 + (step_ratio - 1) / whole.share
    if ratio <= 0 or error > LARGEST_ERROR * ratio:
        return NotMeasured(
            reason=UnknownReason.TOO_FEW_SAMPLES,
            words=f"slices or loads differ too much: {ratio:.3f}, standard error {error:.3f}",
        )
    return Measurement(
        change_id=change.id,
        target=str(change.target),
        setting=declared.setting,
        config=config_hash(declared.config),
        engine=engine,
        template=change.base_template,
        start=pairs[0].part.start,
        at=pairs[-1].part.end,
        batch_on=statistics.fmean(p.batch_on for p in pairs),
        batch_off=statistics.fmean(p.batch_off for p in pairs),
        ratio=ratio,
        error=error,
        step_ratio=step_ratio,
        acceptance_length=whole.per_draft,
        tokens_per_step=whole.per_step,
        speedup=math.exp(-statistics.fmean(math.log(p.tpot_ratio) for p in pairs)),
        requests_on=on,
        requests_off=off,
        drafts=whole.drafts,
        slices=len(pairs),
        same_window=not change.before,
    )


def _short(on: float, off: float, whole: Steps, *, least: Canary) -> str:
    """What there is too little of, "" when there is enough."""
    if min(on, off) < max(1, least.min_requests):
        return f"{min(on, off):.0f} of {least.min_requests} requests on an arm"
    if whole.drafts < max(1, least.min_drafts):
        return f"{whole.drafts:.0f} of {least.min_drafts} drafts"
    if whole.share < LEAST_SHARE:
        return (
            f"only {whole.share:.1%} of the steps had a draft; below {LEAST_SHARE:.0%} the cost "
            "of one cannot be told from noise"
        )
    return ""
