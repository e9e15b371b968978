"""The CRDs' schemas and the models agree: a file means the same with and without a cluster."""

import functools
import types
from collections.abc import Iterator, Mapping
from datetime import timedelta
from enum import Enum
from typing import Annotated, Any, Union, get_args, get_origin

import annotated_types
import pytest
import yaml
from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from specpilot.engines.capabilities import METHOD_NEEDS, Need
from specpilot.resources import KINDS, FlagChangeStatus
from specpilot.resources.quantities import parse_duration, parse_percent
from tests.unit.resources.examples import CRDS

Schema = Mapping[str, Any]


@functools.cache
def crds() -> Mapping[str, Schema]:
    found = [yaml.safe_load(p.read_text()) for p in sorted(CRDS.glob("*.yaml"))]
    return {c["spec"]["names"]["kind"]: c for c in found}


def schema(kind: str, part: str = "spec") -> Schema:
    [version] = crds()[kind]["spec"]["versions"]
    found: Schema = version["schema"]["openAPIV3Schema"]["properties"][part]
    return found


def parts(annotation: Any) -> Iterator[Any]:
    """The members of unions and the insides of Annotated, without None."""
    if get_origin(annotation) is Annotated:
        yield from parts(get_args(annotation)[0])
    elif get_origin(annotation) in {Union, types.UnionType}:
        for member in get_args(annotation):
            yield from parts(member)
    elif annotation is not type(None):
        yield annotation


def constraints(annotation: Any, metadata: tuple[Any, ...] = ()) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in metadata:
        for name in ("ge", "le", "max_length"):
            if getattr(each, name, None) is not None:
                found[name] = getattr(each, name)
        if isinstance(each, annotated_types.Interval | FieldInfo):
            found |= constraints(None, tuple(getattr(each, "metadata", ())))
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        found |= constraints(inner, tuple(more))
    elif get_origin(annotation) in {Union, types.UnionType}:
        for member in get_args(annotation):
            found |= constraints(member)
    return found


def compare(model: type[BaseModel], found: Schema, path: str) -> Iterator[str]:
    fields = {f.alias or name: f for name, f in model.model_fields.items()}
    properties = found.get("properties", {})
    if set(fields) != set(properties):
        yield f"{path}: fields differ: {sorted(set(fields) ^ set(properties))}"
        return
    required = {name for name, f in fields.items() if f.is_required()}
    if required != set(found.get("required", ())):
        yield f"{path}: required: {sorted(required)} and {sorted(found.get('required', ()))}"
    for name, field in fields.items():
        here = properties[name]
        yield from compare_value(field.annotation, here, f"{path}.{name}", field.metadata)
        yield from compare_default(field, here, f"{path}.{name}")


def compare_value(
    annotation: Any, found: Schema, path: str, metadata: list[Any] | tuple[Any, ...] = ()
) -> Iterator[str]:
    limits = constraints(annotation, tuple(metadata))
    for inner in parts(annotation):
        origin = get_origin(inner)
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from compare(inner, found, path)
        elif isinstance(inner, type) and issubclass(inner, Enum):
            if [e.value for e in inner] != found.get("enum"):
                yield f"{path}: enum {found.get('enum')} is not {[e.value for e in inner]}"
        elif origin is tuple:
            if found.get("type") != "array":
                yield f"{path}: {found.get('type')} is no array"
                continue
            if "max_length" in limits and limits["max_length"] != found.get("maxItems"):
                yield f"{path}: at most {limits['max_length']} and {found.get('maxItems')}"
            yield from compare_value(get_args(inner)[0], found["items"], f"{path}[]")
        elif inner is str and limits.get("max_length", "none") != found.get("maxLength", "none"):
            yield f"{path}: length {limits.get('max_length')} and {found.get('maxLength')}"
        elif inner in {int, float} and found.get("type") in {"integer", "number"}:
            said = str(found.get("x-kubernetes-validations", ""))
            if limits.get("ge") != found.get("minimum") and f"self >= {limits['ge']}" not in said:
                yield f"{path}: minimum {limits.get('ge')} and {found.get('minimum')}"
            if limits.get("le") != found.get("maximum"):
                yield f"{path}: maximum {limits.get('le')} and {found.get('maximum')}"


def compare_default(field: FieldInfo, found: Schema, path: str) -> Iterator[str]:
    if "default" not in found:
        return
    default = field.get_default(call_default_factory=True)
    written: Any = found["default"]
    if isinstance(default, timedelta):
        written = parse_duration(written)
    elif isinstance(default, float) and isinstance(written, str):
        written = parse_percent(written)
    if default != written:
        yield f"{path}: default {default!r} and {written!r}"


IN_A_CLUSTER = [kind for kind in KINDS if kind != "LocalFleet"]


@pytest.mark.parametrize("kind", IN_A_CLUSTER)
def test_specs_agree(kind: str) -> None:
    assert list(compare(KINDS[kind], schema(kind), "spec")) == []


def test_the_status_of_a_change_agrees() -> None:
    assert list(compare(FlagChangeStatus, schema("FlagChange", "status"), "status")) == []


def test_every_kind_has_its_crd() -> None:
    assert set(crds()) == set(IN_A_CLUSTER)


def rules(found: Schema) -> Iterator[tuple[str, str]]:
    for rule in found.get("x-kubernetes-validations", ()):
        yield rule["rule"], rule["message"]
    for inner in (*found.get("properties", {}).values(), found.get("items")):
        if isinstance(inner, Mapping):
            yield from rules(inner)


REMEDIES = (
    "write ",
    "use ",
    "add ",
    "remove ",
    "name ",
    "give ",
    "make ",
    "set ",
    "wait ",
    "leave ",
)


@pytest.mark.parametrize("kind", IN_A_CLUSTER)
def test_every_rule_of_a_schema_names_the_remedy(kind: str) -> None:
    silent = [m for _, m in rules(schema(kind)) if not any(word in m for word in REMEDIES)]
    assert silent == []


@pytest.mark.parametrize(
    ("need", "marker"),
    [
        ([m.name for m in METHOD_NEEDS.values() if m.model is Need.REQUIRED], "|| has(self.model)"),
        ([m.name for m in METHOD_NEEDS.values() if m.model is Need.NONE], "|| !has(self.model)"),
        (
            [m.name for m in METHOD_NEEDS.values() if m.depth is Need.REQUIRED],
            "|| has(self.numSpeculativeTokens)",
        ),
    ],
    ids=["needs a model", "takes no model", "needs a depth"],
)
def test_the_schema_knows_what_methods_need(need: list[str], marker: str) -> None:
    [rule] = [r for r, _ in rules(schema("SpeculationPolicy")) if marker in r and " in [" in r]
    written = rule.split("[")[1].split("]")[0]
    assert TypeAdapter(list[str]).validate_python(
        [part.strip(" '") for part in written.split(",")]
    ) == sorted(need)
