"""`specpilot render`: a setting as the arguments of one engine version."""

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from specpilot.cli.engine_options import (
    DataParallel,
    EngineChoice,
    Generation,
    ModelRunner,
    RunnerChoice,
    Version,
)
from specpilot.domain.rules import RuleSet
from specpilot.domain.settings import OFF, OFF_NAME, Setting
from specpilot.engines import On, Rendered, Runtime, render
from specpilot.resources.documents import (
    Fault,
    ResourceError,
    as_json,
    contents,
    read,
    spec_of,
)
from specpilot.resources.packs import pack
from specpilot.resources.policy import PolicySpec
from specpilot.resources.rule_set_yaml import rule_set_object, rule_set_yaml
from specpilot.resources.settings import SettingSpec
from specpilot.resources.wording import explain

_UNNAMED = "setting"
"""What a setting without a name is called."""


_HELD = "nothing is changed: a policy that asks for it is held (SettingRefused)"
"""What is done instead of a setting that is refused."""


def render_setting(
    *,
    setting: Annotated[
        str,
        typer.Option(
            "--setting", "-s", help="A setting as in a policy, in JSON or YAML; off for none."
        ),
    ] = "",
    policy: Annotated[
        Path | None, typer.Option("--policy", "-f", help="File with a policy; - is stdin.")
    ] = None,
    name: Annotated[str, typer.Option("--name", help="The setting of the policy.")] = "",
    version: Version = "",
    engine: EngineChoice = None,
    runner: RunnerChoice = None,
    data_parallel: DataParallel = None,
    as_json: Annotated[bool, typer.Option("--json", help="The answer for machines.")] = False,
) -> None:
    """Print the arguments that a setting is on an engine version, or why it is none.

    The arguments go to stdout, one line, quoted for a shell; everything else goes to stderr. A
    refusal is exit code 1; with --json it is an answer like another.
    """
    chosen = _chosen(setting, policy=policy, name=name)
    rendered = render(
        chosen,
        version=version,
        runtime=Runtime(
            engine={Generation.V0: On.V0, Generation.V1: On.V1}[engine] if engine else None,
            runner={ModelRunner.V1: On.MRV1, ModelRunner.V2: On.MRV2}[runner] if runner else None,
            data_parallel=data_parallel,
        ),
    )
    guard = None if rendered.guard is None else batch_guard(chosen, limit=rendered.guard)
    if as_json:
        print(json.dumps(answer(rendered, guard=guard), indent=2))
        return
    if rendered.refused:
        typer.echo(f"refused: {rendered.refused}\ninstead: {_HELD}", err=True)
        raise typer.Exit(1)
    print(shlex.join(rendered.args))
    for title, words in (
        ("off", "" if rendered.args else "no argument turns speculation on"),
        ("effective", rendered.effective if rendered.effective != rendered.config else ""),
        ("instead", rendered.instead),
    ):
        if words:
            typer.echo(f"{title}: {words}", err=True)
    if guard is not None:
        typer.echo(f"rules, to apply beside it:\n{rule_set_yaml(guard)}", err=True)


def answer(rendered: Rendered, *, guard: RuleSet | None) -> dict[str, Any]:
    """The answer for machines."""
    return {
        "args": list(rendered.args),
        "effective": json.loads(rendered.effective) if rendered.effective else {},
        "refused": rendered.refused or None,
        "instead": _HELD if rendered.refused else rendered.instead or None,
        "rules": None if guard is None else rule_set_object(guard),
    }


def batch_guard(setting: Setting, *, limit: int) -> RuleSet:
    """The shipped rules that keep a batch limit, with this limit."""
    shipped = pack("batch-guard")
    return replace(
        shipped,
        name=f"batch-guard-{setting.name}",
        description=f"Off above {limit} running requests a replica, on again well below it.",
        parameters={**shipped.parameters, "maxBatch": float(limit), "resumeBatch": limit / 2},
    )


def _chosen(text: str, *, policy: Path | None, name: str) -> Setting:
    """The setting that is meant.

    Raises:
        BadParameter: It is not said which, or twice.
        ResourceError: What is said is no setting, or no policy.
    """
    if bool(text) == (policy is not None):
        raise typer.BadParameter("give a setting: either --setting, or --policy with --name")
    if policy is None:
        if name:
            raise typer.BadParameter("--name chooses among the settings of --policy; drop it")
        return _inline(text)
    if not name:
        raise typer.BadParameter(f"--policy {policy} has several settings; say --name NAME")
    return _of_policy(policy, name=name)


def _inline(text: str) -> Setting:
    (content, *more) = contents(text, source="--setting") or [None]
    if content in (OFF_NAME, False):  # YAML reads a bare off as false
        return OFF
    if not isinstance(content, dict) or more:
        message = f"{text!r} is no mapping; write {{method: ngram, numSpeculativeTokens: 4}}"
        raise ResourceError(Fault(where="--setting", field="", message=message))
    if content.get("name") is False:
        content["name"] = OFF_NAME
    try:
        spec = SettingSpec.model_validate_json(as_json({"name": _UNNAMED, **content}), strict=True)
    except ValidationError as error:
        said = explain(error, model=SettingSpec, root="setting")
        raise ResourceError(
            *(Fault(where="--setting", field=path, message=words) for path, words in said)
        ) from None
    return spec.setting()


def _of_policy(path: Path, *, name: str) -> Setting:
    text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    known = {OFF_NAME: OFF}
    policies = 0
    for number, content in enumerate(contents(text, source=str(path)), start=1):
        if isinstance(content, dict) and content.get("kind") == "SpeculationPolicy":
            spec: PolicySpec = spec_of(read(content, source=str(path), number=number), PolicySpec)
            policies += 1
            for each in spec.settings:
                if known.setdefault(each.name, each.setting()) != each.setting():
                    message = f"{path} has two settings {each.name}, in two policies; split it"
                    raise typer.BadParameter(message)
    if not policies:
        raise typer.BadParameter(f"there is no SpeculationPolicy in {path}")
    if name not in known:
        raise typer.BadParameter(f"there is no setting {name}; there are {', '.join(known)}")
    return known[name]
