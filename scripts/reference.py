"""Write docs/reference/ from the code; `--check` only says whether it is up to date."""

import sys
from pathlib import Path

from specpilot.domain.changes import ChangeReason, Phase
from specpilot.domain.conditions.units import FACTORS
from specpilot.domain.context import VARIABLES
from specpilot.domain.gates import GateReason
from specpilot.domain.policy import Event
from specpilot.domain.readings import UnknownReason
from specpilot.domain.signals import POSITIONS, SIGNALS, position_signal
from specpilot.domain.targets import TargetProblem
from specpilot.engines.capabilities import TABLE, On, Topic
from specpilot.engines.versions import NEWEST, OLDEST

REFERENCE = Path(__file__).parent.parent / "docs" / "reference"
MADE = "<!-- made by scripts/reference.py; do not edit -->\n"

WORDS: dict[str, str] = {
    # why a reading is Unknown
    "NoData": "no replica reported in the window; as a gate: what an approved change was proposed "
    "on is Unknown now",
    "Stale": "the newest sample is too old",
    "NaN": "the source answered NaN, infinity or a value that cannot be",
    "TooFewSamples": "nothing happened in the window that could be measured",
    "SourceError": "the source did not answer, or with an error",
    "NotExported": "the engine does not export it: speculation is off, or statistics are",
    "Ambiguous": "several series claim to be it, or the engine is known to count it wrongly",
    # gates
    "ModeOff": "the policy's mode is Off",
    "Paused": "spec.paused is true",
    "TargetProblem": "the target cannot be steered as it stands",
    "ChangeInFlight": "another change of the same target has not ended",
    "RolloutInProgress": "the workload is being rolled or scaled, or a roll is held",
    "Scaling": "an autoscaler is changing the number of replicas, or that cannot be known",
    "Disaggregated": "the engine hands its KV cache over, so that only the depth may change",
    "BatchLimit": "the setting has a batch limit that the engine would not keep to, and the batch "
    "is near or above it",
    "ConcurrentLimit": "as many changes are in flight as the operator allows",
    "SettingChanged": "spec.settings no longer says what was proposed",
    "NoReplicas": "no replica is ready, so there is nothing to compare with",
    "SettingRefused": "the engine's version cannot run the setting",
    "Frozen": "a freeze window is open",
    "Cooldown": "the last change ended less than limits.cooldown ago",
    "RecentlyFailed": "the setting failed on this engine and template; it waits, longer each time",
    "BudgetSpent": "limits.flipsPerHour or flipsPerDay is used up",
    "WouldDeadlock": "the strategy starts a replica before one stops, and no node has room for it",
    "NeedsDowntime": "a canary cannot start without fewer serving than the strategy allows",
    # targets
    "NotFound": "there is no such workload",
    "UnsupportedKind": "workloads of this kind are not supported",
    "OwnedByOther": "another controller owns the workload and would undo the change",
    "ContainerNotFound": "the pod has no such container",
    "NotWired": "the container does not read the annotation; the message has what to add",
    "ShadowedByArgs": "another speculation flag of the command line would win",
    "PausedByUser": "somebody else holds the workload's rolls (paused, or a partition)",
    "UnsuitableStrategy": "with the workload's own strategy nothing can be tried first",
    "ChannelDoesNotFit": "settings cannot travel the way rollout.channel asks for",
    "Unreachable": "the fleet did not answer",
    # flag changes
    "RuleFired": "a rule asked for it",
    "ProbeDue": "speculation has been off for long enough to try it again",
    "ApprovalNeeded": "mode Approve: a person decides",
    "Proposed": "mode Propose: the owner of the workload applies it",
    "AppliedByOwner": "somebody else set what was proposed, and it runs",
    "Approved": "a person approved",
    "Rejected": "a person rejected",
    "Expired": "nobody decided in time",
    "CanaryReady": "the canary serves",
    "AnalysisPassed": "time and data sufficed and no guardrail broke",
    "ProbeWon": "the canary beat the others by the margin",
    "RolledOut": "every replica runs the setting",
    "Settled": "and it went on well for as long as rollout.watch says",
    "ReplicaFailed": "a replica broke with the new setting",
    "ReplicaFlaps": "a replica of the new setting became ready and did not stay it",
    "ReadyDeadline": "replicas did not become ready in time",
    "GuardrailBroken": "a bound was broken on the canary",
    "ProbeLost": "the canary did not beat the others",
    "Inconclusive": "patience ended before the data sufficed",
    "EditedByUser": "somebody edited the workload's template in mid-flip",
    "Contested": "somebody replaced our value; as a gate: too often, until the policy is edited",
    "PolicyDeleted": "the policy was deleted in mid-flip",
    "PolicyOff": "the mode was set to Off in mid-flip, or to Off or Advisory while it waited",
    "TargetGone": "the workload was deleted in mid-flip",
    "Restored": "what ran before runs again",
    "Superseded": "the proposal is no longer what the rules and settings ask for",
}


