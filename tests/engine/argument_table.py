"""What becomes of a command line: one row for each way to say (or to mis-say) speculation.

Every row was asked of vLLM 0.32.0 itself. A row tells the exit code, the message that explains a
refusal, and the speculation in force otherwise. The surprising ones say so in ``reason``.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STARTS, FAILS, MISUSED = 0, 1, 2
"""Exit codes: it would start; a traceback after parsing; argparse did not take the words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A command line and what the engine makes of it.

    Attributes:
        name: The test's id.
        line: What follows ``serve MODEL``, quoted as for a shell; ``@name`` stands for a file of
            ``FILES``, or for the draft model (``@mid-draft``), wherever it is.
        reason: Why the row is there.
        exit_code: One of the three above.
        says: Regular expression found in the output of a refused start.
        method: The speculation method in force, "" when off.
        depth: Its ``num_speculative_tokens``.
    """

    name: str
    line: str
    reason: str
    exit_code: int = STARTS
    says: str = ""
    method: str = ""
    depth: int = 0

    def arguments(self, *, files: Path, draft: Path | str) -> list[str]:
        """Return the words of the line, with the files that they name."""
        line = self.line.replace("@mid-draft", str(draft)).replace("@", f"{files}/")
        return shlex.split(line)


def off(name: str, line: str, *, reason: str) -> Row:
    """Return a row that starts without speculation."""
    return Row(name=name, line=line, reason=reason)


def on(name: str, line: str, *, reason: str, method: str = "ngram", depth: int = 4) -> Row:
    """Return a row that starts with speculation."""
    return Row(name=name, line=line, reason=reason, method=method, depth=depth)


def fails(name: str, line: str, *, says: str, reason: str) -> Row:
    """Return a row that is parsed, and then refused."""
    return Row(name=name, line=line, reason=reason, exit_code=FAILS, says=says)


def misused(name: str, line: str, *, says: str, reason: str) -> Row:
    """Return a row that the parser refuses."""
    return Row(name=name, line=line, reason=reason, exit_code=MISUSED, says=says)


def config(**fields: Any) -> str:
    """Return ``--speculative-config`` with these fields as JSON, quoted."""
    return f"{CONFIG} {shlex.quote(json.dumps(fields))}"


def ngram(**fields: Any) -> str:
    """Return n-gram speculation four tokens deep, with further or other fields."""
    return config(**{"method": "ngram", "num_speculative_tokens": 4, **fields})


def scheduled(*ranges: list[int], depth: int = 4) -> str:
    """Return n-gram speculation with a schedule by batch size."""
    return ngram(num_speculative_tokens=depth, num_speculative_tokens_per_batch_size=ranges)


CONFIG = "--speculative-config"
DEEP = ngram(prompt_lookup_max=4)
SHALLOW = ngram(prompt_lookup_max=4, num_speculative_tokens=2)
DOTTED = f"{CONFIG}.method ngram {CONFIG}.num_speculative_tokens 3"

NO_DEPTH = "num_speculative_tokens must be provided"
NO_MODEL = "num_speculative_tokens was provided but without speculative model"
NOT_JSON = "argument --speculative-config/-sc: Value .* cannot be converted"

FILES: Mapping[str, str] = {
    "nested.yaml": "speculative-config:\n  method: ngram\n  num_speculative_tokens: 4\n",
    "underscores.yaml": "speculative_config:\n  method: ngram\n  num_speculative_tokens: 4\n",
    "json.yaml": 'speculative-config: \'{"method": "ngram", "num_speculative_tokens": 4}\'\n',
    "list.yaml": "- speculative-config\n",
    "settings.txt": "speculative-config: null\n",
}

OFF = (
    off("nothing", "", reason="speculation is opt-in"),
    off("empty, one word", f"{CONFIG}=", reason="what an empty annotation leaves"),
    off("empty, two words", f"{CONFIG} ''", reason="the same in two words"),
    off("null", f"{CONFIG} null", reason="JSON's word for nothing"),
    off("None", f"{CONFIG}=None", reason="Python's word is taken, too"),
    off(
        "JSON then empty",
        f"{DEEP} {CONFIG}=",
        reason="the last value wins: how a flag is switched off by appending",
    ),
    off("JSON then null", f"{DEEP} {CONFIG} null", reason="same; older releases know this one"),
    off(
        "file then empty",
        f"--config @nested.yaml {CONFIG}=",
        reason="the command line beats the file",
    ),
    off("empty then file", f"{CONFIG}= --config @nested.yaml", reason="... in whatever order"),
    off(
        "file with equals sign",
        "--config=@nested.yaml",
        reason="trap: silently ignored unless written as two words",
    ),
)

ON = (
    on("JSON", DEEP, reason="the usual way"),
    on("short flag", DEEP.replace(CONFIG, "-sc"), reason="since 0.19"),
    on(
        "short flag with equals sign",
        DEEP.replace(f"{CONFIG} ", "-sc="),
        reason="one word is as good as two",
    ),
    on(
        "underscores",
        DEEP.replace(CONFIG, "--speculative_config"),
        reason="underscores in flags are dashes",
    ),
    on("two JSONs", f"{DEEP} {SHALLOW}", depth=2, reason="the last wins, nothing is merged"),
    on(
        "empty then JSON",
        f"{CONFIG}= {DEEP}",
        reason="trap: an empty value only cancels what stands before it",
    ),
    on("dotted keys", DOTTED, depth=3, reason="one key at a time"),
    on(
        "dotted keys with equals signs",
        f"{CONFIG}.method=ngram {CONFIG}.num_speculative_tokens=3",
        depth=3,
        reason="the same in one word each",
    ),
    on(
        "dotted keys then empty",
        f"{DOTTED} {CONFIG}=",
        depth=3,
        reason="trap: dotted keys are gathered behind all else, so nothing cancels them",
    ),
    on("dotted keys then null", f"{DOTTED} {CONFIG} null", depth=3, reason="trap: nor null"),
    on("short names", "--spec-method ngram --spec-tokens 3", depth=3, reason="since 0.23"),
    on(
        "short name completes JSON",
        f"--spec-tokens 3 {config(method='ngram')}",
        depth=3,
        reason="they merge as long as no key is said twice",
    ),
    on("nested file", "--config @nested.yaml", reason="YAML as written by hand"),
    on("file with underscores", "--config @underscores.yaml", reason="dashes there, too"),
    on("JSON in a file", "--config @json.yaml", reason="the form that older releases need"),
    on(
        "file and flag",
        f"--config @nested.yaml {SHALLOW}",
        depth=2,
        reason="the flag replaces the file's value whole",
    ),
    on("depth in quotes", ngram(num_speculative_tokens="4"), reason="text is read as a number"),
    on("lookup minimum alone", ngram(prompt_lookup_min=3), reason="the maximum follows it"),
    on(
        "schedule",
        scheduled([1, 4, 4], [5, 64, 0]),
        reason="the successor of disabling above a batch size",
    ),
    on(
        "schedule with a gap",
        scheduled([1, 4, 4], [9, 64, 0]),
        reason="a gap carries the depth before it forward",
    ),
    on(
        "schedule deeper than the depth",
        scheduled([1, 4, 5], depth=3),
        depth=3,
        reason="clamped, not refused",
    ),
    on("empty schedule", scheduled(), reason="means none"),
    on(
        "draft model",
        config(method="draft_model", model="@mid-draft", num_speculative_tokens=3),
        method="draft_model",
        depth=3,
        reason="a method with a model of its own",
    ),
    on(
        "draft model, method left out",
        config(model="@mid-draft", num_speculative_tokens=3),
        method="draft_model",
        depth=3,
        reason="inferred from the model",
    ),
)

REFUSED_BY_CONFIG = (
    fails("empty object", f"{CONFIG} '{{}}'", says=NO_DEPTH, reason="an empty object is not off"),
    fails("no depth", config(method="ngram"), says=NO_DEPTH, reason="no default depth"),
    fails("short method alone", "--spec-method ngram", says=NO_DEPTH, reason="the same"),
    fails(
        "depth alone",
        config(num_speculative_tokens=2),
        says=NO_MODEL,
        reason="no default method",
    ),
    fails("short depth alone", "--spec-tokens 3", says=NO_MODEL, reason="the same"),
    fails(
        "JSON then one dotted key",
        f"{DEEP} {CONFIG}.num_speculative_tokens 2",
        says=NO_MODEL,
        reason="trap: the dotted key does not amend the JSON, it replaces it",
    ),
    fails(
        "method said twice",
        f"--spec-method ngram {DEEP}",
        says="mutually exclusive",
        reason="even if both say the same",
    ),
    fails(
        "depth zero",
        ngram(num_speculative_tokens=0),
        says="greater than 0",
        reason="zero is not off either",
    ),
    fails(
        "depth with a fraction",
        ngram(num_speculative_tokens=4.5),
        says="num_speculative_tokens",
        reason="a whole number is meant",
    ),
    fails(
        "unknown method",
        ngram(method="oracle"),
        says="Input should be 'ngram'",
        reason="the message lists the methods of the release",
    ),
    fails(
        "head without a model",
        ngram(method="eagle3"),
        says=NO_MODEL,
        reason="a method with a model needs one",
    ),
    fails(
        "removed key",
        ngram(disable_by_batch_size=16),
        says=r"disable_by_batch_size\s+Unexpected keyword argument",
        reason="accepted up to 0.16; the pod would now crash in a loop",
    ),
    fails(
        "unknown key",
        ngram(depth=16),
        says=r"depth\s+Unexpected keyword argument",
        reason="unknown keys are never ignored",
    ),
    fails(
        "lookup bounds crossed",
        ngram(prompt_lookup_max=2, prompt_lookup_min=3),
        says="prompt_lookup_min=3 must be <= prompt_lookup_max=2",
        reason="checked across fields",
    ),
    fails(
        "lookup zero",
        ngram(prompt_lookup_max=0),
        says="greater than or equal to 1",
        reason="checked within a field",
    ),
    fails(
        "schedule without depth",
        config(method="ngram", num_speculative_tokens_per_batch_size=[[1, 4, 4]]),
        says=NO_DEPTH,
        reason="a schedule does not replace the depth",
    ),
    fails(
        "schedule of pairs",
        scheduled([1, 4]),
        says="num_speculative_tokens_per_batch_size",
        reason="three numbers each",
    ),
    fails(
        "a list",
        f"{CONFIG} '[1]'",
        says="'list' object has no attribute 'items'",
        reason="JSON, but no object: a bare Python error",
    ),
    fails(
        "two files",
        "--config @nested.yaml --config @json.yaml",
        says="More than one config file specified",
        reason="one at most",
    ),
    fails(
        "missing file",
        "--config @missing.yaml",
        says="No such file or directory: .*missing.yaml",
        reason="a ConfigMap that is not mounted",
    ),
    fails(
        "file of another type",
        "--config @settings.txt",
        says="Config file must be of a yaml/yml type. txt supplied",
        reason="the name decides",
    ),
    fails(
        "file with a list",
        "--config @list.yaml",
        says="'list' object has no attribute 'items'",
        reason="a mapping is meant",
    ),
    fails(
        "negative shutdown timeout",
        "--shutdown-timeout -1",
        says="greater than or equal to 0",
        reason="the flag that lets a replica drain",
    ),
)

REFUSED_BY_PARSER = (
    misused(
        "removed batch-size flag",
        "--speculative-disable-by-batch-size 16",
        says="unrecognized arguments: --speculative-disable-by-batch-size 16",
        reason="gone since 0.8.3, still in many a guide",
    ),
    misused(
        "removed model flag",
        "--speculative-model ngram",
        says="unrecognized arguments: --speculative-model ngram",
        reason="gone since 0.8.3",
    ),
    misused(
        "removed depth flag",
        "--num-speculative-tokens 4",
        says="unrecognized arguments: --num-speculative-tokens 4",
        reason="gone since 0.8.3",
    ),
    misused("lower-case none", f"{CONFIG} none", says=NOT_JSON, reason="in no language"),
    misused(
        "broken JSON",
        f'{CONFIG} \'{{"method": "ngram",\'',
        says=NOT_JSON,
        reason="what a shell makes of badly quoted JSON",
    ),
    misused(
        "value missing",
        CONFIG,
        says="argument --speculative-config/-sc: expected one argument",
        reason="an empty variable, unquoted, at the end of a line",
    ),
    misused(
        "shutdown timeout with a unit",
        "--shutdown-timeout 30s",
        says="argument --shutdown-timeout: invalid int value: '30s'",
        reason="whole seconds",
    ),
    misused(
        "second model", "another", says="unrecognized arguments: another", reason="a stray word"
    ),
)

ROWS = OFF + ON + REFUSED_BY_CONFIG + REFUSED_BY_PARSER

LATE = fails(
    "schedule that does not start at 1",
    scheduled([2, 4, 4]),
    says="The first batch-size range must start at 1",
    reason="accepted as configuration; only the scheduler refuses it",
)

STARTED = (
    *(row for row in ROWS if row.name in {"depth zero", "removed batch-size flag"}),
    LATE,
    *(row for row in ROWS if row.name == "dotted keys then empty"),
)
"""One row of each verdict to really start, so that the verdicts above mean what they say.
The plain "on" and "off" are the servers of ``test_served.py``."""


def write_files(folder: Path) -> Path:
    """Write the files that the rows name."""
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder
