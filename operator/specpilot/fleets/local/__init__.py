"""Groups of inference servers on one machine: supervised, switched without losing a request."""

from specpilot.fleets.local.command import Arguments
from specpilot.fleets.local.discovery import running
from specpilot.fleets.local.fleet import LocalFleet
from specpilot.fleets.local.spec import LocalGroup, LocalGroupError, Supervision

__all__ = ["Arguments", "LocalFleet", "LocalGroup", "LocalGroupError", "Supervision", "running"]
