"""What the channels have in common that write into a field of the user's: JSON patches.

Such a field cannot be owned beside its user: a list of arguments is one value to the API server. So
it is replaced under a `test` of what it was read as, and whoever writes in between wins. The
annotations beside it are a claim, which says who set what the field says, as long as it says it.
"""

import json
from abc import abstractmethod
from collections.abc import Mapping

from specpilot.domain.ports import FleetError
from specpilot.domain.settings import UNRECOGNISED, Declared, JsonValue, canonical_json
from specpilot.fleets.kubernetes.changes import Changes
from specpilot.fleets.kubernetes.channels.base import Channel, Letters, View
from specpilot.fleets.kubernetes.objects import our_annotations, owners
from specpilot.fleets.kubernetes.replicas import pick_container
from specpilot.fleets.kubernetes.request import Object, Request
from specpilot.fleets.kubernetes.wiring import (
    ANNOTATIONS,
    CHANGE_ANNOTATION,
    KEPT_ANNOTATION,
    PREVIOUS_ANNOTATION,
    annotations,
    claims_of,
    named,
    previous,
)
from specpilot.fleets.kubernetes.workloads.base import Family, Path, Workload, dig

NO_VERSION = (
    "the engine's version is not known, and which arguments it takes depends on it; use an image "
    "whose tag says it, or wait until a replica answers GET /version"
)


