"""Players who act for the owners' controllers, as those are documented to act.

Each knows one kind: an object as a user writes it, and what its controller makes of it. They are
small on purpose, and true in what decides here: which field reaches the pods, what is compared,
what is undone. They are no proof that a release of the real controller does the same.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.conditions import is_ready
from tests.cluster.manifests import container, deployment
from tests.cluster.owners.engine import IMAGE
from tests.cluster.owners.player import Player, engine

JsonObject = dict[str, Any]


class InferenceServices(Player):
    """KServe in Standard mode: runtime and model make a Deployment, which is kept as it is."""

    api_version, kind = "serving.kserve.io/v1beta1", "InferenceService"

    def manifest(self, *words: str, replicas: int = 2) -> JsonObject:
        found = self.object(
            predictor={
                "minReplicas": replicas,
                "model": {"modelFormat": {"name": "vLLM"}, "args": list(words)},
            }
        )
        found["metadata"]["annotations"] = {"serving.kserve.io/deploymentMode": "RawDeployment"}
        return found

    def act(self, root: JsonObject) -> None:
        predictor = root["spec"]["predictor"]
        runtime = ["--port=8000", "--model=/mnt/models"]
        command = ["python", "-m", "vllm.entrypoints.openai.api_server"]
        args = [*runtime, *(predictor["model"].get("args") or ())]
        kept = {
            key: value
            for key, value in (root["metadata"].get("annotations") or {}).items()
            if "last-applied" not in key
        }
        wanted = deployment(
            "chat-predictor",
            engine("kserve-container", command=command, args=args),
            replicas=predictor["minReplicas"],
            annotations=kept,
        )
        self.deploy(wanted, owner=root, scaled=True)
        self.observed(root, deploymentMode="Standard")


class LLMInferenceServices(Player):
    """KServe's llm-d: the preset starts the engine by eval; a scheduler is deployed beside it."""

    api_version, kind = "serving.kserve.io/v1alpha1", "LLMInferenceService"
    script = 'eval "exec vllm serve /mnt/models --port 8000 ${VLLM_ADDITIONAL_ARGS} $@"'

    def manifest(self, *words: str, replicas: int = 2) -> JsonObject:
        env = [
            {"name": "HF_HOME", "value": "/models"},
            {"name": "VLLM_ADDITIONAL_ARGS", "value": " ".join(words)},
        ]
        return self.object(
            replicas=replicas, template={"containers": [{"name": "main", "env": env}]}
        )

    def act(self, root: JsonObject) -> None:
        [main] = root["spec"]["template"]["containers"]
        labels = {"kserve.io/component": "workload"}
        wanted = deployment(
            "chat-kserve",
            engine(
                "main",
                command=["bash", "-c", self.script, "--"],
                args=main.get("args") or (),
                env=main.get("env") or [],
            ),
            replicas=root["spec"]["replicas"],
            labels=labels,
        )
        wanted["metadata"]["labels"] = labels
        self.deploy(wanted, owner=root, scaled=True)
        scheduler = deployment("chat-kserve-router-scheduler", container(name="main"))
        self.deploy(scheduler, owner=root)
        self.observed(root)


class VLLMRuntimes(Player):
    """The production stack: compares replicas and wanted pod annotations, and no arguments."""

    api_version, kind = "production-stack.vllm.ai/v1alpha1", "VLLMRuntime"

    def manifest(self, *words: str, replicas: int = 2) -> JsonObject:
        registry, name = IMAGE.split("/")
        return self.object(
            model={"modelURL": "m"},
            vllmConfig={"extraArgs": list(words)},
            deploymentConfig={
                "replicas": replicas,
                "image": {"registry": registry, "name": name},
            },
        )

    def act(self, root: JsonObject) -> None:
        config = root["spec"]["deploymentConfig"]
        args = ["m", "--port", "8000", *(root["spec"]["vllmConfig"].get("extraArgs") or ())]
        wanted = deployment(
            "chat",
            engine("vllm", command=["vllm", "serve"], args=args),
            replicas=config["replicas"],
            annotations=config.get("podAnnotations") or {},
        )
        self.deploy(wanted, owner=root)

    def differs(self, found: JsonObject, wanted: JsonObject) -> bool:
        present = found["spec"]["template"]["metadata"].get("annotations") or {}
        annotations = wanted["spec"]["template"]["metadata"]["annotations"]
        return found["spec"]["replicas"] != wanted["spec"]["replicas"] or any(
            present.get(key) != value for key, value in annotations.items()
        )


