"""The owners' adapters: each trap a row, with its reason."""

import copy
import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import yaml

from specpilot.domain.settings import UNRECOGNISED, Declared
from specpilot.domain.targets import TargetRef
from specpilot.fleets.kubernetes import gitops, problems
from specpilot.fleets.kubernetes.channels import choose
from specpilot.fleets.kubernetes.channels.base import Letters, View
from specpilot.fleets.kubernetes.observing import container_of
from specpilot.fleets.kubernetes.request import DEPLOYMENTS, REPLICA_SETS, Request
from specpilot.fleets.kubernetes.wiring import KEPT_ANNOTATION, PREVIOUS_ANNOTATION
from specpilot.fleets.kubernetes.workloads import WORKLOADS
from specpilot.fleets.kubernetes.workloads.base import Family, dig
from specpilot.fleets.kubernetes.workloads.vllmruntime import HASH_ANNOTATION
from tests.unit.fleets_kubernetes.fakes import Object, deployment, owner, pod

NGRAM = Declared(setting="ngram", config='{"method":"ngram"}', change_id="c-1")
OFF = Declared()
FLAG = f"--speculative-config={NGRAM.config}"
MARGIN = "--seed=1"


def root(kind: str, **spec: Any) -> Object:
    resource = WORKLOADS[kind].resource
    return {
        "apiVersion": resource.api_version,
        "kind": kind,
        "metadata": {
            "name": "chat",
            "namespace": "serving",
            "uid": "root",
            "resourceVersion": "5",
            "generation": 2,
        },
        "spec": spec,
    }


def isvc(*args: str, mode: str = "Standard", **predictor: Any) -> Object:
    found = root(
        "InferenceService",
        predictor={"minReplicas": 3, "model": {"args": [*args]}, **predictor},
    )
    found["metadata"]["annotations"] = {"serving.kserve.io/deploymentMode": mode}
    return found


def llm(text: str | None = "", *, main: Object | None = None, **spec: Any) -> Object:
    env = [{"name": "A", "value": "1"}]
    env += [] if text is None else [{"name": "VLLM_ADDITIONAL_ARGS", "value": text}]
    containers = [{"name": "main", "env": env, **(main or {})}]
    return root("LLMInferenceService", replicas=2, template={"containers": containers}, **spec)


def runtime(*args: str) -> Object:
    return root(
        "VLLMRuntime",
        vllmConfig={"extraArgs": [*args]},
        deploymentConfig={"replicas": 2, "podAnnotations": {"theirs": "x"}},
    )


def dynamo(*args: str, **services: Any) -> Object:
    main = {"command": ["python3", "-m", "dynamo.vllm"], "args": ["--model", "m", *args]}
    worker = {"replicas": 2, "extraPodSpec": {"mainContainer": main}}
    frontend = {"replicas": 1, "componentType": "frontend"}
    return root(
        "DynamoGraphDeployment", services={"Frontend": frontend, "Worker": worker, **services}
    )


def storm(*args: str, roles: int = 1, **role: Any) -> Object:
    one = {"name": "vllm", "image": "i", "command": ["vllm", "serve", "m", *args]}
    template = {"spec": {"containers": [one]}}
    found = [
        {"name": f"role-{i}", "replicas": 2, "template": copy.deepcopy(template), **role}
        for i in range(roles)
    ]
    return root("StormService", replicas=1, template={"spec": {"roles": found}})


def model(*args: str, engine: str = "VLLM") -> Object:
    return root("Model", engine=engine, args=[*args], replicas=2)


def ray(line: str = "") -> Object:
    text = (
        "applications:\n- name: llm\n  args:\n    llm_configs:\n    - model_id: m\n"
        f"      engine_kwargs:\n        seed: 1  # ours\n{line}"
    )
    return root("RayService", serveConfigV2=text)


USERS = {
    "InferenceService": isvc(MARGIN),
    "LLMInferenceService": llm(MARGIN),
    "VLLMRuntime": runtime(MARGIN),
    "DynamoGraphDeployment": dynamo(MARGIN),
    "StormService": storm(MARGIN),
    "Model": model(MARGIN),
    "RayService": ray(),
}


