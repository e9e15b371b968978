"""etcd, kube-apiserver, kube-controller-manager and kube-scheduler on ports of 127.0.0.1.

No kubelet is part of it: the nodes' readiness is asserted, not observed, so the controllers that
watch heartbeats stay off.
"""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.cluster.api import Api, ApiError
from tests.cluster.ports import free_port
from tests.cluster.processes import Process

JsonObject = dict[str, Any]

_START_DEADLINE = 120.0
ADMIN = "admin"
DEFAULT_USERS: Mapping[str, tuple[str, ...]] = {
    "alice": ("developers",),
    "bob": ("developers",),
    "carol": ("approvers",),
}
"""People for tests of who did what; they may do nothing until a role is bound."""


@dataclass(frozen=True, slots=True)
class User:
    """Someone whom the API server knows, with a kubeconfig of theirs."""

    name: str
    token: str
    kubeconfig: Path


class ControlPlane:
    """A control plane with its state in ``directory``.

    Args:
        directory: for data, certificates, kubeconfigs and logs; created when missing.
        programs: paths of the binaries by name, see :func:`tests.cluster.build.tools`.
        users: people to know from the start, with their groups.
        arguments: further arguments of a program, by its name; a later flag wins over ours.
    """

    def __init__(
        self,
        *,
        directory: Path,
        programs: Mapping[str, Path],
        users: Mapping[str, Sequence[str]] = DEFAULT_USERS,
        arguments: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.directory = directory
        self._further = arguments or {}
        self._programs = programs
        self._groups = {
            ADMIN: ("system:masters",),
            **{name: tuple(of) for name, of in users.items()},
        }
        self._tokens = {name: secrets.token_hex(16) for name in self._groups}
        self._logs = directory / "logs"
        self._certificates = directory / "certificates"
        for path in (self._logs, self._certificates, directory / "kubeconfigs"):
            path.mkdir(parents=True, exist_ok=True)
        self._etcd_port, self._etcd_peer_port = free_port(), free_port()
        self._port = free_port()
        self._api: Api | None = None
        self._etcd = self._process("etcd", self._etcd_arguments())
        self.apiserver = self._process("kube-apiserver", self._apiserver_arguments())
        self.controller_manager = self._process(
            "kube-controller-manager", self._controller_manager_arguments()
        )
        self.scheduler = self._process("kube-scheduler", self._scheduler_arguments())

    # -- what others need ---------------------------------------------------------------------

    @property
    def server(self) -> str:
        """URL of the API server."""
        return f"https://127.0.0.1:{self._port}"

    @property
    def ca_file(self) -> Path:
        """The self-signed certificate of the API server."""
        return self._certificates / "apiserver.crt"

    @property
    def tls_key_file(self) -> Path:
        """The key of :attr:`ca_file`, which also signs ServiceAccount tokens."""
        return self._certificates / "apiserver.key"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.directory / "kubeconfigs" / ADMIN

    @property
    def token(self) -> str:
        """The administrator's bearer token."""
        return self._tokens[ADMIN]

    @property
    def api(self) -> Api:
        """The API as the administrator sees it."""
        if self._api is None:
            self._api = self.api_as(self.token)
        return self._api

    def api_as(self, token: str) -> Api:
        """The API as the owner of ``token`` sees it; the caller closes it."""
        return Api(server=self.server, ca_file=self.ca_file, token=token)

    def user(self, name: str, *, groups: Sequence[str] = ()) -> User:
        """A person with a token of their own.

        Someone not known yet costs a restart of the API server, which reads its users at start.
        """
        if name not in self._groups:
            self._groups[name] = tuple(groups)
            self._tokens[name] = secrets.token_hex(16)
            self.stop_apiserver()
            self.start_apiserver()
        return User(
            name=name,
            token=self._tokens[name],
            kubeconfig=self.write_kubeconfig(name, self._tokens[name]),
        )

    def service_account_token(self, *, namespace: str, name: str, seconds: int = 3600) -> str:
        """A token of an existing ServiceAccount, made through the TokenRequest API."""
        answer = self.api.request(
            "POST",
            f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
            body={
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": seconds},
            },
        )
        return str(answer["status"]["token"])

    def write_kubeconfig(self, name: str, token: str, *, namespace: str = "default") -> Path:
        """Write a kubeconfig for the owner of ``token`` and return its path."""
        path = self.directory / "kubeconfigs" / name.replace(":", "_").replace("/", "_")
        path.touch(mode=0o600)
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [
                        {
                            "name": "test",
                            "cluster": {
                                "server": self.server,
                                "certificate-authority": str(self.ca_file),
                            },
                        }
                    ],
                    "users": [{"name": name, "user": {"token": token}}],
                    "contexts": [
                        {
                            "name": "test",
                            "context": {"cluster": "test", "user": name, "namespace": namespace},
                        }
                    ],
                    "current-context": "test",
                }
            )
        )
        return path

    @property
    def processes(self) -> tuple[Process, ...]:
        """The programs, those that depend on others first."""
        return (self.scheduler, self.controller_manager, self.apiserver, self._etcd)

    # -- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start everything and wait until pods can be created and scheduled.

        Raises:
            ProcessError: a program did not become ready; with the end of its log.
        """
        self._etcd.start()
        self._etcd.wait_ready(self._etcd_is_ready, deadline=_START_DEADLINE)
        self.start_apiserver()
        self.write_kubeconfig(ADMIN, self.token)
        self.controller_manager.start()
        self.scheduler.start()
        self.controller_manager.wait_ready(self._controllers_work, deadline=_START_DEADLINE)

    def stop(self) -> None:
        """Stop everything, the API server's clients first."""
        if self._api is not None:
            self._api.close()
            self._api = None
        for process in self.processes:
            process.stop(grace=2.0)

    def start_apiserver(self) -> None:
        """Start the API server and wait until it answers."""
        tokens = self.directory / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text(
            "".join(
                f'{token},{name},{name},"{",".join(self._groups[name])}"\n'
                for name, token in self._tokens.items()
            )
        )
        self.apiserver.start()
        self.apiserver.wait_ready(self._apiserver_is_ready, deadline=_START_DEADLINE)

    def stop_apiserver(self) -> None:
        """Take the API server away; everything else keeps running."""
        self.apiserver.stop(grace=0.5)  # open watches would keep it for a minute

    def _etcd_is_ready(self) -> bool:
        try:
            answer = httpx.get(
                f"http://127.0.0.1:{self._etcd_port}/health", timeout=2.0, trust_env=False
            )
        except httpx.HTTPError:
            return False
        return answer.is_success

    def _apiserver_is_ready(self) -> bool:
        if not self.ca_file.exists():
            return False
        try:
            self.api.text("/readyz")
        except (httpx.HTTPError, ApiError, ssl.SSLError):  # it may still write its certificate
            return False
        return True

    def _controllers_work(self) -> bool:
        """Without the CA and the account that controllers put into a namespace, no pod starts."""
        return all(
            self.api.exists("v1", kind, name=name, namespace="default")
            for kind, name in (("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default"))
        )

    # -- command lines ------------------------------------------------------------------------

    def _process(self, name: str, arguments: Sequence[str]) -> Process:
        return Process(
            name=name,
            command=[self._programs[name], *arguments, *self._further.get(name, ())],
            log=self._logs / f"{name}.log",
        )

    def _etcd_arguments(self) -> list[str]:
        client, peer = (
            f"http://127.0.0.1:{port}" for port in (self._etcd_port, self._etcd_peer_port)
        )
        return [
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]

    def _apiserver_arguments(self) -> list[str]:
        return [
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--cert-dir={self._certificates}",
            # The key that the server makes for its certificate signs the tokens as well.
            f"--service-account-key-file={self.tls_key_file}",
            f"--service-account-signing-key-file={self.tls_key_file}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--token-auth-file={self.directory / 'tokens.csv'}",
            "--authorization-mode=RBAC,Node",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--endpoint-reconciler-type=none",
            "--kubelet-preferred-address-types=InternalIP",
        ]

    def _controller_manager_arguments(self) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig}",
            f"--service-account-private-key-file={self.tls_key_file}",
            f"--root-ca-file={self.ca_file}",
            "--use-service-account-credentials",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={free_port()}",
            "--controllers=*,-nodeipam,-node-lifecycle-controller",
        ]

    def _scheduler_arguments(self) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={free_port()}",
        ]
