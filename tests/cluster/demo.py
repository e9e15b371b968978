"""`python -m tests.cluster.demo`: the main job on a real control plane, with helm and kubectl.

Nothing is scripted but the traffic and the commands a user would type. Everything else is real
(API server, scheduler, controllers, Prometheus, RBAC), except the kubelet of tests/cluster, which
runs containers as local processes, and the engines, which are simulated.

Times are about fifty times shorter than in production: simulated engines start in a second.
"""

import base64
import secrets
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from specpilot.cli.demo.receiver import Receiver
from specpilot.domain.changes import ChangeKind, FlagChange, Phase
from tests.cluster.cluster import Cluster
from tests.cluster.conditions import is_rolled_out
from tests.cluster.waiting import wait_for
from tests.scenarios.installation import (
    NAMESPACE,
    RELEASE,
    ROOT,
    VALUES,
    WEBHOOK_SECRET,
    Installation,
    images,
)
from tests.scenarios.serving import CHANNEL, ENGINE, Serving, changed

SERVING = "serving"
STEP_DEADLINE = 240.0
"""Seconds for one flip; a busy machine takes several times the thirty of an idle one."""

RULES_AND_POLICY = """\
apiVersion: specpilot.io/v1alpha1
kind: RuleSet
metadata: {name: hit-rate}
spec:
  parameters: {minAcceptanceLength: 1.6, busyBatch: 7}
  rules:
    - name: off-when-drafts-stop-paying
      when: mean_acceptance_length < params.minAcceptanceLength && batch_size > params.busyBatch
      for: 2s
      setting: "off"
      minDrafts: 50
---
apiVersion: specpilot.io/v1alpha1
kind: SpeculationPolicy
metadata: {name: chat}
spec:
  target: {kind: Deployment, name: chat}
  mode: Auto
  settings:
    - name: ngram
      method: ngram
      numSpeculativeTokens: 4
      extra: {prompt_lookup_max: 4}
  rules: {ruleSet: hit-rate}
  telemetry: {source: prometheus, window: 6s}
  rollout:
    canary: {analysis: 12s, minDrafts: 20, minRequests: 4, readyWithin: 90s, giveUp: 60s}
  guardrails:
    - {signal: tpot_mean, maxIncrease: "25%"}
  probe: {every: 4s, backOff: 1.5, longest: 10s, margin: "10%"}
  limits: {cooldown: 2s, flipsPerHour: 20, flipsPerDay: 20}
  alerts:
    - {channel: oncall, events: [Flipped, RolledBack, ProbeKept, ProbeUndone, Aborted]}
"""


