"""What a Prometheus would say of the pods: answers to the product's own queries, of any moment.

Names, labels and buckets are those of vLLM 0.32 as recorded (`bench.signals.pages`); the numbers
grow by the recorded load every five minutes. Pods of one kind say the same at the same moment, so
an answer is the text of a kind, repeated under the name of each pod.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from urllib.parse import parse_qs

from bench.controller.fleet import IDLE_BATCH, OVERLOAD_BATCH, USUAL_BATCH
from bench.queries import Part, UnanswerableError, namespaces_of, read
from bench.signals.fleet import WINDOW_S
from bench.signals.pages import Series, read_by_the_product, series

_NAMES = re.compile(r'__name__=~"((?:[^"\\]|\\.)*)"')
_START = "process_start_time_seconds"
_OVER = re.compile(r"\[(\d+)ms\]")
_NAMESPACE, _POD, _INSTANCE = "@namespace@", "@pod@", "@instance@"


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A pod that is scraped.

    Attributes:
        namespace: Its namespace.
        name: Its name.
        workload: Its Deployment.
        address: Its IP.
        since: When it became ready, in seconds since the epoch.
        speculates: Whether its engine was started with speculation.
    """

    namespace: str
    name: str
    workload: str
    address: str
    since: float
    speculates: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A query of the product.

    Attributes:
        parts: PromQL; buckets, which may be of fewer pods than everything else, are a part.
        at: Of which moment, in seconds since the epoch.
        namespaces: Whose pods it is about; the product names each of them.
    """

    parts: Sequence[Part]
    at: float
    namespaces: frozenset[str]

    @classmethod
    def read(cls, parameters: str) -> Question:
        """From a request's parameters, as a form.

        Raises:
            UnanswerableError: It is not about the pods of certain namespaces.
        """
        form = parse_qs(parameters)
        text = form["query"][0]
        return cls(parts=read(text), at=float(form["time"][0]), namespaces=namespaces_of(text))

    @property
    def begins_a_look(self) -> bool:
        """Whether it asks who is there; what it is about follows."""
        return "timestamp(" in self.parts[0].text


@dataclass(frozen=True, slots=True)
class Kind:
    """What a pod's numbers depend on.

    Attributes:
        speculates: Whether it speculates.
        risen_at: When its load rose, in seconds since the epoch; None when it has not.
    """

    speculates: bool
    risen_at: float | None

    def loads(self, at: float, *, origin: float) -> float:
        """How many recorded loads it had; twice as many in the time since its load rose."""
        risen = max(0.0, at - self.risen_at) if self.risen_at is not None else 0.0
        return 200.0 + (at - origin + risen) / WINDOW_S

    def batch(self, at: float, *, over_s: float) -> float:
        """Mean of running requests over the seconds before a moment."""
        usual = USUAL_BATCH if self.speculates else IDLE_BATCH
        if self.risen_at is None:
            return usual
        share = min(1.0, max(0.0, (at - self.risen_at) / over_s))
        return usual + share * (OVERLOAD_BATCH - usual)


class Numbers:
    """Answers queries.

    Args:
        origin: When the numbers began to grow, in seconds since the epoch.
    """

    def __init__(self, *, origin: float) -> None:
        self._origin = origin

    def answer(
        self, question: Question, *, pods: Iterable[Served], risen: dict[str, float]
    ) -> Iterator[bytes]:
        """The body of an answer, in pieces.

        Args:
            question: What is asked.
            pods: All that there are.
            risen: When the load of a workload (`namespace/name`) rose, of those where it did.

        Raises:
            UnanswerableError: The product asks something new.
        """
        at = question.at
        texts: dict[tuple[Kind, str], str] = {}
        yield b'{"status":"success","data":{"resultType":"vector","result":['
        comma = ""
        for pod in pods:
            if pod.namespace not in question.namespaces or pod.since > at:
                continue
            kind = Kind(pod.speculates, risen.get(f"{pod.namespace}/{pod.workload}"))
            for part, chosen in question.parts:
                if not chosen.fullmatch(pod.name):
                    continue
                if (kind, part) not in texts:
                    texts[kind, part] = self._text(kind, part, at)
                if text := texts[kind, part]:
                    text = text.replace(_POD, pod.name).replace(_NAMESPACE, pod.namespace)
                    yield (comma + text.replace(_INSTANCE, pod.address)).encode()
                    comma = ","
        yield b"]}}"

    def _text(self, kind: Kind, query: str, at: float) -> str:
        where = {"namespace": _NAMESPACE, "pod": _POD}
        found: list[tuple[dict[str, str], float]] = []
        if "timestamp(" in query:
            scrape = {"instance": _INSTANCE, "job": "monitoring/vllm", "container": "vllm"}
            found = [({**where, **scrape, "series": "live"}, at)]
        elif "_bucket" in query:
            wanted = {f"vllm:{name}" for name in re.findall(r"\w+_bucket", query)}
            found = [
                ({"__name__": each.name, **where, "le": dict(each.labels)["le"]}, value)
                for each, value in self._totals(kind, at)
                if each.name in wanted
            ]
        elif _START in query:
            asked = [re.compile(pattern) for pattern in _NAMES.findall(query)]
            found = [
                (self._labels(each), value)
                for each, value in self._totals(kind, at)
                if each.name == _START or any(names.fullmatch(each.name) for names in asked)
            ]
        elif "vllm" in query and "avg_over_time(" not in query:
            raise UnanswerableError(query)
        if over := _OVER.search(query):
            running = kind.batch(at, over_s=int(over[1]) / 1000)
            for name, value in (
                ("num_requests_running", running),
                ("num_requests_waiting", 0.0),
                ("kv_cache_usage_perc", 0.4),
            ):
                found.append(({**where, "series": name}, value))
        return ",".join(
            f'{{"metric":{{{_pairs(labels)}}},"value":[{at!r},"{value!r}"]}}'
            for labels, value in found
        )

    def _totals(self, kind: Kind, at: float) -> Iterator[tuple[Series, float]]:
        loads = kind.loads(at, origin=self._origin)
        for each in _grown(kind.speculates):
            if each.name == _START:
                yield each, self._origin
                continue
            value = each.total + each.growth * loads
            yield each, float(round(value)) if each.whole else value

    @staticmethod
    def _labels(each: Series) -> dict[str, str]:
        labels = {"__name__": each.name, "namespace": _NAMESPACE, "pod": _POD}
        if each.name == _START:
            labels["series"] = each.name
        if position := dict(each.labels).get("position"):
            labels["position"] = position
        return labels


@cache
def _grown(speculates: bool) -> tuple[Series, ...]:
    """The counters and histograms of a page; one series a name, position and bucket."""
    found: dict[tuple[str, str, str], Series] = {}
    for each in series(speculates):
        labels = dict(each.labels)
        if not read_by_the_product(each) or each.moving or each.name in {"up", _INFO}:
            continue
        if labels.get("finished_reason") not in {None, "length"}:
            continue
        found[each.name, labels.get("position", ""), labels.get("le", "")] = each
    return tuple(found.values())


_INFO = "vllm:cache_config_info"


def _pairs(labels: dict[str, str]) -> str:
    return ",".join(f'"{name}":"{value}"' for name, value in labels.items())