class PatchChannel(Channel):
    """Values of the root by their path, and annotations beside them.

    Attributes:
        reaches_pods: Whether the annotations are copied to the pods; where they are not, what was
            set before is noted too, so that the pods of both arms are recognised.
        keeps_values: Whether the values that are replaced are noted, to the letter. Needed where no
            revision of the owner's can be read that still has them.
    """

    needs_version = True
    reaches_pods = True
    keeps_values = False

    @abstractmethod
    def home(self, view: View) -> Path:
        """Path of the map that holds the annotations."""

    @abstractmethod
    def values(self, view: View) -> dict[Path, JsonValue]:
        """The values as they stand; None for one that does not."""

    @abstractmethod
    def config_of(self, view: View, values: Mapping[Path, JsonValue]) -> str | None:
        """The speculative config that values say, "" for off; None where they are not understood.

        Args:
            view: The workload.
            values: In the shape of `values`.
        """

    @abstractmethod
    def values_for(self, view: View, config: str) -> dict[Path, JsonValue]:
        """The values as they stand, saying another config.

        Raises:
            ValueError: They are not understood, or this engine cannot be told that.
        """

    def fields(self, workload: Workload, root: Object) -> tuple[Path, ...]:
        """Everything that it writes into an object, as far as the object has a place for it."""
        containers = [
            container
            for path in workload.templates_in(root)[:1]
            for container in dig(root, (*path, "spec", "containers")) or ()
        ]
        engine = pick_container(containers, workload.container) or {}
        name = str(engine.get("name") or workload.container)
        view = View(workload=workload, root=root, container=name)
        try:
            values = self.values(view)
        except LookupError:
            return ()
        return (*values, *((*self.home(view), key) for key in ANNOTATIONS))

    def rest(self, view: View, values: Mapping[Path, JsonValue]) -> JsonValue:
        """Values without the setting: what is the user's. Needed where values are kept.

        Raises:
            ValueError: They are not understood.
        """
        raise NotImplementedError

    def earlier(self, view: View, family: Family, wanted: Declared) -> Letters | None:
        """Letters of a revision that still exists and declares it."""
        return None

    def present(self, view: View) -> Letters:
        """See `Channel`."""
        noted = {"annotations": dig(view.root, self.home(view)) or {}}
        return Letters(annotations=our_annotations(noted), values=self.values(view))

    def meaning(self, view: View, letters: Letters) -> Declared:
        """See `Channel`."""
        config = self.config_of(view, letters.values)
        if config is None:
            return Declared(setting=UNRECOGNISED)
        return named(config, claims=claims_of(letters.annotations)[:1])

    def declared(self, view: View) -> Declared:
        """See `Channel`."""
        return self.meaning(view, self.present(view))

    def claims(self, view: View) -> tuple[Declared, ...]:
        """See `Channel`."""
        return () if self.reaches_pods else claims_of(self.present(view).annotations)

    def letters(self, view: View, family: Family, wanted: Declared) -> Letters:
        """See `Channel`."""
        found = self.earlier(view, family, wanted)
        if found is not None:
            return found
        noted = annotations(wanted) if wanted.change_id else {}
        if noted and not self.reaches_pods:
            noted[PREVIOUS_ANNOTATION] = previous(self.declared(view))
        if noted and self.keeps_values:
            noted[KEPT_ANNOTATION] = _as_text(self.values(view))
        kept = self._kept(view, wanted) if self.keeps_values else None
        values = kept or self._saying(view, wanted.config)
        return Letters(annotations=noted, values=self.completed(values, wanted))

    def _saying(self, view: View, config: str) -> dict[Path, JsonValue]:
        if config and self.needs_version and not view.version:
            raise FleetError(f"{view.words}: the engine's version is not known just now")
        try:
            return self.values_for(view, config)
        except ValueError as error:
            raise FleetError(f"{view.words}: {error}") from error

    def completed(
        self,
        values: dict[Path, JsonValue],
        wanted: Declared,
    ) -> dict[Path, JsonValue]:
        """Values with what must change along with them."""
        return values

    def _kept(self, view: View, wanted: Declared) -> dict[Path, JsonValue] | None:
        """The values from before our last write, when they say it and the user's part is still so.

        What the user has changed in the same list since is theirs and stays.
        """
        present = self.present(view)
        kept = _from_text(present.annotations.get(KEPT_ANNOTATION, ""))
        if kept is None or kept.keys() != present.values.keys():
            return None
        if self.config_of(view, kept) != wanted.config:
            return None
        try:
            same = self.rest(view, kept) == self.rest(view, present.values)
        except ValueError:
            return None
        return kept if same else None

    def tidied(self, view: View, letters: Letters) -> Letters:
        """See `Channel`: somebody has written another value under our annotations."""
        noted = letters.annotations.get(CHANGE_ANNOTATION, "")
        if self.meaning(view, letters).change_id == noted:
            return letters
        return Letters(values=letters.values)

    def released(self, view: View) -> Letters:
        """See `Channel`."""
        return Letters(values=self.values(view))

    def taken_over(self, view: View, *, manager: str) -> bool:
        """See `Channel`."""
        present = self.present(view)
        noted = present.annotations.get(CHANGE_ANNOTATION)
        return bool(noted) and self.meaning(view, present).change_id != noted

    def request(
        self, view: View, letters: Letters, *, hold: JsonValue, manager: str
    ) -> Request | None:
        """Write what differs, if what it differs from is still there."""
        root = view.root
        changes = Changes(root)
        for path, value in letters.values.items():
            changes.to(path, value)
        home = self.home(view)
        emptied = () if letters.annotations else _ours_alone(root, home)
        if emptied:
            changes.to(emptied, None)
        else:
            for key in ANNOTATIONS:
                changes.to((*home, key), letters.annotations.get(key), ours=True)
        at = view.workload.hold_field
        if at and (hold is not None or manager in owners(root, *at)):
            # Its object changes all the time while it rolls, and a pause that waits for a quiet
            # moment comes too late.
            changes.to(at, hold, ours=True)
        return changes.request(view.workload.resource, manager=manager)


def as_argument(word: str) -> str:
    """A word as an argument in a manifest: the kubelet takes $(NAME) for a variable, $$ for $."""
    return word.replace("$", "$$")


def _ours_alone(root: Object, home: Path) -> Path:
    """What there would be nothing left of without our annotations; () when others are there."""
    found = dig(root, home)
    if not found or set(found) - set(ANNOTATIONS):
        return ()
    while isinstance(parent := dig(root, home[:-1]), Mapping) and len(parent) == 1:
        home = home[:-1]
    return home


def _as_text(values: Mapping[Path, JsonValue]) -> str:
    return canonical_json([[list(path), value] for path, value in values.items()])


def _from_text(text: str) -> dict[Path, JsonValue] | None:
    """What `_as_text` wrote; None when there is nothing, or a person has written it."""
    try:
        return {tuple(path): value for path, value in json.loads(text)}
    except (ValueError, TypeError):
        return None