class Dynamo(Player):
    """A component deployment, and below it a Deployment, for each service."""

    api_version, kind = "nvidia.com/v1alpha1", "DynamoGraphDeployment"

    def manifest(self, *words: str, replicas: int = 2) -> JsonObject:
        worker = {
            "image": IMAGE,
            "command": ["python3", "-m", "dynamo.vllm"],
            "args": ["--model", "m", *words],
        }
        return self.object(
            backendFramework="vllm",
            services={
                "Frontend": {"componentType": "frontend", "replicas": 1},
                "VllmWorker": {
                    "componentType": "worker",
                    "replicas": replicas,
                    "extraPodSpec": {"mainContainer": worker},
                },
            },
        )

    def act(self, root: JsonObject) -> None:
        for name, service in root["spec"]["services"].items():
            label = {"nvidia.com/dynamo-component": name}
            component = self.find(self.api_version, "DynamoComponentDeployment", name.lower())
            if component is None:
                component = self.make(
                    {
                        "apiVersion": self.api_version,
                        "kind": "DynamoComponentDeployment",
                        "metadata": {"name": name.lower(), "labels": label},
                        "spec": {"serviceName": name},
                    },
                    owner=root,
                )
            main = (service.get("extraPodSpec") or {}).get("mainContainer")
            one = (
                engine("main", command=main["command"], args=main["args"])
                if main
                else container(name="main")
            )
            wanted = deployment(name.lower(), one, replicas=service["replicas"], labels=label)
            wanted["metadata"]["labels"] = label
            self.deploy(wanted, owner=component)
        self.observed(root, state="successful")


class BarePods(Player):
    """Pods without a template in between, replaced when the hash of their spec changes."""

    surge = 0

    def keep(self, template: JsonObject, *, name: str, owner: JsonObject, replicas: int) -> None:
        """One step: as many pods of this template as wanted, and no others."""
        text = json.dumps(template, sort_keys=True)
        wanted = hashlib.sha256(text.encode()).hexdigest()[:8]
        pods = [
            pod
            for pod in self.api.list("v1", "Pod", namespace=self.namespace)
            if "deletionTimestamp" not in pod["metadata"]
        ]
        old = [pod for pod in pods if pod["metadata"]["labels"]["pod-hash"] != wanted]
        room = replicas + (self.surge if old else 0)
        if len(pods) < room:
            self.make(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {
                        "generateName": f"{name}-",
                        "labels": {"pod-hash": wanted},
                        "annotations": (template.get("metadata") or {}).get("annotations") or {},
                    },
                    "spec": template["spec"],
                },
                owner=owner,
            )
            return
        unready = [pod for pod in old if not is_ready(pod)]
        leaving = unready or (old if all(map(is_ready, pods)) else []) or pods[replicas + 1 :]
        if leaving and (old or len(pods) > replicas):
            self.api.delete(
                "v1", "Pod", name=leaving[0]["metadata"]["name"], namespace=self.namespace
            )


class Models(BarePods):
    """KubeAI: one pod more than wanted while old ones are there."""

    api_version, kind = "kubeai.org/v1", "Model"
    surge = 1

    def manifest(self, *words: str, replicas: int = 2) -> JsonObject:
        return self.object(
            url="hf://m/m",
            engine="VLLM",
            features=["TextGeneration"],
            args=list(words),
            replicas=replicas,
            minReplicas=0,
        )

    def act(self, root: JsonObject) -> None:
        args = ["--model=m", "--served-model-name=chat", *(root["spec"].get("args") or ())]
        command = ["python3", "-m", "vllm.entrypoints.openai.api_server"]
        spec = {"containers": [engine("server", command=command, args=args)]}
        self.keep(
            {"spec": {**spec, "terminationGracePeriodSeconds": 5}},
            name="model-chat",
            owner=root,
            replicas=root["spec"]["replicas"],
        )


