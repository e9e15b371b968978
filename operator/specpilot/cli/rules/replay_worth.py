"""What a replay would have gained or lost against what ran, in words and as plain data."""

from collections.abc import Sequence
from typing import Any

from specpilot.domain.gains import Basis, Gain, Worth

_BY = {
    Basis.MEASURED: "by costs that were measured",
    Basis.RECORDED: "by stretches of the recording in which it ran at a like load",
    Basis.STATED: "by costs that the policy states",
}
_MINUTE_S = 60.0


def gain_words(gain: Gain) -> str:
    """Tokens gained or lost, how long it is known of and by what, and how long it is not."""
    if not gain.judged_s and not gain.not_known_s:
        return "against what ran: nothing gained or lost, it would have run the same throughout"
    missing = _not_known(gain)
    if gain.tokens is None or gain.per_second is None:
        return f"against what ran: not known ({missing})"
    by = ", ".join(
        f"{_minutes(gain.seconds[basis])} {words}"
        for basis, words in _BY.items()
        if gain.seconds.get(basis)
    )
    share = f" ({gain.relative:+.1%})" if gain.relative is not None else ""
    return (
        f"against what ran: about {gain.tokens:+,.0f} output tokens{share}, "
        f"{gain.per_second:+,.1f} tokens/s over the {_minutes(gain.judged_s)} in another setting "
        f"of which both are known: {by}" + (f"; not known: {missing}" if missing else "")
    )


def _not_known(gain: Gain) -> str:
    reasons = sorted(gain.not_known.items(), key=lambda item: -item[1])
    return "; ".join(f"{_minutes(seconds)}, {why}" for why, seconds in reasons)


def difference(one: Sequence[Worth], other: Sequence[Worth]) -> tuple[float | None, float, float]:
    """Tokens by which the other is better, the seconds it rests on, and those not known.

    Only spells in which they differ count, and of these those whose worth is known of both.
    """
    tokens: list[float] = []
    judged = not_known = 0.0
    for a, b in zip(one, other, strict=True):
        if a.setting == b.setting:
            continue
        if a.would is None or b.would is None:
            not_known += a.seconds
        else:
            judged += a.seconds
            tokens.append(b.would - a.would)
    return (sum(tokens) if tokens else None), judged, not_known


def difference_words(
    one: Sequence[Worth], other: Sequence[Worth], *, labels: tuple[str, str]
) -> str:
    """The same in words."""
    tokens, judged, not_known = difference(one, other)
    first, second = labels
    if tokens is None:
        if not_known:
            return f"{second} against {first}: not known of any of {_minutes(not_known)}"
        return f"{second} against {first}: no difference, both would have run the same throughout"
    rest = f"; not known of {_minutes(not_known)}" if not_known else ""
    return (
        f"{second} against {first}: about {tokens:+,.0f} output tokens, "
        f"{tokens / judged:+,.1f} tokens/s over {_minutes(judged)}{rest}"
    )


def plain_gain(gain: Gain) -> dict[str, Any]:
    """As plain data; null where it is not known."""
    return {
        "tokens": gain.tokens,
        "tokens_per_second": gain.per_second,
        "relative": gain.relative,
        "tokens_that_ran": gain.ran,
        "seconds": {str(basis): gain.seconds.get(basis, 0.0) for basis in Basis},
        "judged_seconds": gain.judged_s,
        "not_known_seconds": gain.not_known_s,
        "not_known": dict(gain.not_known),
    }


def plain_difference(one: Sequence[Worth], other: Sequence[Worth]) -> dict[str, Any]:
    """As plain data; null where it is not known."""
    tokens, judged, not_known = difference(one, other)
    return {
        "tokens": tokens,
        "tokens_per_second": tokens / judged if tokens is not None else None,
        "judged_seconds": judged,
        "not_known_seconds": not_known,
    }


def _minutes(seconds: float) -> str:
    return f"{seconds / _MINUTE_S:,.0f} min" if seconds >= _MINUTE_S else f"{seconds:.0f} s"
