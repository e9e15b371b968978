"""Lint of a file: what cannot be read, with its line, and what well-known names are called here."""

from textwrap import dedent

import pytest

from specpilot.domain.linting import Code
from specpilot.resources.rule_lint import lint_text

HEAD = "apiVersion: specpilot.io/v1alpha1\nkind: RuleSet\nmetadata: {name: r}\n"


def found(spec: str) -> list[tuple[Code, int | None, str]]:
    findings = lint_text(HEAD + dedent(spec), source="r.yaml")
    return [(f.code, f.line, f.message) for f in findings]


def test_every_condition_that_is_wrong_is_told_with_its_line() -> None:
    findings = found("""\
        spec:
          rules:
            - name: a
              when: batch_sise > 32
              for: 5m
              setting: "off"
            - name: b
              for: 5m
              when: >-
                batch_size > 32
              until: queue_depht < 1
              setting: "off"
    """)
    assert [(code, line) for code, line, _ in findings] == [
        (Code.UNKNOWN_NAME, 7),
        (Code.UNKNOWN_NAME, 14),
    ]
    assert "did you mean batch_size?" in findings[0][2]
    assert findings[0][2].endswith("^")


@pytest.mark.parametrize(
    ("when", "code", "says", "reason"),
    [
        ("itl_p99 > 1", Code.UNKNOWN_NAME, "once per output", "ITL misleads under speculation"),
        ("inter_token_latency > 1", Code.UNKNOWN_NAME, "tpot_mean", "the same by another name"),
        ("batch_size_p99 > 1", Code.UNKNOWN_NAME, "no percentile", "a gauge has no percentile"),
        ("num_requests_running > 1", Code.UNKNOWN_NAME, "use batch_size", "the engine's name"),
        ("qps > 1", Code.UNKNOWN_NAME, "requests_per_second", "a usual name"),
        ("batch_size > params.busy", Code.UNKNOWN_NAME, "no parameter called busy", "no parameter"),
        ("target.versoin > 32", Code.UNKNOWN_NAME, "target has no versoin", "no such member"),
        ("batch_size >", Code.INVALID, "the condition ends", "not of the language"),
        ("batch_size", Code.INVALID, "must be true or false", "no condition"),
        ("batch_size > 5m", Code.INVALID, "they do not go together", "a unit that does not fit"),
    ],
)
def test_a_condition_that_does_not_compile(when: str, code: Code, says: str, reason: str) -> None:
    ((got, line, message),) = found(f"""\
        spec:
          rules:
            - {{name: a, when: "{when}", setting: "off", for: 5m}}
    """)
    assert (got, line) == (code, 6), reason
    assert says in message, reason


def test_a_field_that_is_wrong_has_its_line_too() -> None:
    findings = found("""\
        spec:
          rules:
            - name: a
              when: batch_size > 32
              fro: 5m
              setting: "off"
    """)
    assert [(code, line) for code, line, _ in findings] == [(Code.INVALID, 8)]


def test_a_time_without_its_unit_is_no_unknown_name() -> None:
    (finding,) = found("""\
        spec:
          rules:
            - {name: a, when: batch_size > 32, setting: "off", for: 5}
    """)
    assert finding[0] is Code.INVALID
    assert "write 5s or 5m" in finding[2]


def test_text_that_is_no_yaml_is_told_with_its_line() -> None:
    ((code, line, _),) = found("spec: {rules: [\n")
    assert (code, line) == (Code.INVALID, 5)


def test_a_file_without_a_rule_set_is_not_sound() -> None:
    (finding,) = lint_text("kind: SpeculationPolicy\n", source="p.yaml")
    assert finding.code is Code.INVALID


def test_documents_of_other_kinds_are_left_alone() -> None:
    other = "kind: Deployment\n---\n"
    text = HEAD + "spec: {rules: [{name: a, when: batch_size > 9, for: 5m, setting: 'off'}]}\n"
    assert lint_text(other + text, source="r.yaml") == []


def test_rules_are_looked_at_with_the_parameters_of_a_policy() -> None:
    text = HEAD + dedent("""\
        spec:
          parameters: {bound: 0}
          rules:
            - name: a
              when: params.bound > 0 && tpot_p99 > params.bound
              for: 5m
              setting: "off"
    """)
    assert [f.code for f in lint_text(text, source="r")] == [Code.NEEDS_PARAMETER]
    stated = lint_text(text, source="r", parameters={"bound": 0.03})
    assert [(f.code, f.line) for f in stated] == [(Code.INSIDE_BUCKET, 8)]
    (wrong,) = lint_text(text, source="r", parameters={"bond": 0.03})
    assert (wrong.code, wrong.field) == (Code.UNKNOWN_NAME, "parameters")