def say(text: str = "") -> None:
    """Print a line at once: two watches and this thread share the terminal."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def headline(text: str) -> None:
    """Print what the next part is about."""
    say(f"\n\x1b[1m# {text}\x1b[0m" if sys.stdout.isatty() else f"\n# {text}")


def shortened(text: str, *, heading: str) -> str:
    """A text without the indented block below a heading, saying how long that was."""
    kept: list[str] = []
    left_out = 0
    depth = -1
    for line in text.rstrip().splitlines():
        indent = len(line) - len(line.lstrip())
        if depth >= 0 and indent > depth:
            left_out += 1
            continue
        if depth >= 0:
            kept.append(f"{' ' * (depth + 2)}... ({left_out} lines)")
            depth = -1
        if line.strip() == heading:
            depth = indent
        kept.append(line)
    return "\n".join(kept)


@dataclass(frozen=True, kw_only=True)
class Shell:
    """Types commands as a user would, in a directory with the user's files."""

    cluster: Cluster
    directory: Path

    def type(
        self, line: str, *, environment: dict[str, str] | None = None, without: str = ""
    ) -> None:
        """Print a command, run it, print what it says.

        Args:
            line: The command.
            environment: Further variables.
            without: Heading of a long indented block that is left out.

        Raises:
            subprocess.CalledProcessError: It failed.
        """
        say(f"$ {line}")
        done = subprocess.run(
            shlex.split(line),
            cwd=self.directory,
            env={**self.cluster.environment(), "COLUMNS": "140", **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        say(shortened(done.stdout, heading=without) if without else done.stdout.rstrip())
        done.check_returncode()

    def write(self, name: str, text: str, *, show: bool = False) -> None:
        """Write one of the user's files."""
        (self.directory / name).write_text(text, encoding="utf-8")
        if show:
            say(f"$ cat {name}")
            say(text.rstrip())

    @contextmanager
    def watch(self, line: str) -> Iterator[None]:
        """Run a `kubectl get -w` meanwhile; its lines appear as they come."""
        say(f"$ {line} &")
        watching = subprocess.Popen(
            shlex.split(line),
            env=self.cluster.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert watching.stdout is not None
        lines = watching.stdout

        def show() -> None:
            for each in lines:
                say(f"  {each.rstrip()}")

        reader = threading.Thread(target=show, name="watch")
        reader.start()
        try:
            yield
        finally:
            watching.terminate()
            watching.wait()
            reader.join()
            lines.close()


@dataclass(frozen=True, kw_only=True)
class Story:
    """The flips that are promised, each waited for."""

    serving: Serving

    def until(
        self, what: str, *, wanted: str, kind: ChangeKind, after: int, asked: str = ""
    ) -> int:
        """Wait for a change that succeeds; return how many there are then.

        Changes that end otherwise are allowed: a probe may lose to noise and is repeated.

        Raises:
            AssertionError: It did not happen.
        """

        def there() -> int:
            found = self.serving.installation.changes(self.serving.namespace)
            for number, change in enumerate(found[after:], start=after + 1):
                if self._is(change, wanted=wanted, kind=kind, asked=asked):
                    return number
            return 0

        return wait_for(
            there,
            deadline=STEP_DEADLINE,
            every=0.5,
            describe=lambda: f"{what}\n{self.serving.describe()}",
        )

    @staticmethod
    def _is(change: FlagChange, *, wanted: str, kind: ChangeKind, asked: str) -> bool:
        return (
            change.phase is Phase.SUCCEEDED
            and change.wanted.setting == wanted
            and change.kind is kind
            and change.rule.rule == asked
        )


def install(shell: Shell) -> Installation:
    """Install the chart as its README says, at the pace of a demo."""
    values = {**VALUES, "prometheus.url": shell.cluster.prometheus.url}
    options = " ".join(f"--set {shlex.quote(f'{key}={value}')}" for key, value in values.items())
    shell.type(
        f"helm install {RELEASE} {ROOT / 'charts' / 'specpilot'} --namespace {NAMESPACE} "
        f"--create-namespace {options} --wait --timeout 4m"
    )
    installation = Installation(cluster=shell.cluster)
    wait_for(installation.ready, deadline=120, describe=installation.describe)
    return installation


def story(shell: Shell, receiver: Receiver, *, key: str) -> None:
    """Tell it from beginning to end.

    Raises:
        AssertionError: Something that was promised did not happen.
    """
    headline("Specpilot is installed")
    installation = install(shell)

    headline("A model is served: a Deployment with the one-time wiring. Speculation is off")
    shell.type(f"kubectl create namespace {SERVING}")
    shell.write("chat.yaml", changed(ENGINE, "metadata", "namespace", to=SERVING))
    shell.type("kubectl apply -f chat.yaml")
    shell.type(f"kubectl -n {SERVING} rollout status deployment/chat --timeout=3m")

    headline("Rules, a policy and a webhook for alerts")
    shell.write("policy.yaml", RULES_AND_POLICY, show=True)
    shell.write("oncall.yaml", CHANNEL.format(url=receiver.url, secret=WEBHOOK_SECRET, key=key))
    shell.type(f"kubectl -n {SERVING} apply -f policy.yaml -f oncall.yaml")

    serving = Serving(cluster=shell.cluster, installation=installation, namespace=SERVING)
    told = Story(serving=serving)
    with ExitStack() as watching:
        for kind in ("specpol", "flagchanges"):
            line = f"kubectl -n {SERVING} get {kind} --show-kind -w"
            watching.enter_context(shell.watch(line))
        headline("Quiet traffic, good drafts: a probe tries n-gram on one pod, and it pays")
        with serving.load(rate=2.5, accept=0.85):
            seen = told.until(
                "a probe switched speculation on",
                wanted="ngram", kind=ChangeKind.PROBE, after=0,
            )  # fmt: skip
        headline("Four times the traffic, and drafts are rejected: the rule says off")
        with serving.load(rate=10, accept=0.1):
            seen = told.until(
                "the rule off-when-drafts-stop-paying switched speculation off",
                wanted="off", kind=ChangeKind.RULE, after=seen,
                asked="off-when-drafts-stop-paying",
            )  # fmt: skip
        headline("Quiet again, with good drafts: off is not for ever, a probe brings it back")
        with serving.load(rate=2.5, accept=0.85):
            told.until(
                "a probe switched speculation on again",
                wanted="ngram", kind=ChangeKind.PROBE, after=seen,
            )  # fmt: skip
    conclusion(shell, serving, receiver)


def conclusion(shell: Shell, serving: Serving, receiver: Receiver) -> None:
    """Show what is on record, and check it.

    Raises:
        AssertionError: The record is not what it should be.
    """
    wait_for(
        lambda: is_rolled_out(serving.deployment()) and serving.status().get("active") == "ngram",
        describe=serving.describe,
    )
    headline("What anybody can see who has kubectl")
    shell.type(f"kubectl -n {SERVING} get specpol,flagchanges,rulesets,alertchannels")
    shell.type(f"kubectl -n {SERVING} describe specpol chat", without="Readings:")
    headline("The audit log (this cluster has no `kubectl exec`: the volume is read beside it)")
    database = {"SPECPILOT_DATABASE_URL": serving.installation.database}
    shell.type("specpilot audit list", environment=database)
    shell.type("specpilot audit verify", environment=database)
    ended = [c for c in serving.installation.changes(SERVING) if c.phase.ended]
    wait_for(
        lambda: (
            sum(a["event"] == "Flipped" for a in receiver.alerts())
            == sum(c.phase is Phase.SUCCEEDED for c in ended)
        ),
        describe=lambda: f"an alert for each flip; got {receiver.alerts()}",
    )
    headline("Alerts that the webhook received, each signed")
    for alert in receiver.alerts():
        say(f"  {alert['event']:12} {alert['from']} -> {alert['to']}: {alert['message']}")
    assert receiver.refused == 0, f"{receiver.refused} alerts had no valid signature"


def main() -> int:
    """Run the demo; 0 when everything that was promised happened."""
    began = time.monotonic()
    key = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
    with tempfile.TemporaryDirectory(prefix="specpilot-demo-") as name:
        directory = Path(name)
        files = directory / "files"
        files.mkdir()
        say("starting etcd, the API server, controllers, scheduler, kubelet and Prometheus ...")
        with (
            Cluster(directory=directory / "cluster") as cluster,
            Receiver(secret=key) as receiver,
        ):
            images(cluster)
            try:
                story(Shell(cluster=cluster, directory=files), receiver, key=key)
            except (AssertionError, subprocess.CalledProcessError) as error:
                say(f"\ndid not happen: {error}")
                return 1
    say(f"\nEverything that was promised happened, in {time.monotonic() - began:.0f} s.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
