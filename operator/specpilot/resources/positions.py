"""On which line of a YAML text a field stands, by its path (`spec.rules[1].when`)."""

from collections.abc import Iterator, Mapping

import yaml


def lines(text: str) -> list[Mapping[str, int]]:
    """Lines of every field, one mapping for each document, empty ones included.

    Returns:
        Line of the field's name, from 1, by path; "" is the document itself. Nothing of a text
        that is no YAML, whose error says its line itself.
    """
    try:
        nodes = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError):
        return []
    return [dict(_walk(node, "")) for node in nodes]


def nearest(found: Mapping[str, int], path: str) -> int | None:
    """The line of a field, or of the closest thing around it that is there."""
    while path and path not in found:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return found.get(path)


def _walk(node: yaml.Node | None, path: str) -> Iterator[tuple[str, int]]:
    if node is None:
        return  # an empty document
    if not path:
        yield "", node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = f"{path}.{key.value}" if path else str(key.value)
            yield inner, key.start_mark.line + 1
            yield from _walk(value, inner)
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            inner = f"{path}[{number}]"
            yield inner, item.start_mark.line + 1
            yield from _walk(item, inner)
