"""What each engine version accepts: render a setting into arguments, parse arguments back.

render(setting, version=..., runtime=...) -> Rendered
render_for(setting, run) -> Rendered, for an engine that a fleet has seen
parse(argv, version=..., ...) -> Parsed
without_speculation(argv) -> argv
capabilities.TABLE: every fact that both rest on
"""

from specpilot.engines.capabilities import On, Runtime
from specpilot.engines.parse import Parsed, parse
from specpilot.engines.render import Rendered, arguments, empty_value_is_off, render
from specpilot.engines.runs import is_rendering, render_for
from specpilot.engines.strip import without_speculation
from specpilot.engines.words import CommandLineError

__all__ = [
    "CommandLineError",
    "On",
    "Parsed",
    "Rendered",
    "Runtime",
    "arguments",
    "empty_value_is_off",
    "is_rendering",
    "parse",
    "render",
    "render_for",
    "without_speculation",
]
