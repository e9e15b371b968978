"""What all resources share: strict fields in camelCase, and names as Kubernetes has them."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints
from pydantic.alias_generators import to_camel

API_VERSION = "specpilot.io/v1alpha1"

NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
SUBDOMAIN_PATTERN = r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$"


class Strict(BaseModel):
    """A part of a resource: an unknown field is an error, and no value is bent to fit."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        allow_inf_nan=False,
        extra="forbid",
        frozen=True,
        strict=True,
        validate_by_name=False,
        validate_by_alias=True,
    )


Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN, max_length=63)]
"""A name inside a resource: lower-case letters, digits and dashes."""

ObjectName = Annotated[str, StringConstraints(pattern=SUBDOMAIN_PATTERN, max_length=253)]
"""The name of another object."""

Text = Annotated[str, StringConstraints(max_length=1024)]
"""Words for people."""
