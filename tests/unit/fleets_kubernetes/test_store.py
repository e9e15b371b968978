"""The in-memory store, against the plainest model of it."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from specpilot.fleets.kubernetes.store import Store
from tests.unit.fleets_kubernetes.fakes import owner


def obj(name: str, version: str, owned_by: str = "", namespace: str = "a") -> dict[str, Any]:
    references = [owner("ReplicaSet", "rs", owned_by)] if owned_by else []
    return {
        "metadata": {
            "namespace": namespace,
            "name": name,
            "resourceVersion": version,
            "ownerReferences": references,
        }
    }


objects = st.builds(
    obj,
    st.sampled_from("xyz"),
    st.sampled_from("123"),
    st.sampled_from(["", "u1", "u2"]),
    st.sampled_from("ab"),
)
steps = st.lists(
    st.tuples(st.sampled_from(["put", "drop", "replace"]), st.lists(objects, max_size=3))
)


@given(steps)
def test_it_is_a_dictionary_with_an_index(steps: list[tuple[str, list[dict[str, Any]]]]) -> None:
    store = Store()
    model: dict[tuple[str, str], dict[str, Any]] = {}
    for action, objs in steps:
        keyed = {(o["metadata"]["namespace"], o["metadata"]["name"]): o for o in objs}
        if action == "replace":
            here = {k: o for k, o in keyed.items() if k[0] == "a"}
            store.replace(here.values(), namespace="a")
            same = {
                k: model[k]
                for k, o in here.items()
                if k in model
                and model[k]["metadata"]["resourceVersion"] == o["metadata"]["resourceVersion"]
            }
            model = {k: o for k, o in model.items() if k[0] != "a"} | here | same
            continue
        for key, one in keyed.items():
            if action == "put":
                news = store.put(one)
                old = model.get(key)
                assert news is (
                    old is None
                    or old["metadata"]["resourceVersion"] != one["metadata"]["resourceVersion"]
                )
                if news:
                    model[key] = one
            else:
                assert store.drop(one) is (model.pop(key, None) is not None)
    assert len(store) == len(model)
    for uid in ("u1", "u2"):
        want = [
            o
            for o in model.values()
            if any(r["uid"] == uid for r in o["metadata"]["ownerReferences"])
        ]
        found = store.owned_by(uid)
        assert len(found) == len(want)
        assert all(o in want for o in found)
    assert len(store.all("b")) == sum(k[0] == "b" for k in model)


def test_a_list_tells_what_is_new_changed_or_gone() -> None:
    store = Store()
    store.put(obj("same", "1"))
    store.put(obj("changed", "1"))
    store.put(obj("gone", "1"))
    store.put(obj("elsewhere", "1", namespace="b"))
    told = store.replace([obj("same", "1"), obj("changed", "2"), obj("new", "1")], namespace="a")
    assert sorted(o["metadata"]["name"] for o in told) == ["changed", "gone", "new"]
    assert store.get("a", "gone") is None
    assert store.get("b", "elsewhere") is not None
