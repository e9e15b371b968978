"""One speculation configuration of a policy, and what the user states of its cost."""

from typing import Annotated, Self

from pydantic import Field, JsonValue, StringConstraints, field_validator, model_validator

from specpilot.domain.policy import CostPoint
from specpilot.domain.settings import OFF_NAME, SPECULATING, Setting
from specpilot.engines.capabilities import METHOD_NEEDS, Need
from specpilot.resources.base import Name, Strict

CostRatio = Annotated[float, Field(ge=0.1, le=100)]


class CostPointSpec(Strict):
    """What a setting costs at one batch size."""

    batch: Annotated[int, Field(ge=1, le=100_000)]
    ratio: CostRatio


class SettingSpec(Strict):
    """One speculation configuration under a name.

    Attributes:
        cost_ratio: Its cost at any batch size, where none was measured.
        cost_ratio_by_batch: The same at some batch sizes.
    """

    name: Name
    method: Annotated[str, StringConstraints(min_length=1, max_length=63)] | None = None
    model: Annotated[str, StringConstraints(min_length=1, max_length=512)] | None = None
    num_speculative_tokens: Annotated[int, Field(ge=1, le=1024)] | None = None
    disable_above_batch_size: Annotated[int, Field(ge=1, le=100_000)] | None = None
    extra: dict[str, JsonValue] = Field(default_factory=dict)
    cost_ratio: CostRatio | None = None
    cost_ratio_by_batch: Annotated[tuple[CostPointSpec, ...], Field(max_length=32)] = ()

    @field_validator("cost_ratio_by_batch")
    @classmethod
    def _each_batch_once(cls, points: tuple[CostPointSpec, ...]) -> tuple[CostPointSpec, ...]:
        batches = [p.batch for p in points]
        if twice := next((b for b in batches if batches.count(b) > 1), None):
            raise ValueError(f"batch {twice} is there twice; remove one of them")
        return points

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.name == OFF_NAME:
            if self.model_fields_set - {"name"}:
                raise ValueError(
                    'the name "off" is reserved for no speculation; remove the other fields, or '
                    "use another name"
                )
            return self
        if self.name == SPECULATING:
            raise ValueError(
                'the name "speculating" is what rule sets call any setting that speculates; use '
                "another name"
            )
        if self.method is None:
            raise ValueError(f"setting {self.name} needs a method, such as ngram or eagle3")
        method = METHOD_NEEDS.get(self.method)
        if method is None:
            return self  # the engine may be newer than the table; its version decides
        if method.model is Need.REQUIRED and self.model is None:
            raise ValueError(
                f"method {self.method} needs a model; add model: with the draft to load"
            )
        if method.model is Need.NONE and self.model is not None:
            raise ValueError(f"method {self.method} drafts without a model; remove model")
        if method.depth is Need.REQUIRED and self.num_speculative_tokens is None:
            raise ValueError(f"method {self.method} needs numSpeculativeTokens, such as 3")
        return self

    def setting(self) -> Setting:
        """The domain's value."""
        return Setting(
            name=self.name,
            method=self.method,
            model=self.model,
            num_speculative_tokens=self.num_speculative_tokens,
            disable_above_batch_size=self.disable_above_batch_size,
            extra=self.extra,
        )

    def cost_points(self) -> tuple[CostPoint, ...]:
        """What the user states of its cost; the number for any batch size comes last."""
        points = [CostPoint(batch=p.batch, ratio=p.ratio) for p in self.cost_ratio_by_batch]
        if self.cost_ratio is not None:
            points.append(CostPoint(ratio=self.cost_ratio))
        return tuple(points)
