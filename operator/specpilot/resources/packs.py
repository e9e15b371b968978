"""The rule sets that come with Specpilot: beside the code in a checkout, inside it in a wheel."""

from difflib import get_close_matches
from importlib import resources
from pathlib import Path

from specpilot.domain.rules import RuleSet
from specpilot.resources.documents import Fault, ResourceError, load, spec_of
from specpilot.resources.rule_set import RuleSetSpec, rule_set


def packs_directory() -> Path:
    """Return the directory of the shipped packs.

    Raises:
        ResourceError: The installation is incomplete.
    """
    packaged = Path(str(resources.files("specpilot"))) / "_data" / "rules"
    checkout = Path(__file__).resolve().parents[3] / "rules"
    for found in (packaged, checkout):
        if found.is_dir():
            return found
    message = f"it is neither in {packaged} nor in {checkout}; install specpilot again"
    raise ResourceError(Fault(where="shipped packs", field="", message=message))


def pack_names() -> tuple[str, ...]:
    """Names of the shipped packs, sorted."""
    return tuple(sorted(path.stem for path in packs_directory().glob("*.yaml")))


def pack_path(name: str) -> Path:
    """The file of a pack.

    Raises:
        ResourceError: There is no such pack.
    """
    known = pack_names()
    if name in known:
        return packs_directory() / f"{name}.yaml"
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
    raise ResourceError(
        Fault(where=f"pack:{name}", field="", message=f"there is no such pack; {hint}")
    )


def pack(name: str) -> RuleSet:
    """Read a pack.

    Raises:
        ResourceError: There is no such pack, or its file was spoiled.
    """
    path = pack_path(name)
    (document,) = load(path.read_text(encoding="utf-8"), source=str(path))
    spec: RuleSetSpec = spec_of(document, RuleSetSpec)
    return rule_set(spec, name=document.metadata.name)
