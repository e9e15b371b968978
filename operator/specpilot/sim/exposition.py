"""An engine's statistics as the metric text of the simulated release.

Written by hand rather than with ``prometheus_client``: many replicas share a process here, each
with label sets and presence rules of its own release, and a scrape must stay cheap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from specpilot.sim.engine import Engine
from specpilot.sim.families import ENGINE_LABEL, FINISH_REASONS, Family, families
from specpilot.sim.launch import Generation, LaunchConfig
from specpilot.sim.stats import Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Exposition:
    """Renders the engines of one replica.

    Attributes:
        config: the launch.
        created: Unix time of the start, for the ``_created`` and ``process_`` series.
    """

    config: LaunchConfig
    created: float

    @property
    def _multiprocess(self) -> bool:
        """Whether the registry is shared by several API servers, or is V0's, which was like it."""
        return self.config.api_server_count > 1

    def render(self, engines: Sequence[Engine]) -> str:
        """Return the text of ``/metrics``."""
        config = self.config
        v0 = config.generation is Generation.V0
        lines: list[str] = []
        if not self._multiprocess and not v0:
            lines += [
                "# HELP process_start_time_seconds Start time of the process since unix epoch.",
                "# TYPE process_start_time_seconds gauge",
                f"process_start_time_seconds {self.created!r}",
            ]
        if config.log_stats:
            shown = self._shown(engines)
            for family in families(
                version=config.version,
                generation=config.generation,
                speculative=config.speculation is not None,
            ):
                lines += self._family(family, shown)
            lines += self._cache_config(shown)
        return "\n".join(lines) + "\n"

    def _shown(self, engines: Sequence[Engine]) -> list[tuple[str, Engine]]:
        """Pair the engines with their labels; before 0.10 only the last of several reported."""
        numbered = list(enumerate(engines))
        if self.config.version.release < (0, 10):
            numbered = numbered[-1:]
        return [(str(rank), engine) for rank, engine in numbered]

    def _labels(self, family: Family | None, rank: str) -> dict[str, str]:
        labels = {"model_name": self.config.model_name}
        engine_label = (
            self.config.generation is Generation.V1 and self.config.version in ENGINE_LABEL
        )
        if engine_label and (family is None or family.per_engine):
            labels["engine"] = rank
        return labels

    def _family(self, family: Family, shown: Sequence[tuple[str, Engine]]) -> list[str]:
        name = f"{family.name}_total" if family.kind == "counter" else family.name
        samples: list[str] = []
        created: list[str] = []
        for rank, engine in shown if family.per_engine else shown[:1]:
            if not self._present(family, engine):
                continue
            labels = self._labels(family, rank)
            value = family.read(engine.stats)
            if isinstance(value, Histogram):
                samples += self._histogram(family, labels, value)
            elif isinstance(value, Mapping):
                for key, number in self._known(family, value).items():
                    each = labels | {family.label or "": key}
                    samples.append(f"{name}{_text(each)} {float(number)!r}")
                    created.append(_text(each))
            else:
                samples.append(f"{name}{_text(labels)} {_number(value)}")
            if not isinstance(value, Mapping):
                created.append(_text(labels))
        if not samples:
            return []
        lines = [f"# HELP {name} {family.help}", f"# TYPE {name} {family.kind}", *samples]
        single_process = not self._multiprocess and self.config.generation is Generation.V1
        if family.kind != "gauge" and single_process:
            lines += [
                f"# HELP {family.name}_created {family.help}",
                f"# TYPE {family.name}_created gauge",
                *(f"{family.name}_created{text} {self.created!r}" for text in created),
            ]
        return lines

    def _present(self, family: Family, engine: Engine) -> bool:
        if self.config.generation is Generation.V0:
            # V0's client library shows a series once it has been set, and its speculation is
            # reported every five seconds only.
            if family.speculative:
                return engine.stats.v0_report.reported
            value = family.read(engine.stats)
            return engine.touched and not (isinstance(value, Histogram) and value.count == 0)
        # Several servers share files, which hold a gauge once it has been set, and from then on.
        return engine.touched or not (family.live and self._multiprocess)

    def _known(self, family: Family, values: Mapping[str, float]) -> Mapping[str, float]:
        if family.label != "finished_reason":
            return values
        v0 = self.config.generation is Generation.V0
        return {
            reason: values[reason]
            for reason, known in FINISH_REASONS.items()
            if self.config.version in known and (values[reason] or not v0)
        }

    def _histogram(
        self, family: Family, labels: Mapping[str, str], histogram: Histogram
    ) -> Iterator[str]:
        # With several API servers each of them counts the step (vLLM #51329).
        double = self._multiprocess and family.name == "vllm:iteration_tokens_total"
        factor = self.config.api_server_count if double else 1
        bounds = [*(repr(bound) for bound in histogram.bounds), "+Inf"]
        for bound, count in zip(bounds, histogram.cumulative(), strict=True):
            text = _text({**labels, "le": bound})
            yield f"{family.name}_bucket{text} {float(count * factor)!r}"
        yield f"{family.name}_count{_text(labels)} {float(histogram.count * factor)!r}"
        yield f"{family.name}_sum{_text(labels)} {float(histogram.total * factor)!r}"

    def _cache_config(self, shown: Sequence[tuple[str, Engine]]) -> Iterator[str]:
        name = "vllm:cache_config_info"
        yield f"# HELP {name} Information of the LLMEngine CacheConfig"
        yield f"# TYPE {name} gauge"
        v1 = self.config.generation is Generation.V1
        for rank, engine in shown:
            labels = {
                "block_size": str(self.config.block_size),
                "cache_dtype": "auto",
                "enable_prefix_caching": str(self.config.prefix_caching) if v1 else "None",
                "gpu_memory_utilization": "0.9",
                "is_attention_free": "False",
                "num_cpu_blocks": "None" if v1 else "0",
                "num_gpu_blocks": str(engine.limits.num_blocks),
                "num_gpu_blocks_override": str(self.config.num_gpu_blocks),
                "prefix_caching_hash_algo": "sha256" if v1 else "builtin",
                "sliding_window": "None",
            }
            engine_label = self._labels(None, rank)
            del engine_label["model_name"]
            yield f"{name}{_text(labels | engine_label)} 1.0"


def _number(value: float) -> str:
    return "NaN" if value != value else repr(float(value))  # noqa: PLR0124 -- the test for NaN


def _text(labels: Mapping[str, str]) -> str:
    """Write labels in alphabetical order, escaped as the format asks."""
    if not labels:
        return ""
    pairs = (f'{name}="{value.translate(_ESCAPES)}"' for name, value in sorted(labels.items()))
    return "{" + ",".join(pairs) + "}"


_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
