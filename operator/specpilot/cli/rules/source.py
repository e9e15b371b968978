"""Which rule set a RULESET argument means: a file, a shipped pack, or a version in the database.

All three are useful under the same word, so the words may collide. A collision in which both mean
the same rules is none; any other is refused with the ways to say which one is meant.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TextIO

import typer

from specpilot.cli.state import database_url, open_state
from specpilot.domain.rules import RuleSet, RuleSetVersion
from specpilot.resources import Document, Fault, ResourceError, load, rule_set_from
from specpilot.resources.packs import pack, pack_names
from specpilot.store import Store

PACK = "pack:"
STDIN = "-"

HELP = (
    "A file (rules.yaml, ./rules, FILE#NAME when it holds several), a shipped pack (hit-rate, "
    "pack:hit-rate), or a rule set of the database (NAME, NAME@VERSION, NAMESPACE/NAME[@VERSION])."
)

RuleSetArgument = Annotated[str, typer.Argument(metavar="RULESET", help=HELP)]

Database = Annotated[
    str,
    typer.Option(
        "--database",
        envvar="SPECPILOT_DATABASE_URL",
        help="URL of the database; the SQLite file in --state by default.",
        show_default=False,
    ),
]

_STORED = re.compile(r"(?:(?P<namespace>[^/@#:]+)/)?(?P<name>[^/@#:]+)(?:@v?(?P<version>\d+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A rule set and where it was found.

    Attributes:
        rule_set: The rules.
        label: How to write it so that only this one is meant.
        version: Its version, when it is one of the database.
    """

    rule_set: RuleSet
    label: str
    version: RuleSetVersion | None = None


@contextmanager
def stored(*, state: Path, database: str) -> Iterator[Store]:
    """Open a database that is in use.

    Raises:
        BadParameter: There is none; a typo must not look like a new one.
    """
    if not has_database(state=state, database=database):
        where = database.removeprefix("sqlite:///") or str(state)
        raise typer.BadParameter(
            f"there is no database in {where}; is {'--database' if database else '--state'} right? "
            "`specpilot rules apply` makes one"
        )
    with closing(Store.open(database or database_url(state))) as store:
        yield store


@contextmanager
def writable(*, state: Path, database: str) -> Iterator[Store]:
    """Open a database to write to; the embedded one is made when it is not there."""
    with closing(Store.open(database) if database else open_state(state)) as store:
        yield store


def has_database(*, state: Path, database: str) -> bool:
    """Whether there is one to read."""
    url = database or database_url(state)
    return not url.startswith("sqlite:") or Path(url.removeprefix("sqlite:///")).exists()


def resolve(word: str, *, state: Path, database: str) -> Found:
    """Find the rule set that a word means.

    Raises:
        BadParameter: There is none, or there are several that differ.
        ResourceError: A file was found and is not valid.
    """
    if word.startswith(PACK):
        return Found(rule_set=pack(word.removeprefix(PACK)), label=word)
    if word == STDIN or _is_path(word):
        return _of_file(word)
    found = [_of_file(word)] if _path_of(word).is_file() else []
    if word in pack_names():
        found.append(Found(rule_set=pack(word), label=f"{PACK}{word}"))
    found += _of_database(word, state=state, database=database)
    if not found:
        raise typer.BadParameter(_nothing(word, state=state, database=database))
    if len({f.rule_set.content_hash() for f in found}) > 1:
        ways = " or ".join(f.label for f in found)
        raise typer.BadParameter(f"{word} could be several rule sets that differ; write {ways}")
    return found[-1]


def _is_path(word: str) -> bool:
    path = _path_of(word)
    return word.startswith(("/", "./", "../", "~")) or path.suffix in {".yaml", ".yml", ".json"}


def _path_of(word: str) -> Path:
    return Path(word.partition("#")[0]).expanduser()