def view_of(obj: Object, *pods: Object, version: str = "0.32.0", answer: str = "") -> View:
    workload = WORKLOADS[obj["kind"]]
    ref = TargetRef(kind=obj["kind"], namespace="serving", name="chat")
    container = container_of(ref, workload, obj) or ""
    return View(
        workload=workload, root=obj, container=container, version=version, pods=pods, answer=answer
    )


def channel_of(obj: Object) -> Any:
    return WORKLOADS[obj["kind"]].owner_channel


def letters(obj: Object, wanted: Declared) -> Letters:
    found: Letters = channel_of(obj).letters(view_of(obj), Family(root=obj), wanted)
    return found


def request(obj: Object, wanted: Declared) -> Request:
    found = channel_of(obj).request(view_of(obj), letters(obj, wanted), hold=None, manager="s")
    assert isinstance(found, Request)
    return found


def patched(obj: Object, wanted: Declared) -> Object:
    """The object after the request, as the API server would have it."""
    obj = copy.deepcopy(obj)
    for step in request(obj, wanted).body or ():
        path = [p.replace("~1", "/").replace("~0", "~") for p in step["path"].split("/")[1:]]
        parent: Any = obj
        for name in path[:-1]:
            parent = parent[int(name)] if isinstance(parent, list) else parent[name]
        if step["op"] == "test":
            assert parent[path[-1]] == step["value"], step
        elif step["op"] == "remove":
            del parent[path[-1]]
        else:
            parent[path[-1]] = copy.deepcopy(step["value"])
    return obj


@pytest.mark.parametrize("kind", USERS)
class TestEvery:
    def test_auto_takes_the_owners_field(self, kind: str) -> None:
        from specpilot.domain.targets import Channel

        workload = WORKLOADS[kind]
        assert choose(workload, Channel.AUTO) is workload.owner_channel
        assert choose(workload, Channel.ANNOTATION) is None, "its controller would undo it"

    def test_a_setting_is_written_under_a_test_of_what_stood_there(self, kind: str) -> None:
        before = USERS[kind]
        body = request(before, NGRAM).body or ()
        assert [step["op"] for step in body].count("test") >= 2
        for path in channel_of(before).values(view_of(before)):
            if dig(before, path) is not None:
                assert any(s["op"] == "test" and s["value"] == dig(before, path) for s in body)
        after = patched(before, NGRAM)
        assert channel_of(after).declared(view_of(after)) == NGRAM

    def test_going_back_is_to_the_letter(self, kind: str) -> None:
        before = USERS[kind]
        back = patched(patched(before, NGRAM), OFF)
        if kind == "VLLMRuntime":  # it has to see that something was taken back
            del back["spec"]["deploymentConfig"]["podAnnotations"][HASH_ANNOTATION]
        assert back == before

    def test_our_write_is_nobodys_edit_and_what_scales_is_none(self, kind: str) -> None:
        before = USERS[kind]
        after = patched(before, NGRAM)
        edits = channel_of(before).edits
        assert edits(view_of(before)) == edits(view_of(after))
        at = WORKLOADS[kind].replicas_at(before)
        if at and dig(before, at) is not None:
            scaled = copy.deepcopy(after)
            dig(scaled, at[:-1])[at[-1]] = 9
            if kind not in {"StormService", "InferenceService"}:
                assert WORKLOADS[kind].replicas_wanted(scaled) == 9
            assert edits(view_of(scaled)) == edits(view_of(before))

    def test_what_the_user_changes_beside_it_is_an_edit_and_stays(self, kind: str) -> None:
        before = USERS[kind]
        after = patched(before, NGRAM)
        text = json.dumps(after["spec"]).replace(MARGIN, "--seed=2").replace("seed: 1", "seed: 2")
        edited = {**after, "spec": json.loads(text)}
        edits = channel_of(before).edits
        assert edits(view_of(edited)) != edits(view_of(before))
        back = json.dumps(patched(edited, OFF)["spec"])
        assert "seed=2" in back or "seed: 2" in back
        assert "ngram" not in back

    def test_it_holds_nothing_unless_it_says_so(self, kind: str) -> None:
        workload = WORKLOADS[kind]
        assert workload.unheld(USERS[kind])
        assert workload.hold_at_once(USERS[kind], canaries=1) is None
        assert workload.hold(USERS[kind], lambda: Family(root=USERS[kind]), canaries=1) is None


