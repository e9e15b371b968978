"""A supervisor to be killed: starts the group that the test names, and waits."""

import sys
import threading
from pathlib import Path

from specpilot.fleets.local import LocalFleet
from tests.integration.local.support import TINY, SystemClock, group

if __name__ == "__main__":
    spec = group(replicas=2, command=(*TINY, "--family"), stop_grace=0.5)
    fleet = LocalFleet([spec], state_dir=Path(sys.argv[1]), clock=SystemClock())
    fleet.start()
    sys.stdout.write(fleet.gateway_url("chat") + "\n")
    sys.stdout.flush()
    threading.Event().wait()
