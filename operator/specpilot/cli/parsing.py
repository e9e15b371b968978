"""`specpilot parse`: the speculation that a pod, a workload or a command line really runs."""

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from specpilot.cli.engine_options import Version
from specpilot.domain.settings import JsonValue, Setting
from specpilot.engines import Parsed
from specpilot.engines.judging import Judged, judge
from specpilot.engines.provenance import Source
from specpilot.engines.reading import setting_of
from specpilot.engines.runs import run_of, runtimes
from specpilot.engines.speculators import locked, may_speculate_by_itself
from specpilot.engines.versions import VersionError, read_version
from specpilot.fleets.kubernetes.podline import PodLine, resolve
from specpilot.fleets.kubernetes.podline_channel import Advice, advice
from specpilot.fleets.kubernetes.podline_objects import (
    Documents,
    Template,
    flattened,
    templates,
)
from specpilot.fleets.kubernetes.versions import version_of_image
from specpilot.fleets.kubernetes.wiring import VARIABLE
from specpilot.resources.documents import Fault, ResourceError, contents

_ENGINE = "vllm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One engine: where it is, and what is known of it."""

    name: str
    line: PodLine
    parsed: Parsed
    judged: Judged
    version: str
    channel: Advice
    by_itself: bool | None


def parse_line(
    context: typer.Context,
    *,
    files: Annotated[
        list[Path] | None,
        typer.Option("--filename", "-f", help="Manifests, with their ConfigMaps; - is stdin."),
    ] = None,
    version: Version = "",
    container: Annotated[
        str, typer.Option("--container", "-c", help="The container, where it is not plain which.")
    ] = "",
    chosen: Annotated[
        str, typer.Option("--object", help="The object, where there are several: Deployment/chat.")
    ] = "",
    model_config: Annotated[
        Path | None,
        typer.Option("--model-config", help="config.json of the served model (speculators)."),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="The answer for machines; a list for several engines."),
    ] = False,
) -> None:
    """Say what speculation a command line really turns on, and where each part of it comes from.

    Give manifests with -f, or the command line itself after --. Without --version, the tag of
    vLLM's own image counts. Exit code 1: something could not be understood; it is said, never
    guessed.
    """
    argv = list(context.args)
    if bool(argv) == bool(files):
        raise typer.BadParameter("give manifests with -f, or a command line after --")
    checkpoint = _checkpoint(model_config)
    try:
        lines: list[tuple[str, Template | None, PodLine]] = [
            ("command line", None, PodLine(container="", argv=tuple(argv)))
        ]
        if files:
            lines = list(_lines(files, container=container, chosen=chosen))
        found = [
            _found(name, line, template=template, version=version, checkpoint=checkpoint)
            for name, template, line in lines
        ]
    except VersionError as error:
        raise typer.BadParameter(str(error), param_hint="--version") from error
    if as_json:
        answers = [answer(each) for each in found]
        print(json.dumps(answers[0] if len(answers) == 1 else answers, indent=2))
    else:
        for each in found:
            text = "\n".join(_words(each))
            print(text.encode(errors="backslashreplace").decode())  # a Secret may hold any bytes
    if any(each.parsed.problem for each in found):
        raise typer.Exit(1)


def _checkpoint(path: Path | None) -> Mapping[str, Any] | None:
    if path is None:
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise typer.BadParameter(f"{path} is no JSON: {error}") from None
    if not isinstance(content, dict):
        raise typer.BadParameter(f"{path} is no config.json: it is no object")
    return content


def _lines(
    files: list[Path], *, container: str, chosen: str
) -> Iterator[tuple[str, Template | None, PodLine]]:
    """The engines of manifests: name, pod template and line of each.

    Raises:
        ResourceError: There is none, or it is not plain which container it is.
    """
    documents: list[object] = []
    for path in files:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
        documents += contents(text, source=str(path))
    objects = flattened(documents)
    source = ", ".join(map(str, files))
    all_found = [t for obj in objects for t in templates(obj)]
    wanted = [t for t in all_found if not chosen or str(t).split(" ", 1)[0] == chosen]
    if not wanted:
        known = ", ".join(sorted({str(t) for t in all_found})) or "none"
        message = f"there is no pod template in it; there is {known}"
        raise ResourceError(Fault(where=source, field=chosen, message=message))
    seen = 0
    for template in wanted:
        namespace = str(template.metadata.get("namespace") or "")
        lookup = Documents(objects=objects, namespace=namespace)
        resolved = [
            resolve(c, pod=template.spec, metadata=template.metadata, lookup=lookup)
            for c in template.containers
        ]
        for line in _engines(resolved, container=container):
            seen += 1
            yield f"{template}, container {line.container or '(no name)'}", template, line
    if not seen:
        message = "no container of it runs vLLM as far as can be seen; name it by --container"
        raise ResourceError(Fault(where=source, field=container, message=message))


def _engines(lines: list[PodLine], *, container: str) -> list[PodLine]:
    if container:
        return [line for line in lines if line.container == container]
    if len(lines) == 1:
        return lines
    return [line for line in lines if _runs_engine(line)]


def _runs_engine(line: PodLine) -> bool:
    words = " ".join(line.argv)
    starts = _ENGINE in words or "--speculative" in words or _ENGINE in line.container
    return starts or _ENGINE in line.image.rpartition("/")[2]


