"""What a demo came to, and whether it is what was promised."""

from dataclasses import dataclass
from typing import Any

from specpilot.cli.demo.recorded import Recorded
from specpilot.cli.demo.scene import STEERED, duration, met
from specpilot.cli.demo.traffic import Traffic
from specpilot.domain.changes import ChangeKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Everything the demo shows at its end.

    Attributes:
        recorded: What was done and noted.
        goodput: By fleet, output tokens per second that met their objective.
        share: By fleet, part of the requests that met their objective.
    """

    recorded: Recorded
    goodput: dict[str, float]
    share: dict[str, float]

    def missing(self) -> list[str]:
        """What was promised and did not happen, in words."""
        done = self.recorded.succeeded
        promised = {
            "speculation was switched off because the batch grew": any(
                c.rule.rule == "off-when-busy" for c in done
            ),
            "speculation was switched off because drafts were rejected": any(
                c.rule.rule == "off-when-drafts-are-rejected" for c in done
            ),
            "a probe was kept when drafts were good again": bool(done)
            and done[-1].kind is ChangeKind.PROBE,
            **self.recorded.promises(),
            "Specpilot beat always on": self.goodput[STEERED] > self.goodput["always-on"],
            "Specpilot beat always off": self.goodput[STEERED] > self.goodput["always-off"],
        }
        return [words for words, happened in promised.items() if not happened]

    def as_plain(self) -> dict[str, Any]:
        """For machines."""
        return {
            **self.recorded.as_plain(),
            "goodput": {
                "specpilot": self.goodput[STEERED],
                "always_on": self.goodput["always-on"],
                "always_off": self.goodput["always-off"],
            },
            "met_objective": dict(self.share),
        }


def outcome_of(recorded: Recorded, *, traffic: Traffic) -> Outcome:
    """Put the record and the scores together."""
    return Outcome(
        recorded=recorded,
        goodput={n: s.goodput(met, span=duration()) for n, s in traffic.scores.items()},
        share={n: s.share(met) or 0.0 for n, s in traffic.scores.items()},
    )
