"""``python -m tests.cluster up --dir DIR``: a cluster to explore by hand, until Ctrl-C."""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import signal
import sys
import time
from pathlib import Path

from tests.cluster.build import BuildError
from tests.cluster.cluster import Cluster, ClusterOptions
from tests.cluster.processes import ProcessError

_STATE = "cluster.json"
_CHECK_EVERY = 1.0


def main() -> None:
    """Parse the command line and run until a signal."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    commands = parser.add_subparsers(required=True)
    up = commands.add_parser("up", help="start a cluster and keep it until Ctrl-C")
    up.add_argument(
        "--dir", type=Path, required=True, help="for data and logs; emptied at the start"
    )
    up.add_argument("--nodes", type=int, default=2, help="nodes with GPUs (default: %(default)s)")
    up.add_argument("--gpus", type=int, default=8, help="GPUs of each node (default: %(default)s)")
    up.add_argument(
        "--scrape-interval", type=float, default=1.0, help="seconds (default: %(default)s)"
    )
    up.add_argument(
        "--image",
        action="append",
        type=_image,
        default=[],
        metavar="PREFIX=COMMAND",
        help="let images whose name starts with PREFIX run COMMAND of this machine; repeatable",
    )
    arguments = parser.parse_args()
    try:
        _up(
            directory=_emptied(arguments.dir.resolve()),
            options=ClusterOptions(
                gpu_nodes=arguments.nodes,
                gpus_per_node=arguments.gpus,
                scrape_interval=arguments.scrape_interval,
            ),
            images=dict(arguments.image),
        )
    except (BuildError, ProcessError) as error:
        sys.exit(str(error))


def _image(text: str) -> tuple[str, list[str]]:
    prefix, separator, command = text.partition("=")
    if not (prefix and separator and command):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not PREFIX=COMMAND, such as 'vllm/vllm-openai:=vllm serve'"
        )
    return prefix, shlex.split(command)


def _emptied(directory: Path) -> Path:
    """Remove an earlier cluster's files, and refuse to touch anything else."""
    if directory.exists() and any(directory.iterdir()):
        if not (directory / _STATE).exists():
            sys.exit(
                f"--dir {directory} holds files that are no cluster's: name an empty directory"
            )
        shutil.rmtree(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / _STATE).write_text("{}\n")
    return directory


def _up(*, directory: Path, options: ClusterOptions, images: dict[str, list[str]]) -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with Cluster(directory=directory, options=options) as cluster:
            for prefix, entrypoint in images.items():
                cluster.images.add(prefix, entrypoint=entrypoint)
            state = {
                "kubeconfig": str(cluster.kubeconfig),
                "prometheus": cluster.prometheus.url,
                "bin": str(cluster.bin),
            }
            (directory / _STATE).write_text(json.dumps(state, indent=2) + "\n")
            print(  # noqa: T201 - the command's result
                f"export KUBECONFIG={cluster.kubeconfig}\n"
                f"export PATH={cluster.bin}:$PATH\n"
                f"export PROMETHEUS_URL={cluster.prometheus.url}\n"
                f"# logs, volumes and data: {directory}\n"
                "# running; Ctrl-C ends it",
                flush=True,
            )
            while True:
                time.sleep(_CHECK_EVERY)
                cluster.check()
    except KeyboardInterrupt:
        print("# stopped", file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    main()