@pytest.mark.parametrize("kind", USERS)
def test_a_gitops_tool_is_told_to_leave_what_we_write_and_nothing_else(kind: str) -> None:
    """An empty pointer would be the whole object."""
    found = copy.deepcopy(USERS[kind])
    annotated = {**(found["metadata"].get("annotations") or {})}
    found["metadata"]["annotations"] = {**annotated, gitops.ARGO_TRACKING: "app:x"}
    keeper = gitops.keeper(found, field_manager="specpilot")
    assert keeper is not None
    [ignored] = yaml.safe_load(keeper.snippet)["spec"]["ignoreDifferences"]
    pointers = ignored["jsonPointers"]
    assert "" not in pointers
    written = {step["path"] for step in request(USERS[kind], NGRAM).body or ()}
    written -= {"/metadata/uid", "/metadata/resourceVersion"}
    assert all(any(p.startswith(w) or w.startswith(p) for p in pointers) for w in written)


@pytest.mark.parametrize("kind", USERS)
def test_what_is_only_proposed_names_the_field(kind: str) -> None:
    ref = TargetRef(kind=kind, namespace="serving", name="chat")
    text = gitops.patch(ref, NGRAM)
    assert text.startswith(f"# {kind} chat, ")
    assert NGRAM.config in text


@dataclass(frozen=True)
class Refused:
    reason: str
    root: Object
    says: str
    pods: tuple[Object, ...] = ()
    version: str = "0.32.0"


def engine_pod(name: str, *line: str, env: Any = (), **metadata: Any) -> Object:
    container = {"name": name, "image": "i", "command": [*line], "env": [*env]}
    return pod(container=container, metadata=metadata)


EVAL = 'eval "exec vllm serve /m ${VLLM_ADDITIONAL_ARGS} $@"'

REFUSED = [
    Refused("no version", isvc(), "version is not known", version=""),
    Refused("a predictor of the old kind", isvc(model=None, huggingface={}),
            "spec.predictor.model with its modelFormat"),
    Refused("several nodes", isvc(workerSpec={"size": 2}), "spec.predictor.workerSpec"),
    Refused("ModelMesh", isvc(mode="ModelMesh"), "ModelMesh"),
    Refused("a container of its own behind a shell",
            isvc(model=None, containers=[
                {"name": "kserve-container", "command": ["sh", "-c", "vllm serve m"]}]),
            "shell script"),
    Refused("the runtime speculates by itself: off could not be said here", isvc(),
            "does not come from this object",
            (engine_pod("kserve-container", "vllm", "serve", "m", FLAG),)),
    Refused("what the pods run cannot be read", isvc(), "could be verified",
            (engine_pod("kserve-container", "sh", "-c", "exec serve-it $X"),)),
    Refused("nothing to write into", llm(main={"name": "other"}), "- name: main"),
    Refused("several nodes", llm(worker={"a": 1}), "spec.worker"),
    Refused("prefill and decode", llm(prefill={"a": 1}), "spec.prefill"),
    Refused("KServe's own field", llm(speculator={"a": 1}), "spec.speculator"),
    Refused("eval would expand it", llm("--x $HOME"), "the shell acts on"),
    Refused("args come later and win", llm(main={"args": [FLAG]}), "would win over"),
    Refused("the text is elsewhere",
            llm(None, main={"env": [{"name": "VLLM_ADDITIONAL_ARGS", "valueFrom": {"x": 1}}]}),
            "valueFrom"),
    Refused("a preset that does not read the variable", llm(), "do not read VLLM_ADDITIONAL_ARGS",
            (engine_pod("main", "vllm", "serve", "m"),)),
    Refused("no configuration", root("VLLMRuntime"), "spec.vllmConfig"),
    Refused("no worker of vLLM", root("DynamoGraphDeployment", services={}), "dynamo.vllm"),
    Refused("prefill and decode",
            dynamo(Prefill=dynamo()["spec"]["services"]["Worker"]), "Worker, Prefill"),
    Refused("several nodes", dynamo(Worker={
        **dynamo()["spec"]["services"]["Worker"], "multinode": {"nodeCount": 2}}),
        "over several nodes"),
    Refused("prefill and decode", storm(roles=2), "role-0, role-1"),
    Refused("groups", storm(podGroupSize=2), "several pods each"),
    Refused("no engine", root("StormService", template={"spec": {"roles": []}}), "no role"),
    Refused("paused", {**storm(), "spec": {**storm()["spec"], "paused": True}}, "spec.paused"),
    Refused("another engine", model(engine="OLlama"), "only VLLM"),
    Refused("two models", root("RayService", serveConfigV2=(
        "applications: [{args: {llm_configs: [{a: 1}, {a: 2}]}}]")), "has 2 entries"),
    Refused("no models", root("RayService", serveConfigV2="applications: []"), "has 0 entries"),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=lambda c: f"{c.root['kind']}: {c.reason}")
