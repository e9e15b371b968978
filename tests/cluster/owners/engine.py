"""What the images of the owners' pods hold here: `vllm`, and Python modules that serve.

Each of them is :mod:`tests.cluster.workload`, which tells the arguments it was really given.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.cluster.cluster import Cluster
from tests.cluster.manifests import WORKLOAD

IMAGE = "vllm-owners/vllm-openai:v0.32.0"

_RUN = f"import runpy; runpy.run_path({WORKLOAD[-1]!r}, run_name='__main__')\n"
_DASHBOARD = '''\
"""The head pod: answers what the file says, as Ray's dashboard does at /api/serve/applications/."""
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        with open(os.environ["DASHBOARD_FILE"], "rb") as file:
            body = file.read()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


ThreadingHTTPServer((os.environ["POD_IP"], 8265), Handler).serve_forever()
'''


def install(cluster: Cluster) -> Path:
    """Let the image of any version start them; the directory holds files that pods read."""
    home = cluster.directory / "owners"
    files = {
        home / "bin" / "vllm": f'#!/bin/sh\nexec {sys.executable} {WORKLOAD[-1]} "$@"\n',
        home / "bin" / "python": f'#!/bin/sh\nexec {sys.executable} "$@"\n',
        home / "bin" / "python3": f'#!/bin/sh\nexec {sys.executable} "$@"\n',
        home / "lib" / "vllm" / "entrypoints" / "openai" / "api_server.py": _RUN,
        home / "lib" / "dynamo" / "vllm.py": _RUN,
        home / "lib" / "dashboard.py": _DASHBOARD,
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    cluster.images.add(
        "vllm-owners/vllm-openai:",
        entrypoint=WORKLOAD,
        environment={
            "PATH": f"{home / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(home / "lib"),
        },
    )
    return home