class StormServices(BarePods):
    """AIBrix: a RoleSet owns the pods of the role; an old one stops before its successor starts."""

    api_version, kind = "orchestration.aibrix.ai/v1alpha1", "StormService"

    def manifest(self, *words: str, replicas: int = 2) -> JsonObject:
        one = engine("vllm", command=["vllm", "serve", "m", "--port", "8000", *words], args=())
        del one["args"]
        role = {
            "name": "server",
            "replicas": replicas,
            "template": {
                "metadata": {"labels": {"app": "chat"}},
                "spec": {"terminationGracePeriodSeconds": 5, "containers": [one]},
            },
        }
        return self.object(
            replicas=1,
            selector={"matchLabels": {"app": "chat"}},
            template={"spec": {"roles": [role]}},
        )

    def act(self, root: JsonObject) -> None:
        [role] = root["spec"]["template"]["spec"]["roles"]
        roles = self.find(self.api_version, "RoleSet", "chat-roleset") or self.make(
            {
                "apiVersion": self.api_version,
                "kind": "RoleSet",
                "metadata": {"name": "chat-roleset"},
                "spec": {},
            },
            owner=root,
        )
        self.keep(role["template"], name="chat", owner=roles, replicas=role["replicas"])
        self.observed(root)


class RayServices(Player):
    """KubeRay: a RayCluster with a head; the configuration is applied in place, no pod is replaced.

    The head answers as Ray's dashboard does: with what is deployed, and whether it runs yet.
    """

    api_version, kind = "ray.io/v1", "RayService"
    comment = "# tuned by hand, keep"

    def manifest(self, *words: str, replicas: int = 1) -> JsonObject:  # noqa: ARG002 - one
        text = (
            "applications:\n"
            f"  - name: llm  {self.comment}\n"
            "    route_prefix: /\n"
            "    import_path: ray.serve.llm:build_openai_app\n"
            "    args:\n"
            "      llm_configs:\n"
            "        - model_loading_config:\n"
            "            model_id: chat\n"
            "          engine_kwargs:\n"
            "            max_model_len: 4096   # fits\n"
            + "".join(f"            {word}\n" for word in words)
        )
        head = container(
            name="ray-head",
            image=IMAGE,
            command=["python3", "-m", "dashboard"],
            env=[{"name": "DASHBOARD_FILE", "value": str(self._file)}],
        )
        pod = {"spec": {"containers": [head]}}
        return self.object(
            serveConfigV2=text,
            rayClusterConfig={
                "headGroupSpec": {"rayStartParams": {}, "template": pod},
            },
        )

    @property
    def _file(self) -> Path:
        return self.home / f"{self.namespace}.json"

    def act(self, root: JsonObject) -> None:
        cluster = self.find(self.api_version, "RayCluster", "chat-raycluster") or self.make(
            {
                "apiVersion": self.api_version,
                "kind": "RayCluster",
                "metadata": {"name": "chat-raycluster"},
                "spec": root["spec"]["rayClusterConfig"],
            },
            owner=root,
        )
        [application] = yaml.safe_load(root["spec"]["serveConfigV2"])["applications"]
        state = {
            "status": "RUNNING",
            "deployed_app_config": application,
            "deployments": {"llm": {"status": "HEALTHY"}},
        }
        self._file.write_text(json.dumps({"applications": {"llm": state}}))
        if self.find("v1", "Pod", "chat-head") is None:
            template = root["spec"]["rayClusterConfig"]["headGroupSpec"]["template"]
            labels = {"ray.io/node-type": "head"}
            self.make(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": "chat-head", "labels": labels},
                    "spec": template["spec"],
                },
                owner=cluster,
            )
        self.observed(
            root,
            activeServiceStatus={
                "rayClusterName": "chat-raycluster",
                "applicationStatuses": {"llm": {"status": "RUNNING"}},
            },
        )


PLAYERS: tuple[type[Player], ...] = (
    InferenceServices,
    LLMInferenceServices,
    VLLMRuntimes,
    RayServices,
    Dynamo,
    StormServices,
    Models,
)