def test_refused_with_words_before_anything_starts(case: Refused) -> None:
    workload = WORKLOADS[case.root["kind"]]
    found = workload.problem(case.root)
    if found is None:
        view = view_of(case.root, *case.pods, version=case.version)
        found = channel_of(case.root).problem(view)
    assert found is not None
    assert case.says in found.message
    assert "serving/chat" in found.message


@pytest.mark.parametrize("kind", USERS)
def test_what_users_have_is_not_refused(kind: str) -> None:
    found = USERS[kind]
    assert WORKLOADS[kind].problem(found) is None
    assert channel_of(found).problem(view_of(found)) is None


def test_json_gets_literal_single_quotes_where_eval_reads_it_again() -> None:
    after = patched(llm("--seed 1"), NGRAM)
    [_, entry] = after["spec"]["template"]["containers"][0]["env"]
    assert entry["value"] == f"--seed 1 '{FLAG}'"
    env = after["spec"]["template"]["containers"][0]["env"]
    found = engine_pod("main", "bash", "-c", EVAL, "--", env=env)
    view = view_of(after, found)
    assert channel_of(after).runs(view, found, found["spec"]["containers"][0]) == NGRAM
    bare = engine_pod(
        "main", "bash", "-c", EVAL, "--", env=[{**entry, "value": f"--seed 1 {FLAG}"}]
    )
    runs = channel_of(after).runs(view, bare, bare["spec"]["containers"][0])
    assert runs != NGRAM, "without them the shell takes the quotes of the JSON away"


def test_args_of_its_own_command_are_used_in_the_place_of_the_variable() -> None:
    before = llm(main={"command": ["vllm", "serve", "m"], "args": [MARGIN]})
    after = patched(before, NGRAM)
    assert after["spec"]["template"]["containers"][0]["args"] == [MARGIN, FLAG]


def test_the_production_stack_sees_a_change_only_by_an_annotation() -> None:
    """Also when it is taken back: an older controller does not see one that is gone."""
    hashes = [
        dig(found, ("spec", "deploymentConfig", "podAnnotations", HASH_ANNOTATION))
        for found in (
            patched(runtime(), NGRAM),
            patched(patched(runtime(), NGRAM), OFF),
            patched(runtime(), replace(NGRAM, config="", setting="off")),
        )
    ]
    assert all(hashes)
    assert len(set(hashes)) == 3


