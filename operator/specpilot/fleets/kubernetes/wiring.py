"""How a setting travels to the engine: annotation, downward-API variable, one argument.

The value lives in the pod template, so it is versioned with the ReplicaSet: a pod that restarts by
itself in mid-canary comes back with what it had. The user adds one env entry and one argument
once; Specpilot owns three annotations and touches no list of the user's. A missing annotation is
an empty variable, and an empty value means off: it fails safe.
"""

import functools
import json
from collections.abc import Iterable, Mapping
from typing import Any

from specpilot.domain.settings import OFF_NAME, UNRECOGNISED, Declared, canonical_json
from specpilot.domain.targets import Problem, TargetProblem
from specpilot.engines import Parsed, empty_value_is_off, parse
from specpilot.engines.versions import readable

CONFIG_ANNOTATION = "specpilot.io/speculative-config"
"""The engine's speculative config as JSON; "" or absent means off."""

SETTING_ANNOTATION = "specpilot.io/setting"
"""Name of the setting, for people and for reading back."""

CHANGE_ANNOTATION = "specpilot.io/change-id"
"""The flag change that wrote the other two."""

PREVIOUS_ANNOTATION = "specpilot.io/previous"
"""What was declared before, as JSON; only where annotations do not reach the pods."""

KEPT_ANNOTATION = "specpilot.io/previous-values"
"""What stood in an owner's field before, to the letter, as JSON; going back re-applies it."""

ANNOTATIONS = (
    CONFIG_ANNOTATION,
    SETTING_ANNOTATION,
    CHANGE_ANNOTATION,
    PREVIOUS_ANNOTATION,
    KEPT_ANNOTATION,
)
"""The only keys that are ours."""

VARIABLE = "SPECPILOT_SPECULATIVE_CONFIG"
FIELD_PATH = f"metadata.annotations['{CONFIG_ANNOTATION}']"
FLAG = "--speculative-config"
ARGUMENT = f"{FLAG}=$({VARIABLE})"

_ENV_SNIPPET = f"""\
env:
  - name: {VARIABLE}
    valueFrom:
      fieldRef:
        fieldPath: {FIELD_PATH}"""

_ARGS_SNIPPET = f"""\
args:
  - {ARGUMENT}"""

_NO_VALUE = frozenset({"", "null", "None"})
"""What the engine's own parser takes for "no speculation"; `{}` is not among them."""


def canonical_config(text: str) -> str:
    """Bring a speculative config into the form in which equal ones are equal; "" is off.

    Text that is not JSON stays as it is: it differs from everything Specpilot would write.
    """
    if text.strip() in _NO_VALUE:
        return ""
    try:
        return canonical_json(json.loads(text))
    except ValueError:
        return text


def _default_name(config: str) -> str:
    return UNRECOGNISED if config else OFF_NAME


def declared(annotations: Mapping[str, str]) -> Declared:
    """Read what a template or a pod declares, from its annotations."""
    config = canonical_config(annotations.get(CONFIG_ANNOTATION, ""))
    return Declared(
        setting=annotations.get(SETTING_ANNOTATION) or _default_name(config),
        config=config,
        change_id=annotations.get(CHANGE_ANNOTATION, ""),
    )


def annotations(wanted: Declared) -> dict[str, str]:
    """The annotations that declare it; `declared` of them gives it back.

    What was never ours is written with as few keys as say it (none at all for "off"), so that
    going back to it restores the template to the letter.
    """
    if wanted.change_id:
        return {
            CONFIG_ANNOTATION: wanted.config,
            SETTING_ANNOTATION: wanted.setting,
            CHANGE_ANNOTATION: wanted.change_id,
        }
    written = {CONFIG_ANNOTATION: wanted.config} if wanted.config else {}
    if wanted.setting != _default_name(wanted.config):
        written[SETTING_ANNOTATION] = wanted.setting
    return written


def argv(container: Mapping[str, Any]) -> list[str]:
    """The command line of a container as written, before variables are expanded."""
    return [*(container.get("command") or ()), *(container.get("args") or ())]


def literal_env(container: Mapping[str, Any]) -> dict[str, str]:
    """The variables whose values stand in the container itself."""
    return {
        entry["name"]: entry.get("value") or ""
        for entry in container.get("env") or ()
        if "valueFrom" not in entry
    }


def _has_variable(container: Mapping[str, Any]) -> bool:
    for entry in container.get("env") or ():
        if entry.get("name") == VARIABLE:
            source = (entry.get("valueFrom") or {}).get("fieldRef") or {}
            return bool(source.get("fieldPath") == FIELD_PATH)
    return False


def read_line(container: Mapping[str, Any], *, annotation: str = "", version: str = "") -> Parsed:
    """Parse the command line as the kubelet hands it over where the variable is defined."""
    env = {**literal_env(container), VARIABLE: annotation}
    return _parse(tuple(argv(container)), tuple(env.items()), readable(version))


