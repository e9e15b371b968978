"""The next replacement step: tables for the cases, a state machine for all the others."""

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from specpilot.domain.changes import Extent, Intent
from specpilot.domain.settings import Declared
from specpilot.domain.targets import TargetRef
from specpilot.fleets.local.plan import Keep, Replace, SlotView, next_steps, wishes

REF = TargetRef(kind="Local", namespace="local", name="chat")
OFF = Declared()
ON = Declared(setting="on", config="{}", change_id="c1")
DEEP = Declared(setting="deep", config='{"k":8}', change_id="c2")


def intent(declared, *, extent=Extent.ALL, canary=1, previous=OFF):
    return Intent(
        target=REF, declared=declared, extent=extent, canary_replicas=canary, previous=previous
    )


def slots(*given):
    """Slots from (assigned, running, ready) or a view made from further fields."""
    views = []
    for index, (assigned, running, ready, *more) in enumerate(given):
        extra = more[0] if more else {}
        views.append(
            SlotView(index=index, assigned=assigned, running=running, ready=ready, **extra)
        )
    return views


@dataclass(frozen=True, kw_only=True)
class Case:
    reason: str
    slots: list
    intent: Intent
    want: tuple


CANARY = intent(ON, extent=Extent.CANARY)
CASES = [
    Case(
        reason="at rest and as wanted: nothing",
        slots=slots((ON, ON, True), (ON, ON, True)),
        intent=intent(ON),
        want=(),
    ),
    Case(
        reason="a canary goes to the last slot",
        slots=slots((OFF, OFF, True), (OFF, OFF, True)),
        intent=CANARY,
        want=(Replace(index=1, declared=ON),),
    ),
    Case(
        reason="a canary prefers the slot that does not serve anyway",
        slots=slots((OFF, None, False), (OFF, OFF, True)),
        intent=CANARY,
        want=(Replace(index=0, declared=ON),),
    ),
    Case(
        reason="the canary is there: the others stay",
        slots=slots((OFF, OFF, True), (ON, ON, True)),
        intent=CANARY,
        want=(),
    ),
    Case(
        reason="the canary is on its way: wait",
        slots=slots((OFF, OFF, True), (ON, ON, False)),
        intent=CANARY,
        want=(),
    ),
    Case(
        reason="promotion: one of the others, as all are ready",
        slots=slots((OFF, OFF, True), (OFF, OFF, True), (ON, ON, True)),
        intent=intent(ON),
        want=(Replace(index=1, declared=ON),),
    ),
    Case(
        reason="promotion waits for the canary to be ready",
        slots=slots((OFF, OFF, True), (OFF, OFF, True), (ON, ON, False)),
        intent=intent(ON),
        want=(),
    ),
    Case(
        reason="promotion waits while another crashes with the wanted setting",
        slots=slots((OFF, OFF, True), (OFF, OFF, True), (ON, None, False)),
        intent=intent(ON),
        want=(),
    ),
    Case(
        reason="a slot that crashes with the old setting gets the new one at once",
        slots=slots((OFF, None, False), (OFF, OFF, True), (ON, ON, True)),
        intent=intent(ON),
        want=(Replace(index=0, declared=ON),),
    ),
    Case(
        reason="going back replaces a canary in a crash loop at once",
        slots=slots((OFF, OFF, True), (ON, None, False)),
        intent=intent(OFF),
        want=(Replace(index=1, declared=OFF),),
    ),
    Case(
        reason="going back replaces a canary that is still starting at once",
        slots=slots((OFF, OFF, True), (ON, ON, False)),
        intent=intent(OFF),
        want=(Replace(index=1, declared=OFF),),
    ),
    Case(
        reason="going back keeps a process that is only being drained",
        slots=slots((ON, OFF, False), (ON, ON, True)),
        intent=intent(OFF),
        want=(Keep(index=0),),
    ),
    Case(
        reason="with nothing serving there is nothing to lose: all at once",
        slots=slots((OFF, None, False), (OFF, None, False)),
        intent=intent(ON),
        want=(Replace(index=0, declared=ON), Replace(index=1, declared=ON)),
    ),
    Case(
        reason="too many canaries: one goes back",
        slots=slots((OFF, OFF, True), (ON, ON, True), (ON, ON, True)),
        intent=CANARY,
        want=(Replace(index=1, declared=OFF),),
    ),
    Case(
        reason="more canaries than slots are all slots",
        slots=slots((OFF, OFF, True)),
        intent=intent(ON, extent=Extent.CANARY, canary=3),
        want=(Replace(index=0, declared=ON),),
    ),
    Case(
        reason="the same config of another change is another declaration: it is replaced",
        slots=slots((ON, ON, True)),
        intent=intent(Declared(setting="on", config="{}", change_id="c9")),
        want=(Replace(index=0, declared=Declared(setting="on", config="{}", change_id="c9")),),
    ),
    Case(
        reason="surge: the new process is coming up beside: wait",
        slots=slots((OFF, OFF, True), (ON, OFF, True, {"beside": ON})),
        intent=intent(ON),
        want=(),
    ),
    Case(
        reason="surge: between two attempts beside, nothing else begins",
        slots=slots((OFF, OFF, True), (ON, OFF, True)),
        intent=intent(ON),
        want=(),
    ),
    Case(
        reason="surge: going back gives the process beside up",
        slots=slots((OFF, OFF, True), (ON, OFF, True, {"beside": ON})),
        intent=intent(OFF),
        want=(Keep(index=1),),
    ),
    Case(
        reason="surge: a former process still holds port and memory: wait",
        slots=slots((OFF, OFF, True), (ON, ON, True, {"leaving": True})),
        intent=intent(ON),
        want=(),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.reason)
def test_next_step(case):
    assert next_steps(case.slots, wishes(case.slots, case.intent)) == case.want


class Group(RuleBasedStateMachine):
    """Slots that come up, crash and drain as the machine likes, under changing intents."""

    @initialize(count=st.integers(1, 5), surge=st.booleans())
    def begin(self, count, surge):
        self.surge = surge
        self.slots = [
            {"assigned": OFF, "process": OFF, "phase": "ready", "beside": None, "ours": False}
            for _ in range(count)
        ]
        self.intent = intent(OFF)

    def views(self):
        return [
            SlotView(
                index=index,
                assigned=s["assigned"],
                running=s["process"] if s["phase"] in ("starting", "ready", "draining") else None,
                ready=s["phase"] == "ready",
                beside=s["beside"],
            )
            for index, s in enumerate(self.slots)
        ]

    @rule(
        declared=st.sampled_from((OFF, ON, DEEP)),
        previous=st.sampled_from((OFF, ON)),
        extent=st.sampled_from(Extent),
        canary=st.integers(0, 3),
    )
    def intend(self, declared, previous, extent, canary):
        self.intent = intent(declared, extent=extent, canary=canary, previous=previous)

    @rule()
    def step(self):
        self.act()

    def act(self):
        views = self.views()
        wanted = wishes(views, self.intent)
        steps = next_steps(views, wanted)
        assert len({s.index for s in steps}) == len(steps)
        for step in steps:
            slot = self.slots[step.index]
            if isinstance(step, Keep):
                assert slot["process"] == wanted[step.index]
                slot["assigned"], slot["beside"] = slot["process"], None
                if slot["phase"] == "draining":
                    slot["phase"], slot["ours"] = "ready", False
                continue
            assert step.declared == wanted[step.index]
            slot["assigned"], slot["beside"] = step.declared, None
            if slot["phase"] == "ready" and not self.surge:
                others = [s for s in self.slots if s is not slot]
                assert all(s["phase"] == "ready" for s in others), "took one more away"
                slot["phase"], slot["ours"] = "draining", True
            elif slot["phase"] == "ready":
                slot["beside"] = step.declared
            elif slot["phase"] == "starting":
                slot["phase"] = "stopping"
            elif slot["phase"] == "waiting":
                slot["process"], slot["phase"] = step.declared, "starting"
        return bool(steps)

    def advance(self, slot):
        """The next thing that happens by itself; False when nothing does."""
        if slot["beside"] is not None:
            slot["process"], slot["beside"] = slot["beside"], None
            return True
        match slot["phase"]:
            case "draining":
                slot["phase"] = "stopping"
            case "stopping" | "waiting":
                slot["process"], slot["phase"] = slot["assigned"], "starting"
            case "starting":
                slot["phase"], slot["ours"] = "ready", False
            case _:
                if self.surge and slot["process"] != slot["assigned"]:
                    slot["beside"] = slot["assigned"]
                    return True
                return False
        return True

    @rule(data=st.data())
    def something_happens(self, data):
        self.advance(data.draw(st.sampled_from(self.slots)))

    @precondition(lambda self: any(s["phase"] != "stopping" for s in self.slots))
    @rule(data=st.data())
    def crash(self, data):
        slot = data.draw(st.sampled_from([s for s in self.slots if s["phase"] != "stopping"]))
        slot.update(phase="waiting", ours=False)
        if slot["beside"] is not None:
            slot.update(process=slot["beside"], phase="starting", beside=None)

    @rule(data=st.data())
    def crash_beside(self, data):
        data.draw(st.sampled_from(self.slots))["beside"] = None

    @invariant()
    def at_most_one_is_missing_by_our_doing(self):
        assert sum(s["ours"] for s in getattr(self, "slots", ())) <= 1

    def teardown(self):
        """With no further crash it comes to rest, as wanted."""
        if not hasattr(self, "slots"):
            return
        for _ in range(20 * len(self.slots)):
            moved = [self.advance(s) for s in self.slots]
            if not self.act() and not any(moved):
                break
        else:
            raise AssertionError(f"does not come to rest: {self.slots}")
        wanted = wishes(self.views(), self.intent)
        assert [s["process"] for s in self.slots] == list(wanted)
        assert all(s["phase"] == "ready" for s in self.slots)
        if self.intent.extent is Extent.CANARY and self.intent.declared != self.intent.previous:
            canaries = sum(s["process"] == self.intent.declared for s in self.slots)
            assert canaries == min(self.intent.canary_replicas, len(self.slots))


TestGroup = Group.TestCase
TestGroup.settings = settings(max_examples=150, stateful_step_count=40)
