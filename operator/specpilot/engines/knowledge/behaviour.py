"""Rows about what the engine does by itself, and how its parser reads what it is given."""

from specpilot.engines.knowledge.rows import Certainty, On, Row, Topic
from specpilot.engines.versions import span


def _row(
    name: str,
    since: str,
    until: str = "",
    *,
    source: str,
    on: On = On.ANY,
    why: str = "",
    only: frozenset[str] = frozenset(),
    sure: bool = True,
) -> Row:
    return Row(
        topic=Topic.BEHAVIOUR,
        name=name,
        span=span(since, until),
        on=on,
        why=why,
        only=only,
        source=source,
        certainty=Certainty.VERIFIED if sure else Certainty.INFERRED,
    )


V0_ENGINE = _row(
    "V0 engine",
    "0.4.1",
    "0.10.0",
    source="removed by #21152",
    why="the only one before 0.8; then by VLLM_USE_V1=0, or because V1 lacks the method",
)
V1_ENGINE = _row("V1 engine by default", "0.8.0", source="VLLM_USE_V1 is 1 unless set")
RUNNER_V2 = _row(
    "Model Runner V2 exists",
    "0.24.0",
    source="VLLM_USE_V2_MODEL_RUNNER",
    why="VLLM_USE_V2_MODEL_RUNNER=0 or 1 chooses",
    sure=False,
)
RUNNER_V2_DEFAULT = _row(
    "Model Runner V2 by default",
    "0.25.0",
    source="#44443 for dense models, #53183 for all of them",
    why="dense models from about 0.25, all models from about 0.29",
    sure=False,
)
RUNNER_V1_FALLBACK = _row(
    "Model Runner V1 for what V2 lacks",
    "0.25.0",
    only=frozenset({"suffix", "medusa", "mlp_speculator", "custom_class"}),
    source="config/vllm.py of 0.32.0; before it, assumed",
    sure=False,
)
NEEDS_BLOCK_MANAGER_V2 = _row(
    "speculation needs --use-v2-block-manager",
    "0.4.1",
    "0.6.6",
    source="ValueError in config.py of 0.4.1; the default in 0.6.6",
)
EMPTY_IS_OFF = _row(
    "an empty value and None mean off",
    "0.10.1",
    source="#22652",
    why="before, they are no JSON and stop the engine",
)
NESTED_YAML = _row(
    "a mapping in the file of --config",
    "0.16.0",
    source="#33193",
    why="before, a JSON string only",
)
READABLE_INTEGERS = _row(
    "1k for 1000 in a dotted key",
    "0.20.0",
    source="argparse_utils.py of 0.20.0",
)
SPECULATORS = _row(
    "a checkpoint in the speculators format turns speculation on by itself",
    "0.10.2",
    source="maybe_override_with_speculators, read in 0.32.0 and 0.33.0; the first release not",
    why="no flag turns it off; method and model are locked",
    sure=False,
)

BEHAVIOURS: tuple[Row, ...] = (
    V0_ENGINE,
    V1_ENGINE,
    RUNNER_V2,
    RUNNER_V2_DEFAULT,
    RUNNER_V1_FALLBACK,
    NEEDS_BLOCK_MANAGER_V2,
    EMPTY_IS_OFF,
    NESTED_YAML,
    READABLE_INTEGERS,
    SPECULATORS,
    _row(
        "no flag, route or file changes speculation of a running engine",
        "0.4.1",
        source="no route and no scheduler method in 0.33.0 (#7569, #55412 closed)",
        why="a change of setting is a restart",
    ),
    _row(
        "--config=FILE is ignored",
        "0.4.1",
        source="argparse_utils.py: only --config FILE, in two words, is expanded",
        why="the file is not read, and nothing says so",
        sure=False,
    ),
)
"""Behaviours."""