def _found(
    name: str,
    line: PodLine,
    *,
    template: Template | None,
    version: str,
    checkpoint: Mapping[str, Any] | None,
) -> Found:
    known = version or version_of_image(line.image)
    read_version(known)
    parsed = line.parse(version=known, variable=VARIABLE)
    config: Mapping[str, JsonValue] | None = json.loads(parsed.config) if parsed.config else None
    by_itself = False if checkpoint is not None else None
    model = parsed.launch.model
    if checkpoint is not None:
        try:
            speculates = locked(checkpoint, config, model=model)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--model-config") from None
        by_itself, config = speculates != config, speculates
    judged = Judged()
    if not parsed.problem:
        run = run_of(
            parsed.launch, argv=line.argv, env=line.env, unknown=line.unknown, version=known
        )
        judged = judge(config, version=known, runtime=runtimes(run)[0])
    return Found(
        name=name,
        line=line,
        parsed=parsed,
        judged=judged,
        version=known,
        channel=advice(
            parsed, line, owner=None if template is None else template.owner, version=known
        ),
        by_itself=by_itself,
    )


def _place(source: Source, line: PodLine) -> str:
    """Where a value stands, in words."""
    words = f"{source.flag}, in {line.place(source.at)}" if line.place(source.at) else source.flag
    if source.where:
        origin = line.file_origins.get(source.where)
        words += f", file {source.where}" + (f" from {origin}" if origin else "")
    for name in source.variables:
        variable = line.variables.get(name)
        words += f", ${name}" + (f" from {variable.origin}" if variable is not None else "")
    return words


def _notes(found: Found) -> list[str]:
    notes = [*found.judged.notes]
    model = found.parsed.launch.model
    if found.by_itself is None and may_speculate_by_itself(model):
        notes.append(
            f"by its name, {model} is a checkpoint in the speculators format, which turns "
            "speculation on by itself; give its config.json by --model-config"
        )
    elif found.by_itself is None and not found.parsed.config:
        notes.append(
            "a checkpoint in the speculators format turns speculation on by itself, which no "
            "command line shows"
        )
    elif found.by_itself:
        notes.append("the checkpoint turns speculation on by itself, and no flag turns it off")
    if found.parsed.problem:
        notes += found.line.faults
        if found.line.more_variables:
            notes.append(found.line.more_variables)
    return notes


def _known_effect(found: Found) -> bool:
    """Whether it can be said what the engine does."""
    guess = found.by_itself is None and may_speculate_by_itself(found.parsed.launch.model)
    return not found.parsed.problem and not guess


def answer(found: Found) -> dict[str, Any]:
    """The answer for machines; what is not known is null."""
    known = _known_effect(found)
    parsed, effective = found.parsed, found.judged.effective
    return {
        "engine": found.name,
        "version": found.version or None,
        "problem": parsed.problem or None,
        "speculates": (effective is not None) if known and not found.judged.faults else None,
        "config": json.loads(parsed.config) if parsed.config else None,
        "effective": None if effective is None or not known else dict(effective),
        "setting": None if effective is None or not known else _setting(effective),
        "starts": None if parsed.problem else not found.judged.faults,
        "faults": list(found.judged.faults),
        "sources": {key: _place(s, found.line) for key, s in sorted(parsed.sources.items())},
        "shadows": [
            {
                "loser": _place(s.loser, found.line),
                "winner": None if s.winner is None else _place(s.winner, found.line),
                "why": s.why,
            }
            for s in parsed.shadows
        ],
        "wired": parsed.wired,
        "channel": {"fits": str(found.channel.channel), "why": found.channel.why},
        "notes": _notes(found),
    }


def _setting(effective: Mapping[str, JsonValue]) -> dict[str, JsonValue] | None:
    """The setting of a policy that says the same; None where none does."""
    setting = setting_of(effective, name="running")
    return None if setting is None else fields_of(setting)


def fields_of(setting: Setting) -> dict[str, JsonValue]:
    """A setting as a policy has it, without what is not stated."""
    fields: dict[str, JsonValue] = {
        "name": setting.name,
        "method": setting.method,
        "model": setting.model,
        "numSpeculativeTokens": setting.num_speculative_tokens,
        "disableAboveBatchSize": setting.disable_above_batch_size,
        "extra": dict(setting.extra) or None,
    }
    return {key: value for key, value in fields.items() if value is not None}


def _words(found: Found) -> Iterator[str]:
    version = found.version or "version not known"
    yield f"{found.name} (vLLM {version})"
    data = answer(found)
    if found.parsed.problem:
        yield f"  not understood: {found.parsed.problem}"
    elif found.judged.faults:
        yield from (f"  does not start: {fault}" for fault in found.judged.faults)
    elif not _known_effect(found):
        yield "  effective: not known"
    else:
        effective = data["effective"]
        yield "  effective: " + ("off" if effective is None else json.dumps(effective))
    yield from (f"  {key}: {place}" for key, place in data["sources"].items())
    for shadow in data["shadows"]:
        winner = f", for {shadow['winner']}" if shadow["winner"] else ""
        yield f"  does not count: {shadow['loser']}{winner}: {shadow['why']}"
    yield f"  channel {data['channel']['fits']}: {data['channel']['why']}"
    yield from (f"  note: {note}" for note in data["notes"])
