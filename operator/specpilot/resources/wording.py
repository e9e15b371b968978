"""pydantic's errors in the words of the file's author: field path, value, and what to write."""

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

_TYPES = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list (items begin with a dash)",
    "dict_type": "a mapping (key: value)",
    "model_type": "a mapping (key: value)",
    "finite_number": "a finite number",
}
_SHOWN = 60


def explain(
    error: ValidationError, *, model: type[BaseModel], root: str
) -> Iterator[tuple[str, str]]:
    """Yield (field path, message) for everything that is wrong.

    Args:
        error: What pydantic found.
        model: The model it was checked against.
        root: Path of the model in the document.
    """
    found = error.errors(include_url=False)
    for details in found:
        if details["type"] == "too_short" and _has_faulty_items(details, found):
            continue  # pydantic counts only the items that are right
        location = [part for part in details["loc"] if not _is_branch(part)]
        yield _path(root, location), _message(details, model=model, location=location)


def _has_faulty_items(details: ErrorDetails, found: Sequence[ErrorDetails]) -> bool:
    at = details["loc"]
    return any(other["loc"][: len(at)] == at and len(other["loc"]) > len(at) for other in found)


def _is_branch(part: int | str) -> bool:
    """Whether pydantic names a branch of a union here, which the author never wrote."""
    return isinstance(part, str) and ("[" in part or part in {"constrained-str", "float", "none"})


def _path(root: str, location: Sequence[int | str]) -> str:
    path = root
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path


def _message(
    details: ErrorDetails, *, model: type[BaseModel], location: Sequence[int | str]
) -> str:
    kind, value, context = details["type"], details["input"], details.get("ctx", {})
    name = str(location[-1]) if location else ""
    if kind == "extra_forbidden":
        known = _fields(_model_at(model, location[:-1]))
        near = get_close_matches(name, known, n=1, cutoff=0.5)
        return (
            f"unknown field; did you mean {near[0]}?"
            if near
            else (f"unknown field; use one of {', '.join(sorted(known))}")
        )
    if kind == "missing":
        return "it is missing; add it"
    if kind == "enum":
        return f"{_shown(value)} is not allowed; write {_choices(context.get('expected', ''))}"
    if kind == "value_error":
        message = str(context.get("error", details["msg"]))
        return (
            message if isinstance(value, Mapping | list | tuple) else f"{_shown(value)}: {message}"
        )
    if kind in _TYPES:
        hint = ""
        if isinstance(value, bool) and kind == "string_type":
            hint = ' (YAML reads a bare on, off, yes or no as true or false: write "off" in quotes)'
        if isinstance(value, str) and kind in {"int_type", "float_type", "bool_type"}:
            hint = " without quotes"
        return f"{_shown(value)} is not {_TYPES[kind]}; write {_TYPES[kind]}{hint}"
    return f"{_shown(value)}: {_limit(kind, context) or details['msg']}"


def _limit(kind: str, context: Mapping[str, Any]) -> str:
    match kind:
        case "greater_than_equal":
            return f"it must be at least {context['ge']}"
        case "less_than_equal":
            return f"it must be at most {context['le']}"
        case "string_too_long":
            return f"at most {context['max_length']} characters are allowed; shorten it"
        case "string_too_short":
            return "it is empty; write something, or leave the field out"
        case "too_short":
            return f"at least {context['min_length']} is needed; add one"
        case "too_long":
            return f"at most {context['max_length']} are allowed; remove some"
        case "string_pattern_mismatch":
            return f"it must match {context['pattern']}; use lower-case letters, digits and dashes"
        case _:
            return ""


def _choices(expected: object) -> str:
    return str(expected).replace("'", "")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def _fields(model: type[BaseModel] | None) -> list[str]:
    if model is None:
        return []
    return [f.alias or name for name, f in model.model_fields.items()]


def _model_at(model: type[BaseModel], location: Sequence[int | str]) -> type[BaseModel] | None:
    """The model that describes the place of an error."""
    current: type[BaseModel] | None = model
    for part in location:
        if isinstance(part, int):
            continue
        if current is None:
            return None
        current = next(
            (
                _inner_model(field.annotation)
                for name, field in current.model_fields.items()
                if part in {field.alias, name}
            ),
            None,
        )
    return current


def _inner_model(annotation: Any) -> type[BaseModel] | None:
    """The model inside an annotation such as `tuple[Model, ...] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in get_args(annotation):
        if (found := _inner_model(argument)) is not None:
            return found
    return None
