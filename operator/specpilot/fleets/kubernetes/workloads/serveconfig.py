"""The one key of speculation in the YAML of Ray Serve, written without touching the rest.

A YAML library that reads and writes loses comments, order and notation, and a user who compares the
object with the file in Git would see a foreign text. So the text is only read, to find where the
key is, and changed there. What comes out is read again and compared: when anything but the key has
changed, the text is refused and not written.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from specpilot.domain.settings import JsonValue

KEY = "speculative_config"
_KWARGS = "engine_kwargs"
_DATA_PARALLEL = "data_parallel_size"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The model in a configuration.

    Attributes:
        application: Name of its application.
        path: Keys and indices that lead to the model's entry.
        config: Its speculative config; None for none.
        data_parallel: Ranks of data parallelism, 1 when not stated; None when not understood.
    """

    application: str
    path: tuple[str | int, ...]
    config: JsonValue
    data_parallel: int | None


def find(text: str) -> Found:
    """Find the one model of a configuration.

    Raises:
        ValueError: It is no such YAML, or has no model, or several.
    """
    document = _read(text)
    applications = document.get("applications") if isinstance(document, Mapping) else None
    found = [
        (str(application.get("name") or "default"), ("applications", index, *path), entry)
        for index, application in enumerate(applications or ())
        if isinstance(application, Mapping)
        for path, entry in _models(application)
    ]
    if len(found) != 1:
        raise ValueError(
            f"it has {len(found)} entries under applications[].args.llm_configs, and exactly one "
            f"can be steered; write the model as an entry there, one in each RayService"
        )
    name, path, entry = found[0]
    return Found(
        application=name, path=path, config=_config(entry), data_parallel=_data_parallel(entry)
    )


def config_in(application: object) -> JsonValue:
    """The speculative config of the one model of an application; None for none.

    Raises:
        ValueError: It has no model, or several.
    """
    found = [e for _, e in _models(application)] if isinstance(application, Mapping) else []
    if len(found) != 1:
        raise ValueError(f"{len(found)} models are deployed")
    return _config(found[0])


def write(text: str, config: JsonValue) -> str:
    """The text with another speculative config; None takes it out.

    Raises:
        ValueError: See `find`, or it is written in a way that cannot be changed in place.
    """
    found = find(text)
    if found.config == config:
        return text
    document = yaml.compose(text, Loader=yaml.SafeLoader)
    assert document is not None  # there is a model in it
    node = _node(document, found.path)
    changed = _change(text, node, config)
    if _plain(_read(changed)) != _wanted(_plain(_read(text)), found.path, config):
        raise ValueError(
            f"it is written in a way in which {KEY} cannot be changed in place (anchors, tags, "
            f"unusual indentation); write the model's entry plainly"
        )
    return changed


def _read(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"it is not readable YAML: {error}") from error


def _plain(document: Any) -> Any:
    """The document with each part standing for itself: an anchor's copies become apart."""
    return json.loads(json.dumps(document, default=str))


def _models(
    application: Mapping[str, Any],
) -> list[tuple[tuple[str | int, ...], Mapping[str, Any]]]:
    args = application.get("args")
    entries = args.get("llm_configs") if isinstance(args, Mapping) else None
    return [
        (("args", "llm_configs", index), entry)
        for index, entry in enumerate(entries if isinstance(entries, list) else ())
        if isinstance(entry, Mapping)
    ]


def _config(entry: Mapping[str, Any]) -> JsonValue:
    kwargs = entry.get(_KWARGS)
    config: JsonValue = kwargs.get(KEY) if isinstance(kwargs, Mapping) else None
    return config or None


def _data_parallel(entry: Mapping[str, Any]) -> int | None:
    kwargs = entry.get(_KWARGS)
    ranks = kwargs.get(_DATA_PARALLEL) if isinstance(kwargs, Mapping) else None
    if ranks is None:
        return 1
    return ranks if isinstance(ranks, int) and not isinstance(ranks, bool) else None


def _wanted(document: Any, path: tuple[str | int, ...], config: JsonValue) -> Any:
    """What the changed text must read as."""
    entry = document
    for step in path:
        entry = entry[step]
    kwargs = entry.get(_KWARGS) or {}
    if config is None:
        kwargs.pop(KEY, None)
    else:
        kwargs[KEY] = config
    entry[_KWARGS] = kwargs
    return document


def _node(node: yaml.Node, path: tuple[str | int, ...]) -> yaml.MappingNode:
    for step in path:
        if isinstance(step, int):
            node = node.value[step]
        else:
            node = next(value for key, value in node.value if key.value == step)
    assert isinstance(node, yaml.MappingNode)
    return node


def _entry(node: yaml.MappingNode, name: str) -> tuple[yaml.Node, yaml.Node] | None:
    return next(((key, value) for key, value in node.value if key.value == name), None)


def _change(text: str, model: yaml.MappingNode, config: JsonValue) -> str:
    written = json.dumps(config)
    kwargs = _entry(model, _KWARGS)
    if kwargs is None:
        return _insert(text, model, f"{_KWARGS}: {{{KEY}: {written}}}")
    key, value = kwargs
    if not isinstance(value, yaml.MappingNode) or not value.value:
        inside = "{}" if config is None else f"{{{KEY}: {written}}}"
        return _replace(text, key, value, inside)
    present = _entry(value, KEY)
    if present is None:
        return _insert(text, value, f"{KEY}: {written}")
    if config is not None:
        return _replace(text, *present, written)
    if len(value.value) == 1:
        return _replace(text, key, value, "{}")
    return _remove(text, value, present)


def _insert(text: str, node: yaml.MappingNode, entry: str) -> str:
    """Write an entry at the beginning of a mapping."""
    start = node.start_mark.index
    if node.flow_style:
        return text[: start + 1] + entry + (", " if node.value else "") + text[start + 1 :]
    return text[:start] + entry + "\n" + " " * node.start_mark.column + text[start:]


def _replace(text: str, key: yaml.Node, value: yaml.Node, written: str) -> str:
    """Write another value after a key."""
    colon = text.index(":", key.end_mark.index)
    return text[: colon + 1] + " " + written + text[max(_end(value), colon + 1) :]


def _remove(text: str, node: yaml.MappingNode, entry: tuple[yaml.Node, yaml.Node]) -> str:
    """Take an entry out of a mapping that has others."""
    start, end = entry[0].start_mark.index, _end(entry[1])
    index = node.value.index(entry)
    if node.flow_style:
        if index + 1 < len(node.value):
            return text[:start] + text[node.value[index + 1][0].start_mark.index :]
        return text[: _end(node.value[index - 1][1])] + text[end:]
    if index + 1 < len(node.value):
        line_end = text.find("\n", end)
        following = text[line_end + 1 :]
        column = entry[0].start_mark.column
        # The first key of a list's item stands behind its dash: what follows moves up there.
        first_on_line = text[:start].rsplit("\n", 1)[-1].strip() == ""
        if first_on_line:
            return text[: start - column] + following
        return text[:start] + following[column:]
    line_start = text.rfind("\n", 0, start)
    line_end = text.find("\n", end)
    return text[:line_start] + (text[line_end:] if line_end >= 0 else "")


def _end(node: yaml.Node) -> int:
    """Where a value ends; a block's own mark is at what comes after it."""
    if isinstance(node, yaml.MappingNode) and not node.flow_style and node.value:
        return _end(node.value[-1][1])
    if isinstance(node, yaml.SequenceNode) and not node.flow_style and node.value:
        return _end(node.value[-1])
    return int(node.end_mark.index)
