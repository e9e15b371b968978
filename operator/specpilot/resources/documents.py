"""YAML text -> documents, with errors a person can act on.

The same reading serves `kubectl`-less use on one machine and the objects that a cluster hands to
the operator, so that a file means the same in both.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from specpilot.resources.alert_channel import AlertChannelSpec
from specpilot.resources.base import API_VERSION, SUBDOMAIN_PATTERN, Strict
from specpilot.resources.flag_change import FlagChangeSpec
from specpilot.resources.local_fleet import LocalFleetSpec
from specpilot.resources.policy import PolicySpec
from specpilot.resources.rule_set import RuleSetSpec
from specpilot.resources.wording import explain

KINDS: Mapping[str, type[Strict]] = {
    "SpeculationPolicy": PolicySpec,
    "RuleSet": RuleSetSpec,
    "AlertChannel": AlertChannelSpec,
    "FlagChange": FlagChangeSpec,
    "LocalFleet": LocalFleetSpec,
}
"""Kinds and their specs."""

_NAME = re.compile(SUBDOMAIN_PATTERN)
_LONGEST_NAME = 253

_TOP_LEVEL = ("apiVersion", "kind", "metadata", "spec", "status")


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """Of an object's metadata, what is used here."""

    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 1
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One checked object.

    Attributes:
        kind: One of `KINDS`.
        metadata: Its identity.
        spec: Its spec, of the kind's type.
        source: The file it came from, "" for text and for objects from a cluster.
        number: Its place in the file, from 1.
        raw: The object as it was written.
    """

    kind: str
    metadata: Metadata
    spec: Strict
    source: str = ""
    number: int = 1
    raw: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind}/{self.metadata.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong: where, and what to write instead.

    Attributes:
        where: File, document number and kind/name.
        field: Path of the field, "" for the whole document.
        message: The value and the remedy, in words.
    """

    where: str
    field: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.where, self.field, self.message) if part)


class ResourceError(ValueError):
    """A text or object that cannot be used; all that is wrong with it at once."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__("\n".join(str(f) for f in faults))
        self.faults = faults


def load(text: str, *, source: str = "") -> list[Document]:
    """Read all documents of a YAML text; empty documents are left out.

    Args:
        text: YAML, with `---` between documents.
        source: Name of the file, for messages.

    Raises:
        ResourceError: Something is wrong in any of them; says all of it.
    """
    documents: list[Document] = []
    faults: list[Fault] = []
    seen: dict[tuple[str, str, str], int] = {}
    for number, content in enumerate(contents(text, source=source), start=1):
        if content is None:
            continue
        try:
            document = read(content, source=source, number=number)
        except ResourceError as error:
            faults += error.faults
            continue
        key = (document.kind, document.metadata.namespace, document.metadata.name)
        if key in seen:
            where = _where(source, number, str(document))
            message = f"document {seen[key]} has the same name; rename one"
            faults.append(Fault(where=where, field="metadata.name", message=message))
        seen[key] = number
        documents.append(document)
    if faults:
        raise ResourceError(*faults)
    return documents


def read(content: object, *, source: str = "", number: int = 1) -> Document:
    """Check one object, as YAML or a cluster gives it.

    Raises:
        ResourceError: It is not a valid object of a known kind; says all that is wrong.
    """
    where = _where(source, number, "")
    if not isinstance(content, Mapping):
        raise ResourceError(
            Fault(where=where, field="", message="no object; it begins with apiVersion and kind")
        )
    kind = str(content.get("kind") or "")
    metadata = content.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    where = _where(source, number, f"{kind or 'object'}/{name or '(no name)'}")
    faults = [
        Fault(where=where, field=path, message=message)
        for path, message in _envelope_faults(content, kind=kind, metadata=metadata)
    ]
    if kind not in KINDS or content.get("apiVersion") != API_VERSION:
        raise ResourceError(*faults)
    model = KINDS[kind]
    try:
        spec = model.model_validate_json(as_json(content.get("spec", {})), strict=True)
    except ValidationError as error:
        faults += [
            Fault(where=where, field=path, message=message)
            for path, message in explain(error, model=model, root="spec")
        ]
        raise ResourceError(*faults) from None
    if faults or not isinstance(metadata, Mapping):
        raise ResourceError(*faults)
    return Document(
        kind=kind,
        metadata=_metadata(metadata),
        spec=spec,
        source=source,
        number=number,
        raw=content,
    )


def spec_of(document: Document, model: type[BaseModel]) -> Any:
    """The document's spec, which must be of that type; a caller that mixes them up is at fault."""
    if not isinstance(document.spec, model):
        raise TypeError(f"{document} is no {model.__name__}")
    return document.spec


