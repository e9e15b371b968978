"""`specpilot rules list`, `show` and `history`: what is there, and where it came from."""

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from specpilot.cli.engine_options import (
    DataParallel,
    EngineChoice,
    EngineVersion,
    RunnerChoice,
    stated,
)
from specpilot.cli.rules.source import Database, RuleSetArgument, resolve, stored
from specpilot.cli.rules.steered import Namespace, PolicyOption, Steered, steered
from specpilot.cli.state import StateDir
from specpilot.cli.tables import add_row
from specpilot.controller.followers import followers, using
from specpilot.domain.batch_limits import limited_setting, resume, with_limits
from specpilot.domain.rules import Rule, RuleSet
from specpilot.resources import LOCAL_NAMESPACE
from specpilot.resources.mirror import timestamp
from specpilot.resources.packs import pack, pack_names
from specpilot.resources.quantities import format_duration
from specpilot.resources.rule_set_yaml import rule_set_object, rule_set_yaml
from specpilot.store import RuleOwner

AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]

_SHORT_HASH = 12


def list_rule_sets(
    state: StateDir,
    database: Database = "",
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", show_default="all", help="Only this namespace.")
    ] = "",
    packs: Annotated[bool, typer.Option("--packs", help="The shipped packs instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the rule sets of the database, or the packs that come with Specpilot."""
    rows = _packs() if packs else _stored(state, database, namespace)
    if as_json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    if not rows:
        print(
            "no rule set yet; `specpilot rules apply FILE` makes one, `--packs` shows the shipped"
        )
        return
    table = Table(show_edge=False, box=None, pad_edge=False)
    for column in rows[0]:
        table.add_column(column.upper(), no_wrap=column == "name")
    for row in rows:
        add_row(table, *(str(v)[:_SHORT_HASH] if k == "hash" else v for k, v in row.items()))
    Console().print(table)


def _packs() -> list[dict[str, Any]]:
    sets = [pack(name) for name in pack_names()]
    return [
        {
            "name": s.name,
            "rules": len(s.rules),
            "hash": s.content_hash(),
            "description": s.description,
        }
        for s in sets
    ]


def _stored(state: Any, database: str, namespace: str) -> list[dict[str, Any]]:
    with stored(state=state, database=database) as store, store.read() as unit:
        return [
            {
                "namespace": v.namespace,
                "name": v.rule_set.name,
                "version": v.version,
                "rules": len(v.rule_set.rules),
                "owner": str(unit.rules.owner(namespace=v.namespace, name=v.rule_set.name))
                or "nobody (deleted)",
                "author": v.author,
                "source": v.source,
                "hash": v.content_hash,
            }
            for v in unit.rules.list(namespace=namespace or None)
        ]


def show(
    *,
    rule_set: RuleSetArgument,
    state: StateDir,
    database: Database = "",
    as_json: AsJson = False,
    as_yaml: Annotated[
        bool, typer.Option("--yaml", help="As a RuleSet that can be applied.")
    ] = False,
    policy: PolicyOption = "",
    policy_namespace: Namespace = "",
    engine_version: EngineVersion = "",
    engine: EngineChoice = None,
    runner: RunnerChoice = None,
    data_parallel: DataParallel = None,
) -> None:
    """Show the rules of a rule set; with --policy, those too that the operator adds for it.

    A setting with disableAboveBatchSize has one where its engine does not keep the limit itself.
    """
    if as_json and as_yaml:
        raise typer.BadParameter("write one of --json and --yaml")
    if policy and as_yaml:
        raise typer.BadParameter("what --yaml prints can be applied, and generated rules cannot")
    run = stated(engine_version, engine=engine, runner=runner, data_parallel=data_parallel)
    of = steered(policy, policy_namespace, state=state, run=run) if policy else None
    found = resolve(rule_set, state=state, database=database)
    version = found.version
    namespace = version.namespace if version is not None else ""
    if as_yaml:
        print(rule_set_yaml(found.rule_set, namespace=namespace), end="")
        return
    if as_json:
        content = rule_set_object(found.rule_set, namespace=namespace)
        content["hash"] = found.rule_set.content_hash()
        if version is not None:
            content["version"] = version.version
            content |= {"author": version.author, "source": version.source}
        if of is not None:
            content["generated"] = [_generated(rule, of) for rule in generated_rules(of)]
        print(json.dumps(content, indent=2, ensure_ascii=False))
        return
    print(f"{found.label}  {found.rule_set.content_hash()}")
    if version is not None:
        print(f"by {version.author} from {version.source}")
    _print_rules(found.rule_set, of=of)


def generated_rules(of: Steered) -> tuple[Rule, ...]:
    """The rules that the operator puts before those of the policy's rule set."""
    nothing = RuleSet(name=of.policy.rule_set, rules=())
    return with_limits(nothing, of.limits, window=of.policy.window).rules


def _generated(rule: Rule, of: Steered) -> dict[str, Any]:
    setting = limited_setting(rule)
    return {
        "name": rule.name,
        "when": rule.when,
        "until": rule.until,
        "for": format_duration(rule.hold),
        "setting": rule.setting,
        "keeps": {"setting": setting, "disableAboveBatchSize": of.limits[setting]},
        "why": of.why(setting),
    }


def _print_rules(rule_set: RuleSet, *, of: Steered | None) -> None:
    if rule_set.description:
        print(rule_set.description)
    for name, value in rule_set.parameters.items():
        print(f"  params.{name} = {value:g}")
    generated = generated_rules(of) if of is not None else ()
    for number, rule in enumerate((*generated, *rule_set.rules), start=1):
        ours = " (generated)" if rule in generated else ""
        print(f"{number}. {rule.name}{ours}: asks for {rule.setting} {_how_long(rule)}")
        print(f"     when   {_indented(rule.when)}")
        if rule.until:
            print(f"     until  {_indented(rule.until)}")
        if of is not None and ours:
            setting = limited_setting(rule)
            print(f"     why    {of.why(setting)}")
            print(f"     then   {setting} comes back below a batch of {_resumes(of, setting)}")
    if of is not None:
        for name, limit in of.kept_by_the_engine.items():
            print(f"{of.engine} keeps disableAboveBatchSize {limit} of {name} itself")


def _resumes(of: Steered, setting: str) -> str:
    return f"{resume(of.limits[setting]):g} (gate BatchLimit)"


def _how_long(rule: Rule) -> str:
    said = "as soon as it is true"
    if rule.at_least is not None:
        windows = rule.at_least
        each = format_duration(windows.each)
        said = f"when true in {windows.windows} of {windows.of} windows of {each}"
    elif rule.hold:
        said = f"when held for {format_duration(rule.hold)}"
    if rule.min_drafts:
        said += f", with {rule.min_drafts} drafts or more"
    return said


def _indented(text: str) -> str:
    return "\n            ".join(line.strip() for line in text.strip().splitlines())


def history(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="NAME or NAMESPACE/NAME, in the database.")
    ],
    state: StateDir,
    database: Database = "",
    limit: Annotated[int, typer.Option(min=1, help="At most so many, the newest.")] = 100,
    as_json: AsJson = False,
) -> None:
    """Show the versions of a rule set: when, by whom, from where, and which policies use them."""
    namespace, _, short = name.rpartition("/")
    with stored(state=state, database=database) as store, store.read() as unit:
        known = unit.rules.list()
        named = [v for v in known if v.rule_set.name == short]
        chosen = [v for v in named if not namespace or v.namespace == namespace]
        if len(chosen) != 1:
            there = ", ".join(f"{v.namespace}/{v.rule_set.name}" for v in chosen or known)
            what = "could be several rule sets" if chosen else "is not stored"
            raise typer.BadParameter(f"{name} {what}; there is {there or 'none'}")
        latest = chosen[0]
        versions = unit.rules.history(namespace=latest.namespace, name=short, limit=limit)
        found = followers(unit, namespace=latest.namespace, name=short)
        owner = unit.rules.owner(namespace=latest.namespace, name=short)
    rows: list[dict[str, Any]] = [
        {
            "version": v.version.version,
            "time": timestamp(v.at),
            "author": v.version.author,
            "source": v.version.source,
            "owner": str(v.owner),
            "hash": v.version.content_hash,
            "policies": list(using(found, version=v.version.version, latest=latest.version)),
        }
        for v in versions
    ]
    if as_json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    table = Table(show_edge=False, box=None, pad_edge=False)
    for column in rows[0]:
        table.add_column(column.upper(), no_wrap=column in {"version", "time", "hash"})
    for row in rows:
        cells = {**row, "policies": ", ".join(row["policies"]), "hash": row["hash"][:_SHORT_HASH]}
        add_row(table, *cells.values())
    Console().print(table)
    if owner is RuleOwner.NOBODY:
        print("it was deleted: nobody owns it, and policies that name it hold until it is applied")
    if latest.namespace != LOCAL_NAMESPACE:
        print(
            "policies are kept by the cluster: `kubectl get specpol "
            f"-n {latest.namespace}` shows which rule set each uses"
        )