def signals() -> str:
    """The catalogue of signals; the positions of a draft share one row."""
    first, last = position_signal(0), position_signal(POSITIONS - 1)
    family = {position_signal(i) for i in range(POSITIONS)} - {first}
    rows = []
    for s in SIGNALS.values():
        if s.name in family:
            continue
        name, cells = f"`{s.name}`", (s.unit, s.meaning, s.source, s.unknown_when)
        if s.name == first:
            name = f"`{first}` ... `{last}`"
            cells = tuple(_any_position(cell) for cell in cells)
        better = {True: "lower", False: "higher", None: ""}[s.lower_is_better]
        rows.append(f"| {name} | {' | '.join((*cells, better))} |")
    return "\n".join(
        [
            MADE,
            "# Signals",
            "",
            "Every name that a rule or a guardrail may use. A signal without a value is Unknown,",
            "with a [reason](reasons.md); it is never 0. [How signals are measured](../signals.md)",
            "says what to do for each reason. `specpilot signals` shows them live.",
            "",
            "| signal | unit | meaning | computed from | normally Unknown when | better |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _any_position(words: str) -> str:
    """What is said of position 0, said of position N."""
    for zero, any_n in (
        ("position 0", "position N"),
        ('"0"', '"N"'),
        ("fewer than 1 ", "fewer than N + 1 "),
    ):
        words = words.replace(zero, any_n)
    return words


def variables() -> str:
    """What conditions may name beside signals, and the units of literals."""
    return "\n".join(
        [
            MADE,
            "# Variables and units",
            "",
            "What a condition may name beside [signals](signals.md) and its parameters.",
            "What is not known is Unknown.",
            "",
            "| variable | kind | unit | meaning |",
            "|---|---|---|---|",
            *(
                f"| `{v.name}` | {v.kind} | {v.unit or '-'} | {v.meaning} |"
                for v in VARIABLES.values()
            ),
            "",
            "## Units of literals",
            "",
            "| written after a number | it becomes | times |",
            "|---|---|---|",
            *(
                f"| `{suffix}` | {unit} | {factor:f} |"
                for suffix, (unit, factor) in FACTORS.items()
            ),
            "",
        ]
    )


def reasons() -> str:
    """All enumerated reasons."""
    parts = [MADE, "# Reasons", ""]
    for title, members in (
        ("Why a reading is Unknown, and no rule can be judged (`MetricsAvailable`)", UnknownReason),
        ("Why a target cannot be steered (`TargetReady`)", TargetProblem),
        ("Which gate holds a proposal back (`Held`)", GateReason),
        ("Why a flag change entered its phase", ChangeReason),
    ):
        parts += [f"## {title}", "", "| reason | meaning |", "|---|---|"]
        parts += [f"| `{m}` | {WORDS[str(m)]} |" for m in members]
        parts.append("")
    parts += ["## Phases of a flag change", "", ", ".join(f"`{p}`" for p in Phase), ""]
    parts += ["## Events an alert channel can ask for", "", ", ".join(f"`{e}`" for e in Event), ""]
    return "\n".join(parts)


TOPICS: dict[Topic, str] = {
    Topic.FLAG: "Flags",
    Topic.KEY: "Keys of `--speculative-config`",
    Topic.VALUE: "Words that a key takes",
    Topic.METHOD: "Methods",
    Topic.BEHAVIOUR: "What the engine and its parser do",
}


def engines() -> str:
    """The table of engine knowledge."""
    parts = [
        MADE,
        "# Engine versions",
        "",
        f"What vLLM {OLDEST} to {NEWEST} does with what it is told about speculation:",
        "`specpilot engines` prints the same. [Engines](../engines.md) says how it is used.",
        "A row holds from *since* up to, not including, *until*. *inferred*: not seen in the code",
        "of a release, or its first release not.",
        "",
    ]
    for topic, title in TOPICS.items():
        parts += [
            f"## {title}",
            "",
            "| what | since | until | engine | effect | known | source |",
            "|---|---|---|---|---|---|---|",
            *(
                f"| `{r.name}` | {r.span.since} | {r.span.until or ''} | "
                f"{'' if r.on is On.ANY else r.on} | {r.outcome} | {r.certainty} | {r.source} |"
                for r in TABLE
                if r.topic is topic
            ),
            "",
        ]
    return "\n".join(parts)


def main() -> int:
    """Write or check."""
    stale = []
    for name, text in (
        ("signals.md", signals()),
        ("variables.md", variables()),
        ("reasons.md", reasons()),
        ("engines.md", engines()),
    ):
        path = REFERENCE / name
        if "--check" in sys.argv[1:]:
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                stale.append(str(path.relative_to(REFERENCE.parent.parent)))
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if stale:
        print(f"out of date: {', '.join(stale)}; run make docs")
    return bool(stale)


if __name__ == "__main__":
    sys.exit(main())
