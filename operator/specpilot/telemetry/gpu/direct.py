"""GPU signals straight from the exporters, for fleets without Prometheus and for one machine.

An exporter knows nothing of engines, only of devices and, in a cluster, of the pods that hold them.
Its page is therefore fetched once a round, whatever the number of replicas, and the numbers go to
the replicas that the devices belong to: by namespace and pod, or by the devices that the local
fleet started a process with.
"""

import logging
import ssl
from collections.abc import Callable, Collection, Mapping, Sequence

from specpilot.domain.ports import Ask, Clock
from specpilot.domain.readings import UnknownReason
from specpilot.domain.targets import Replica
from specpilot.telemetry.background import Background
from specpilot.telemetry.fetch import Fetched, Fetcher, address, page_url
from specpilot.telemetry.gpu.combine import PodDevices, by_pod, of_devices, unseen
from specpilot.telemetry.gpu.page import parse
from specpilot.telemetry.gpu.rings import KEEP_S, STALE_FLOOR_S, DeviceRings
from specpilot.telemetry.gpu.samples import Sample, understood
from specpilot.telemetry.windows import Arm, Fault

log = logging.getLogger(__name__)

SOURCE = "GPU exporter"


class ExporterTelemetry(Background):
    """Samples the pages of GPU exporters and attributes devices to the tracked replicas.

    Args:
        urls: The exporters' pages; an address without a path means `/metrics`.
        clock: Dates the samples.
        interval_s: Seconds between rounds. Exporters themselves measure every 1 to 30 s.
        timeout_s: Longest time for one page.
        keep_s: How far back windows can reach.
        concurrency: Pages at a time.
        max_bytes: Largest page; a bigger one is refused.
        stale_floor_s: Samples younger than this are never stale.
        verify: For exporters with HTTPS: False, or a context with their CA.
        devices: On one machine, the devices of a replica that no exporter names a pod for, as its
            process got them: indices or UUIDs, as in CUDA_VISIBLE_DEVICES. Indices are the
            exporter's own, which count in order of the PCI bus: have the process started with
            CUDA_DEVICE_ORDER=PCI_BUS_ID where a machine holds different models. All `urls` must
            then be of this machine.

    Raises:
        ValueError: An address is no URL, or a duration is not above 0.
    """

    def __init__(
        self,
        urls: Collection[str],
        *,
        clock: Clock,
        interval_s: float = 15.0,
        timeout_s: float = 10.0,
        keep_s: float = KEEP_S,
        concurrency: int = 8,
        max_bytes: int = 16 << 20,
        stale_floor_s: float = STALE_FLOOR_S,
        verify: bool | ssl.SSLContext = True,
        devices: Callable[[Replica], Collection[str]] | None = None,
    ) -> None:
        if interval_s <= 0 or timeout_s <= 0:
            raise ValueError(
                f"GPU exporter interval {interval_s} s and timeout {timeout_s} s: both must be "
                "above 0"
            )
        super().__init__(name="gpu exporters", interval_s=interval_s, patience_s=timeout_s)
        self._urls = tuple(dict.fromkeys(page_url(url) for url in urls))
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._devices = devices
        self._fetcher = Fetcher(
            clock=clock,
            timeout_s=timeout_s,
            concurrency=concurrency,
            max_bytes=max_bytes,
            verify=ssl.create_default_context() if verify is True else verify,
        )
        self._rings = DeviceRings(
            clock=clock,
            source=SOURCE,
            interval_s=interval_s,
            keep_s=keep_s,
            stale_floor_s=stale_floor_s,
        )

    def track(self, replicas: Sequence[Replica]) -> None:
        """Replace the list of replicas whose devices are of interest."""
        self._rings.track(replicas)

    @property
    def lag_s(self) -> float:
        """Seconds after a moment in which its numbers come in."""
        return self._interval_s

    # --- questions

    def windows(self, asks: Sequence[Ask], *, deadline_s: float) -> Mapping[str, Arm]:  # noqa: ARG002 - memory answers at once
        """Answer from the samples in memory."""
        return self._rings.arms(asks)

    def latest(self, replica: Replica) -> PodDevices | None:
        """What the newest round said of a replica's devices, with what its numbers cover."""
        return self._rings.latest(replica.key)

    # --- sampling

    def sample(self) -> None:
        """Fetch every page once, now. Must not be called from a running event loop."""
        stop = self._stop
        pages = self._fetcher.all(self._urls, stopped=stop.is_set)
        if stop.is_set():
            return  # pages are missing that nobody failed to give
        replicas = self._rings.tracked()
        errors = {address(url): page.error for url, page in pages.items() if page.error}
        for error in errors.values():
            log.debug("%s", error)
        found = self._attributed(replicas, pages)
        for key, replica in replicas.items():
            if (devices := found.get(key)) is not None:
                self._rings.see(key, devices)
            else:
                self._rings.fail([key], self._missing(key, replica, errors))

    def _missing(self, key: str, replica: Replica, errors: Mapping[str, str]) -> Fault:
        """Why a round saw no device of a replica: only what concerns it is its trouble."""
        before = self._rings.latest(key)
        words = "; ".join(
            error for where, error in errors.items() if before is None or where in before.targets
        )
        if words:
            return Fault(reason=UnknownReason.SOURCE_ERROR, words=words)
        if self._devices is None:
            return unseen()
        return _unreported(sorted(self._devices(replica)))

    def _attributed(
        self, replicas: Mapping[str, Replica], pages: Mapping[str, Fetched]
    ) -> dict[str, PodDevices]:
        """The devices of every replica that has any."""
        samples: list[Sample] = []
        times: dict[str, float] = {}
        for url, page in pages.items():
            if not page.error:
                samples += understood(parse(page.body), target=address(url))
                times[address(url)] = page.at
        pods = by_pod(samples, times=times)
        found: dict[str, PodDevices] = {}
        for key, replica in replicas.items():
            devices = pods.get((replica.namespace, replica.id))
            if devices is None and self._devices is not None:
                names = frozenset(self._devices(replica))
                mine = [sample for sample in samples if _is_one_of(sample, names)]
                devices = of_devices(mine, among=samples, times=times)
            if devices is not None:
                found[key] = devices
        return found


def _unreported(names: Sequence[str]) -> Fault:
    """None of the devices that a replica got is reported, or nobody says which it got."""
    words = (
        "nobody says which devices this replica was given: name them in CUDA_VISIBLE_DEVICES, in "
        "env or replicaEnv of its LocalFleet"
    )
    if names:
        words = (
            f"no GPU exporter reports {', '.join(names)}, which this replica was given: see that "
            "an exporter of this machine is asked, and name a MIG instance as "
            "MIG-<GPU UUID>/<instance>/0"
        )
    return Fault(reason=UnknownReason.NOT_EXPORTED, words=words)


def _is_one_of(sample: Sample, names: frozenset[str]) -> bool:
    if sample.device in names or sample.aliases & names:
        return True
    if sample.device != sample.board:
        return False  # the UUID of a GPU is not the name of all instances on it
    # The CUDA runtime takes the beginning of a UUID for the whole of it.
    return any("-" in name and sample.device.startswith(name) for name in names)