def is_wired(container: Mapping[str, Any], *, version: str = "") -> bool:
    """Whether the container follows the annotations."""
    return _has_variable(container) and read_line(container, annotation="", version=version).wired


@functools.lru_cache(maxsize=16384)
def _parse(line: tuple[str, ...], env: tuple[tuple[str, str], ...], version: str) -> Parsed:
    # All pods of a template share one line, and each tick reads all of them.
    return parse(line, version=version, env=dict(env), variable=VARIABLE)


def running(
    metadata: Mapping[str, Any],
    container: Mapping[str, Any],
    *,
    version: str = "",
    claims: Iterable[Declared] = (),
) -> Declared:
    """What a pod (or a template's pods) runs: its annotations where it is wired, else its flags.

    Annotations that nothing reads are no more than a claim: they name what the arguments say, when
    they say the same. So it is where the arguments themselves are what Specpilot writes, and with a
    pod from before the workload was wired.

    Args:
        metadata: Metadata of the pod or the template.
        container: The engine's container.
        version: Version of the engine, "" when not known.
        claims: Further claims, for pods that carry no annotations.
    """
    noted = metadata.get("annotations") or {}
    line = read_line(container, annotation=noted.get(CONFIG_ANNOTATION, ""), version=version)
    if line.wired and _has_variable(container):
        return declared(noted)
    if line.problem or line.wired:
        return Declared()
    return named(line.config, claims=(*claims_of(noted), *claims))


def claims_of(noted: Mapping[str, str]) -> tuple[Declared, ...]:
    """What annotations claim to be set: the present, then what was before it."""
    found = []
    if CONFIG_ANNOTATION in noted and noted.get(CHANGE_ANNOTATION):
        found.append(declared(noted))
    try:
        before = json.loads(noted.get(PREVIOUS_ANNOTATION, ""))
        found.append(Declared(**{key: str(before[key]) for key in _DECLARED}))
    except (ValueError, TypeError, KeyError):
        pass  # none, or one that a person has written
    return tuple(found)


def previous(before: Declared) -> str:
    """What was declared before, as `claims_of` reads it."""
    return canonical_json({key: getattr(before, key) for key in _DECLARED})


_DECLARED = ("setting", "config", "change_id")


def named(config: str, *, claims: Iterable[Declared] = ()) -> Declared:
    """Name what runs by the first claim that says the same."""
    for claim in claims:
        if claim.config == config:
            return claim
    return Declared(setting=_default_name(config), config=config)


def fault(container: Mapping[str, Any], *, workload: str, version: str = "") -> Problem | None:
    """Return why the container would not follow the annotations, None when it does.

    Args:
        container: The container of the pod template.
        workload: The workload, for the message.
        version: Version of the engine, "" when not known.
    """
    where = f'{workload}, container "{container["name"]}"'
    if readable(version) and not empty_value_is_off(version=version):
        return Problem(
            reason=TargetProblem.NOT_WIRED,
            message=f"{where}: vLLM {version} does not start with an empty {FLAG}, so it could "
            f"not be switched off this way; run 0.10.1 or newer",
        )
    line = read_line(container, annotation="", version=version)
    literal = line.shadowed_by or (line.config and f"speculation ({line.config})")
    if literal:
        return Problem(
            reason=TargetProblem.SHADOWED_BY_ARGS,
            message=(
                f"{where}: {literal} is given literally and would win over what Specpilot sets. "
                f"Take it out, name it as a setting of the policy instead, and have in the "
                f"container:\n{_ENV_SNIPPET}\n{_ARGS_SNIPPET}"
            ),
        )
    missing = [] if _has_variable(container) else [_ENV_SNIPPET]
    if not line.wired and not line.problem:
        missing.append(_ARGS_SNIPPET)
    if not missing and not line.problem:
        return None
    steps = "".join(f"\n{snippet}" for snippet in missing)
    return Problem(
        reason=TargetProblem.NOT_WIRED,
        message=f"{where} does not take its speculation from Specpilot yet."
        + (f" Add to the container:{steps}" if steps else "")
        + (f"\nIts command line: {line.problem}" if line.problem else ""),
    )


def follower_fault(
    container: Mapping[str, Any], *, workload: str, version: str = ""
) -> Problem | None:
    """Return why a worker beside the engine would not follow it, None when it does or need not.

    A worker that runs no engine of its own (Ray's) gets its configuration from the leader. One
    that does (`--headless`) must be told the same as the leader.
    """
    line = read_line(container, annotation="", version=version)
    command = container.get("command") or ()
    # Without a command it is the image's entrypoint, which is the engine.
    engine = not command or any("vllm" in word for word in argv(container))
    if not engine or is_wired(container, version=version) or line.problem:
        return None
    return Problem(
        reason=TargetProblem.NOT_WIRED,
        message=f'{workload}: the container "{container["name"]}" of the workers runs the engine '
        f"too and does not take its speculation from Specpilot. Leader and workers have to be told "
        f"the same; add to it:\n{_ENV_SNIPPET}\n{_ARGS_SNIPPET}",
    )