def read_documents(path: Path | str) -> list[Document]:
    """Read the documents of a file; `-` is standard input.

    Raises:
        ResourceError: It is not UTF-8, not YAML, or a document is not valid.
        OSError: It cannot be read.
    """
    return load(read_text(path), source=str(path))


def read_text(path: Path | str) -> str:
    """Read a file as UTF-8; `-` is standard input.

    Raises:
        ResourceError: It is not UTF-8.
        OSError: It cannot be read.
    """
    raw = sys.stdin.buffer.read() if str(path) == STDIN else Path(path).read_bytes()
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"byte {error.start} is not UTF-8; save it as UTF-8 text"
        raise ResourceError(Fault(where=str(path), field="", message=message)) from None


@contextmanager
def lines_of(path: str) -> Iterator[Iterator[str]]:
    """Open a file as lines of UTF-8, read as they are needed; `-` is standard input.

    Raises:
        ResourceError: A line is not UTF-8.
        OSError: It cannot be read.
    """
    if path == STDIN:
        yield _decoded(sys.stdin, path)
        return
    with Path(path).open(encoding="utf-8-sig", newline="") as file:
        yield _decoded(file, path)


def _decoded(file: TextIO, path: str) -> Iterator[str]:
    try:
        yield from file
    except UnicodeDecodeError as error:
        message = f"it is not UTF-8 ({error.reason}); save it as UTF-8 text"
        raise ResourceError(Fault(where=path, field="", message=message)) from None


def no_rows(path: str) -> typer.BadParameter:
    """The refusal of a readings file that has nothing to judge."""
    where = "standard input" if path == STDIN else path
    return typer.BadParameter(
        f"{where} has no row of readings; give a header and at least one row, or lines of JSON",
        param_hint="--readings",
    )


def _of_file(word: str) -> Found:
    name = word.partition("#")[2]
    path = STDIN if word == STDIN else _path_of(word)
    sets = [rule_set_from(d) for d in read_documents(path) if d.kind == "RuleSet"]
    chosen = [s for s in sets if not name or s.name == name]
    if len(chosen) == 1:
        label = word if word == STDIN or _is_path(word) else f"./{word}"
        return Found(rule_set=chosen[0], label=label)
    known = ", ".join(s.name for s in sets)
    if not sets:
        raise typer.BadParameter(f"{path} holds no RuleSet")
    if not chosen:
        raise typer.BadParameter(f"{path} holds no RuleSet {name} (it holds {known})")
    raise typer.BadParameter(f"{path} holds several rule sets ({known}); write {path}#NAME")


def _of_database(word: str, *, state: Path, database: str) -> list[Found]:
    match = _STORED.fullmatch(word)
    if match is None or not has_database(state=state, database=database):
        return []
    name, namespace = match["name"], match["namespace"]
    with stored(state=state, database=database) as store, store.read() as unit:
        versions = [v for v in unit.rules.list(namespace=namespace) if v.rule_set.name == name]
        if match["version"]:
            number = int(match["version"])
            exact = [
                unit.rules.get(namespace=v.namespace, name=name, version=number) for v in versions
            ]
            if versions and not any(exact):
                newest = max(v.version for v in versions)
                raise typer.BadParameter(
                    f"{word}: there is no version {number}; the newest is {newest}"
                )
            versions = [v for v in exact if v is not None]
    return [
        Found(rule_set=v.rule_set, label=f"{v.namespace}/{name}@{v.version}", version=v)
        for v in versions
    ]


def _nothing(word: str, *, state: Path, database: str) -> str:
    packs = ", ".join(pack_names())
    where = "there is no database yet, `specpilot rules apply FILE` makes one"
    if has_database(state=state, database=database):
        with stored(state=state, database=database) as store, store.read() as unit:
            names = [f"{v.namespace}/{v.rule_set.name}" for v in unit.rules.list()]
        where = f"the database has {', '.join(names) or 'no rule set'}"
    return f"{word} is no file, no shipped pack (there are {packs}) and not stored ({where})"