def test_the_pods_of_both_arms_are_known_where_annotations_do_not_reach_them() -> None:
    after = patched(model(), NGRAM)
    noted = after["metadata"]["annotations"]
    assert json.loads(noted[PREVIOUS_ANNOTATION])["setting"] == "off"
    assert json.loads(noted[KEPT_ANNOTATION]) == [[["spec", "args"], []]]
    view = view_of(after)
    for line, want in ((("m", FLAG), NGRAM), (("m",), OFF)):
        found = engine_pod("server", "vllm", "serve", *line)
        assert channel_of(after).runs(view, found, found["spec"]["containers"][0]) == want


class TestServerless:
    """KServe's own canary: a share of the traffic."""

    on = isvc(mode="Serverless")
    workload = WORKLOADS["InferenceService"]

    def test_it_is_held_by_traffic(self) -> None:
        assert self.workload.unheld(self.on) == ""
        assert self.workload.hold_at_once(self.on, canaries=1) == 25, "one of four"
        held = isvc(mode="Serverless", canaryTrafficPercent=10)
        look = lambda: Family(root=held)  # noqa: E731 - never called
        assert self.workload.hold(held, look, canaries=1) == 10, "not written again and again"
        assert self.workload.holds(10)
        assert not self.workload.holds(100)

    def test_the_mode_is_read_from_the_status_where_no_annotation_says_it(self) -> None:
        found = isvc()
        del found["metadata"]["annotations"]
        assert self.workload.unheld(found), "unknown is not held"
        found["status"] = {"components": {"predictor": {"latestCreatedRevision": "r-1"}}}
        assert not self.workload.unheld(found)

    @pytest.mark.parametrize(
        ("status", "may"),
        [
            ({}, False),
            ({"observedGeneration": 1, "components": {"predictor": {
                "latestCreatedRevision": "r", "latestReadyRevision": "r"}}}, False),
            ({"observedGeneration": 2, "components": {"predictor": {
                "latestCreatedRevision": "r-3", "latestReadyRevision": "r-2"}}}, False),
            ({"observedGeneration": 2, "components": {"predictor": {
                "latestCreatedRevision": "r-3", "latestReadyRevision": "r-3"}}}, True),
        ],
    )  # fmt: skip
    def test_the_revision_that_is_left_gets_no_traffic_on_the_way_back(
        self, status: Object, may: bool
    ) -> None:
        assert self.workload.hold_going_back(self.on) == 0
        held = {**isvc(mode="Serverless", canaryTrafficPercent=0), "status": status}
        assert self.workload.may_release(held) is may
        assert self.workload.may_release(isvc()), "nothing to wait for in Standard mode"

    def test_a_revision_comes_whole(self) -> None:
        """So its GPUs are counted for all of its replicas."""
        below = deployment(metadata={"name": "chat-predictor-00001-deployment", "uid": "d"})
        family = Family(root=self.on, members={DEPLOYMENTS: (below,)})
        assert len(self.workload.must_surge(family)) == 3


def owned(obj: Object, above: Object) -> Object:
    obj["metadata"]["ownerReferences"] = [owner("x", "x", above["metadata"]["uid"])]
    return obj


def chain(root_: Object, name: str, uid: str, **labels: str) -> tuple[Object, Object, Object]:
    one = owned(deployment(metadata={"name": name, "uid": uid, "labels": labels}), root_)
    sets = owned({"metadata": {"name": name, "uid": f"{uid}-rs"}, "spec": {"replicas": 1}}, one)
    return one, sets, owned(pod(f"{name}-1", metadata={"uid": f"{uid}-pod"}), sets)


@pytest.mark.parametrize(
    ("obj", "engine", "other"),
    [
        (isvc(), ("chat-predictor", {}), ("chat-transformer", {})),
        (llm(), ("x", {"kserve.io/component": "workload"}), ("chat-router-scheduler", {})),
        (llm(), ("chat-kserve", {}), ("chat-router-scheduler", {})),
        (
            dynamo(),
            ("w", {"nvidia.com/dynamo-component": "Worker"}),
            ("f", {"nvidia.com/dynamo-component": "Frontend"}),
        ),
    ],
    ids=lambda v: v["kind"] if isinstance(v, dict) and "kind" in v else "",
)
def test_only_pods_that_run_the_engine_count(obj: Object, engine: Any, other: Any) -> None:
    mine = chain(obj, engine[0], "mine", **engine[1])
    theirs = chain(obj, other[0], "theirs", **other[1])
    family = Family(
        root=obj,
        members={DEPLOYMENTS: (mine[0], theirs[0]), REPLICA_SETS: (mine[1], theirs[1])},
        pods=(mine[2], theirs[2]),
    )
    assert WORKLOADS[obj["kind"]].replicas(family) == [(mine[2],)]


