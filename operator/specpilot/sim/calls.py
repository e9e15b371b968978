"""A generation call: what a client asks for, and how the engine refuses what it cannot do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from specpilot.sim.launch import Generation, LaunchConfig
from specpilot.sim.requests import count_tokens

_CHAT_TOKENS: Final = 128
"""Length of a chat answer whose length the client left to the model."""

_COMPLETION_TOKENS: Final = 16
"""vLLM's default ``max_tokens`` of ``/v1/completions``."""


class Refusal(Exception):  # noqa: N818 -- it is an answer, not an error of this program
    """The call is answered with an error.

    Attributes:
        message: What is wrong.
        status: HTTP status.
        param: The field of the call that is at fault, if it is one.
    """

    def __init__(self, message: str, *, status: int = 400, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.param = param


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt: the text that drafts are judged by, and its length in tokens."""

    text: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A generation call, checked.

    Attributes:
        chat: Whether it is a chat.
        prompts: One for each choice of the answer, in order.
        prompt_tokens: What the usage says; a prompt with several choices counts once.
        max_tokens: Tokens to generate for each choice.
        natural_stop: The answer ends with ``stop`` rather than ``length``.
        stream: Answer with server-sent events.
        include_usage: End a stream with the usage.
    """

    chat: bool
    prompts: tuple[Prompt, ...]
    prompt_tokens: int
    max_tokens: int
    natural_stop: bool = False
    stream: bool = False
    include_usage: bool = False

    def usage(self, generated: int) -> dict[str, int]:
        """Return the usage of all choices together."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + generated,
            "completion_tokens": generated,
        }


def read_call(body: dict[str, Any], *, config: LaunchConfig, chat: bool) -> Call:
    """Check a call.

    Raises:
        Refusal: as vLLM words it.
    """
    model = body.get("model")
    names = config.served_model_names or (config.model,)
    if model is not None and model not in names:
        raise Refusal(
            f"The model `{model}` does not exist. Valid aliases: {', '.join(names)}.",
            status=404,
            param="model",
        )
    if config.speculation is not None and config.generation is Generation.V1:
        min_p = body.get("min_p")
        if (isinstance(min_p, int | float) and min_p > 0) or body.get("logit_bias"):
            raise Refusal(
                "The min_p and logit_bias sampling parameters are not yet supported with "
                "speculative decoding."
            )
    prompts = [_conversation(body)] if chat else _prompts(body)
    asked = _asked(body, chat=chat)
    choices = body.get("n", 1)
    if isinstance(choices, bool) or not isinstance(choices, int) or choices < 1:
        raise Refusal(f"n must be at least 1, got {choices!r}.", param="n")
    longest = max(prompt.tokens for prompt in prompts)
    room = _room(config.max_model_len, prompt=longest, asked=asked)
    default = _CHAT_TOKENS if chat else _COMPLETION_TOKENS
    options = body.get("stream_options")
    return Call(
        chat=chat,
        prompts=tuple(prompt for prompt in prompts for _ in range(choices)),
        prompt_tokens=sum(prompt.tokens for prompt in prompts),
        max_tokens=asked or min(default, room),
        natural_stop=chat and asked is None,
        stream=body.get("stream") is True,
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
    )


def _asked(body: dict[str, Any], *, chat: bool) -> int | None:
    """Return the length that the client asked for, if it did."""
    asked = body.get("max_completion_tokens") if chat else None
    asked = body.get("max_tokens") if asked is None else asked
    if asked is None:
        return None
    if isinstance(asked, bool) or not isinstance(asked, int) or asked < 1:
        raise Refusal(f"max_tokens must be at least 1, got {asked!r}.", param="max_tokens")
    return asked


def _room(context: int, *, prompt: int, asked: int | None) -> int:
    """Return how many tokens may follow a prompt."""
    if asked is not None and asked > context:
        raise Refusal(
            f"max_tokens={asked} cannot be greater than max_model_len={context}. "
            "Please request fewer output tokens.",
            param="max_tokens",
        )
    wanted = asked or 1
    if prompt + wanted > context:
        raise Refusal(
            f"This model's maximum context length is {context} tokens. However, you requested "
            f"{prompt + wanted} tokens ({prompt} in the messages, {wanted} in the completion). "
            "Please reduce the length of the messages or completion."
        )
    return context - prompt


def _prompts(body: dict[str, Any]) -> list[Prompt]:
    """Read one text, one list of token ids, or a list of either."""
    given: Any = body.get("prompt")
    several = isinstance(given, list) and not all(isinstance(each, int) for each in given)
    prompts = list(map(_prompt, given)) if several else [_prompt(given)]
    found = [prompt for prompt in prompts if prompt is not None]
    if not found or len(found) < len(prompts):
        raise Refusal(
            "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)",
            param="prompt",
        )
    return found


def _prompt(given: object) -> Prompt | None:
    match given:
        case str() if given:
            return Prompt(text=given, tokens=count_tokens(given))
        case [int(), *rest] if all(isinstance(each, int) for each in rest):
            return Prompt(text="", tokens=len(rest) + 1)
    return None


def _conversation(body: dict[str, Any]) -> Prompt:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Refusal("messages: write a list of at least one message", param="body.messages")
    parts: list[str] = []
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, str):
            parts.append(content)
        elif isinstance(content, list):
            parts += [str(part.get("text", "")) for part in content if isinstance(part, dict)]
    text = "\n".join(parts)
    return Prompt(text=text, tokens=count_tokens(text))
