"""A real Prometheus that discovers the pods of the test cluster and scrapes them.

Its configuration is what a usual installation does for annotated pods: ``prometheus.io/scrape``,
``prometheus.io/port`` and ``prometheus.io/path``, with the labels namespace, pod, container, node.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.cluster.ports import free_port
from tests.cluster.processes import Process

JsonObject = dict[str, Any]

_START_DEADLINE = 60.0
_META = "__meta_kubernetes_pod"


class Prometheus:
    """One server; it may be stopped and started again on the same port, with its data.

    Args:
        directory: for configuration, data and log; created when missing.
        program: path of the binary.
        server, token, ca_file: the API server to discover pods from.
        scrape_interval: seconds; also the evaluation interval.
        rules: recording and alerting rules (the content of a rule file), if any.
    """

    def __init__(
        self,
        *,
        directory: Path,
        program: Path,
        server: str,
        token: str,
        ca_file: Path,
        scrape_interval: float = 1.0,
        rules: JsonObject | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._port = free_port()
        self._http = httpx.Client(base_url=self.url, timeout=10.0, trust_env=False)
        token_file = directory / "token"
        token_file.touch(mode=0o600)
        token_file.write_text(token)
        configuration: JsonObject = {
            "global": {
                "scrape_interval": f"{scrape_interval * 1000:.0f}ms",
                "scrape_timeout": f"{min(scrape_interval, 10.0) * 1000:.0f}ms",
                "evaluation_interval": f"{scrape_interval * 1000:.0f}ms",
            },
            "scrape_configs": [
                _pods(server=server, token_file=token_file, ca_file=ca_file),
            ],
        }
        if rules is not None:
            (directory / "rules.yaml").write_text(yaml.safe_dump(rules))
            configuration["rule_files"] = ["rules.yaml"]
        config_file = directory / "prometheus.yaml"
        config_file.write_text(yaml.safe_dump(configuration, sort_keys=False))
        self.process = Process(
            name="prometheus",
            command=[
                program,
                f"--config.file={config_file}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{self._port}",
                "--web.enable-lifecycle",
                "--log.level=warn",
            ],
            log=directory / "prometheus.log",
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start, and wait until it answers queries.

        Raises:
            ProcessError: it did not become ready; with the end of its log.
        """
        self.process.start()
        self.process.wait_ready(self._is_ready, deadline=_START_DEADLINE)

    def stop(self) -> None:
        """Take it away; :meth:`start` brings it back with the samples it had."""
        self.process.stop()

    def close(self) -> None:
        """Stop for good."""
        self.stop()
        self._http.close()

    def query(self, expression: str) -> list[JsonObject]:
        """The vector of an instant query, as the HTTP API gives it."""
        answer = self._http.get("/api/v1/query", params={"query": expression})
        body = answer.json()
        if body["status"] != "success":
            raise ValueError(f"{expression}: {body.get('error')}")
        result: list[JsonObject] = body["data"]["result"]
        return result

    def targets(self) -> list[JsonObject]:
        """What it scrapes now."""
        answer = self._http.get("/api/v1/targets", params={"state": "active"})
        found: list[JsonObject] = answer.json()["data"]["activeTargets"]
        return found

    def _is_ready(self) -> bool:
        try:
            return self._http.get("/-/ready").is_success
        except httpx.HTTPError:
            return False


def _pods(*, server: str, token_file: Path, ca_file: Path) -> JsonObject:
    def copy(source: str, target: str) -> JsonObject:
        return {"source_labels": [f"{_META}_{source}"], "target_label": target}

    return {
        "job_name": "kubernetes-pods",
        "kubernetes_sd_configs": [
            {
                "role": "pod",
                "api_server": server,
                "authorization": {"credentials_file": str(token_file)},
                "tls_config": {"ca_file": str(ca_file)},
            }
        ],
        "relabel_configs": [
            {
                "source_labels": [f"{_META}_annotation_prometheus_io_scrape"],
                "regex": "true",
                "action": "keep",
            },
            {"source_labels": [f"{_META}_container_init"], "regex": "true", "action": "drop"},
            {
                "source_labels": [f"{_META}_phase"],
                "regex": "Pending|Succeeded|Failed|Completed",
                "action": "drop",
            },
            {
                "source_labels": [f"{_META}_annotation_prometheus_io_path"],
                "regex": "(.+)",
                "target_label": "__metrics_path__",
            },
            {
                "source_labels": ["__address__", f"{_META}_annotation_prometheus_io_port"],
                "regex": r"([^:]+)(?::\d+)?;(\d+)",
                "replacement": "$1:$2",
                "target_label": "__address__",
            },
            copy("name", "pod"),
            copy("container_name", "container"),
            copy("node_name", "node"),
            {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
        ],
    }