def test_kubeai_starts_one_more_first_and_has_to_find_a_place_for_it() -> None:
    workload, one = WORKLOADS["Model"], pod()
    family = Family(root=model(), pods=(one, pod("chat-2")))
    assert not workload.must_surge(family), "its surge may be 0, and is not to be read"
    assert "modelRollouts.surge" in workload.unheld(model())
    assert workload.can_add_replica(family, lambda specs: specs == [one["spec"]])
    assert not workload.can_add_replica(family, lambda _: False)


@dataclass(frozen=True)
class Answer:
    reason: str
    want: str
    status: str = "RUNNING"
    states: tuple[str, ...] = ("HEALTHY",)
    line: str = "        speculative_config: {method: ngram}\n"
    fields: dict[str, Any] = field(default_factory=dict)


@pytest.mark.parametrize(
    "case",
    [
        Answer("it runs what is written", "ngram"),
        Answer("it runs without", "off", line=""),
        Answer("it is being deployed", UNRECOGNISED, status="DEPLOYING"),
        Answer("a replica is not healthy", UNRECOGNISED, states=("HEALTHY", "UPDATING")),
        Answer("it was deployed by hand", UNRECOGNISED, fields={"deployed_app_config": None}),
    ],
    ids=lambda case: case.reason,
)
def test_what_ray_serve_says_counts_and_not_what_is_written(case: Answer) -> None:
    after = patched(ray(), NGRAM)
    [application] = yaml.safe_load(ray(case.line)["spec"]["serveConfigV2"])["applications"]
    deployments = {str(i): {"status": s} for i, s in enumerate(case.states)}
    state = {
        "status": case.status,
        "deployed_app_config": application,
        "deployments": deployments,
        **case.fields,
    }
    view = view_of(after, answer=json.dumps({"applications": {"llm": state}}))
    assert channel_of(after).runs(view, {}, {}).setting == case.want


def test_without_an_answer_nothing_is_known_of_ray_serve() -> None:
    view = view_of(ray(), pod())
    assert channel_of(ray()).question(view) == "http://10.0.0.7:8265/api/serve/applications/"
    assert channel_of(ray()).runs(view, {}, {}).setting == UNRECOGNISED


def test_a_second_ray_cluster_is_named_with_what_it_costs() -> None:
    found = {**ray(), "status": {"observedGeneration": 2, "pendingServiceStatus": {
        "rayClusterName": "chat-2"}}}  # fmt: skip
    words = WORKLOADS["RayService"].rolling(Family(root=found))
    assert words == "a second RayCluster chat-2 is being started, with as many GPUs"


@pytest.mark.parametrize(
    ("api_version", "kind", "says"),
    [
        ("serving.kserve.io/v1beta1", "InferenceService", "target: {kind: InferenceService, name"),
        ("nvidia.com/v1alpha1", "DynamoComponentDeployment", "Steer the DynamoGraphDeployment"),
        ("example.com/v1", "Model", "does not steer Model objects"),
    ],
)
def test_a_deployment_that_is_owned_points_to_its_owner(
    api_version: str, kind: str, says: str
) -> None:
    found = deployment()
    found["metadata"]["ownerReferences"] = [
        {"apiVersion": api_version, "kind": kind, "name": "x", "uid": "u", "controller": True}
    ]
    ref = TargetRef(kind="Deployment", namespace="serving", name="chat")
    problem = problems.owned(ref, found, kinds=WORKLOADS)
    assert problem is not None
    assert says in problem.message
