"""What each engine version accepts: render a setting into arguments, parse arguments back.

render(setting, version=...) -> Rendered
parse(argv, version=..., ...) -> Parsed
"""

from specpilot.engines.parse import Parsed, parse
from specpilot.engines.render import Rendered, arguments, empty_value_is_off, render

__all__ = ["Parsed", "Rendered", "arguments", "empty_value_is_off", "parse", "render"]
