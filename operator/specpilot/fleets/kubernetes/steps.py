"""One step towards an intent: look, decide what must be written, write it.

Each can be repeated after a crash at any line, for it starts from what is and not from what was
done. Between a look and a write anything may happen: what rests on the look fails then, and the
next step looks again.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from specpilot.domain.changes import Extent, Intent
from specpilot.domain.settings import JsonValue
from specpilot.fleets.kubernetes.api import Api, ApiError
from specpilot.fleets.kubernetes.channels import Channel, Letters, View
from specpilot.fleets.kubernetes.observing import Observer
from specpilot.fleets.kubernetes.request import JSON_PATCH, Object, Request
from specpilot.fleets.kubernetes.wiring import CHANGE_ANNOTATION
from specpilot.fleets.kubernetes.workloads.base import Family, Workload

Act: TypeAlias = Callable[[], bool]
"""Writes what is due, and says whether the setting was written."""

_log = logging.getLogger(__name__)

HOLD_WITHIN_S = 2.0
"""How long a canary's first pods are waited for in one call, so that the hold follows at once."""

_FIRST_LOOKS = 20
_LOOK_EVERY_S = (0.01, 0.05)


@dataclass(slots=True, kw_only=True)
class Step:
    """A step on one workload.

    Attributes:
        api: Where it is sent.
        observer: Reads what the channel must know.
        clock: Monotonic seconds.
        sleep: Waits some seconds.
        workload: The workload's adapter.
        channel: How settings reach it.
        container: Name of the engine's container.
        root: The object as it was last seen or written.
        look: Reads what it owns. An act rests on what the API server itself says, never on a cache:
            the state before our own last write would release the hold that it set.
    """

    api: Api
    observer: Observer
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    workload: Workload
    channel: Channel
    container: str
    root: Object
    look: Callable[[Object], Family]

    def due(self, intent: Intent) -> Act | None:
        """What brings the intent nearer, by what is seen; None for nothing. Sends nothing yet.

        Raises:
            ApiError: The API server refused or did not answer.
        """
        view = self._view()
        letters = self.channel.present(view)
        if self.channel.meaning(view, letters) != intent.declared:
            return self._turn(intent, view, letters)
        held = self.observer.held(self.workload, self.root)
        if intent.extent is Extent.CANARY:
            canaries = self._canaries(intent)
            hold = self.workload.hold(self.root, self._look, canaries=canaries)
            if hold != held:
                return lambda: self._beside(letters, hold=hold)
            return self._all_of(self.workload.wake(self.root))
        if self.channel.leftover(view, manager=self.api.field_manager):
            # Before the roll goes on: with what stays of ours their template would be a new one.
            return lambda: self._beside(self.channel.released(view), hold=None)
        tidy = self.channel.tidied(view, letters)
        if held is not None or tidy != letters:
            if not self.workload.may_release(self.root):
                return None
            return lambda: self._beside(tidy, hold=None)
        back = intent.declared == intent.previous
        needed = self.workload.unblock(self.root, self._look, back=back)
        return self._all_of(needed or self.workload.wake(self.root))

    def _turn(self, intent: Intent, view: View, letters: Letters) -> Act | None:
        """What makes the workload declare the setting."""
        channel = self.channel
        if intent.extent is Extent.CANARY:
            if _is_of(letters, intent) and self._taken_over(view):
                return None  # ours was replaced in mid-flip: a contest, which is not ours to win
            return lambda: self._begin(intent, view)
        if self._taken_over(view):
            # Somebody set another value meanwhile. Theirs stays; what is still ours goes.
            return lambda: self._beside(channel.released(view), hold=None)
        back = intent.declared == intent.previous
        hold = self.workload.hold_going_back(self.root) if back else None
        return lambda: self._write(channel.letters(view, self._look(), intent.declared), hold=hold)

    def _begin(self, intent: Intent, view: View) -> bool:
        """Bring the setting to the first replicas, and keep the roll there."""
        workload, canaries = self.workload, self._canaries(intent)
        letters = self.channel.letters(view, self._look(), intent.declared)
        at_once = workload.hold_at_once(self.root, canaries=canaries)
        written = self._write(letters, hold=at_once)
        if not written or at_once is not None or workload.unheld(self.root):
            return written
        hold = self._wait_for_hold(canaries)
        if hold != self.observer.held(workload, self.root):
            self._write(letters, hold=hold)
        return written

    def _canaries(self, intent: Intent) -> int:
        return self.workload.canaries(self.root, intent.canary_replicas)

    def _view(self) -> View:
        if not self.channel.needs_version:
            return View(workload=self.workload, root=self.root, container=self.container)
        view, _ = self.observer.read(
            self.workload, self.channel, self._look(), container=self.container
        )
        return view

    def _taken_over(self, view: View) -> bool:
        return self.channel.taken_over(view, manager=self.api.field_manager)

    def _look(self) -> Family:
        return self.look(self.root)

    def _wait_for_hold(self, canaries: int) -> JsonValue:
        """The hold once the roll has got there; None when it does not in time."""
        deadline = self.clock() + HOLD_WITHIN_S
        looks = 0
        while True:
            hold = self.workload.hold(self.root, self._look, canaries=canaries)
            if hold is not None or self.clock() >= deadline:
                return hold
            looks += 1
            self.sleep(_LOOK_EVERY_S[looks > _FIRST_LOOKS])

    def _write(self, letters: Letters, *, hold: JsonValue) -> bool:
        """Whether it has been written; not when the object has changed in between."""
        request = self.channel.request(
            self._view(), letters, hold=hold, manager=self.api.field_manager
        )
        if request is None:
            return True
        written = self._send(request)
        if written is not None:
            self.root = written
        return written is not None

    def _beside(self, letters: Letters, *, hold: JsonValue) -> bool:
        """Write what is not the setting: the hold, and what says nothing true any more."""
        self._write(letters, hold=hold)
        return False

    def _all_of(self, requests: Sequence[Request]) -> Act | None:
        """What a roll needs beside what is written for it."""

        def send() -> bool:
            for request in requests:
                self._send(request)
            return False

        return send if requests else None

    def _send(self, request: Request) -> Object | None:
        try:
            return self.api.send(request)
        except ApiError as error:
            outrun = error.test_failed and request.content_type == JSON_PATCH
            if error.conflict or error.not_found or outrun:
                _log.log(logging.WARNING if outrun else logging.INFO, "outrun: %s", error)
                return None
            raise


def _is_of(letters: Letters, intent: Intent) -> bool:
    """Whether they were written by the very change that is carried out."""
    return letters.annotations.get(CHANGE_ANNOTATION) == intent.declared.change_id