def _envelope_faults(
    content: Mapping[str, Any], *, kind: str, metadata: object
) -> Iterator[tuple[str, str]]:
    if content.get("apiVersion") != API_VERSION:
        written = content.get("apiVersion")
        yield "apiVersion", f"{written!r} is not known; write {API_VERSION}"
    if kind not in KINDS:
        near = get_close_matches(kind, KINDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(KINDS)}"
        yield "kind", f"{kind!r} is not known; {hint}"
    for key in content:
        if key not in _TOP_LEVEL:
            near = get_close_matches(str(key), _TOP_LEVEL, n=1)
            hint = f"did you mean {near[0]}?" if near else "it may belong under spec"
            yield str(key), f"unknown field; {hint}"
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        yield (
            "metadata.name",
            f"{name!r} is no name; write one in lower-case letters, digits and dashes, at most 253",
        )
    if isinstance(metadata, Mapping):
        yield from _metadata_faults(metadata)
    if "spec" not in content:
        yield "spec", "it is missing; add it"


def _metadata_faults(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key in ("labels", "annotations"):
        found = metadata.get(key)
        if found is not None and not _is_text_map(found):
            yield f"metadata.{key}", f"{found!r} is no mapping of texts; write name: value"
    generation = metadata.get("generation")
    if generation is not None and not isinstance(generation, int):
        yield "metadata.generation", f"{generation!r} is no number; remove it, it is counted"


def _is_text_map(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(word, str) for pair in value.items() for word in pair
    )


def _metadata(content: Mapping[str, Any]) -> Metadata:
    return Metadata(
        name=str(content["name"]),
        namespace=str(content.get("namespace") or ""),
        uid=str(content.get("uid") or ""),
        generation=int(content.get("generation") or 1),
        labels=dict(content.get("labels") or {}),
        annotations=dict(content.get("annotations") or {}),
    )


def _where(source: str, number: int, what: str) -> str:
    return ": ".join(part for part in (source, f"document {number}", what) if part)


def as_json(spec: object) -> str:
    """Write plain data as JSON for a strict model; NaN passes, so that the model can name it."""
    return json.dumps(spec, allow_nan=True, default=str)


class _Loader(yaml.SafeLoader):
    """YAML that does not let a key be given twice, and leaves dates as text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[object] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if isinstance(key, str) and key in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"{key} is given twice; keep one", key_node.start_mark
            )
        seen.add(key if isinstance(key, str) else id(key_node))
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def contents(text: str, *, source: str) -> list[object]:
    """Read every YAML document of a text as plain data.

    Raises:
        ResourceError: It is no YAML, or a key is given twice.
    """
    found: list[object] = []
    try:
        # The loader is a SafeLoader.
        found.extend(yaml.load_all(text, Loader=_Loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        message = f"{error.problem or 'no YAML'}; mind the indentation and the quotes"
        if "is given twice" in (error.problem or ""):
            message = str(error.problem)
        where = _where(source, len(found) + 1, line)
        raise ResourceError(Fault(where=where, field="", message=message)) from None
    except yaml.YAMLError as error:
        raise ResourceError(
            Fault(where=source or "text", field="", message=f"no YAML: {error}")
        ) from None
    except RecursionError:
        message = "it is nested too deeply to be read; no resource needs more than ten levels"
        raise ResourceError(Fault(where=source or "text", field="", message=message)) from None
    return found
