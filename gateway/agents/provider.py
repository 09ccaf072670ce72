"""From the settings of a model agent to a model that can be asked.

`base_url` alone means a server that speaks OpenAI's Chat Completions. Models of OpenAI itself are
asked in the same way, because the rows of the log have that form. Any other `provider:name` is
left to pydantic-ai.
"""

from __future__ import annotations

import inspect
import os
from typing import Any

import httpx2
import msgspec
from pydantic_ai.models import Model, create_async_httpx2_client, infer_model
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers import Provider, infer_provider_class
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider
from pydantic_ai.settings import ModelSettings

from gateway.config import ModelAgentSettings

CONNECT_SECONDS = 10.0
_OPENAI_PREFIXES = ("openai", "openai-chat")

# Without it a stream that breaks off between two chunks would count as a finished answer.
_PROFILE = OpenAIModelProfile(openai_chat_streaming_requires_finish_reason=True)


class ConnectedModel(msgspec.Struct, frozen=True):
    model: Model[Any]
    client: httpx2.AsyncClient
    """Its connections; closed by whoever called `connect`."""
    settings: ModelSettings
    sends_reasoning: bool
    """The server takes back what the model was thinking, in the field `reasoning_content`."""


def connect(settings: ModelAgentSettings) -> ConnectedModel:
    """Contacts nobody yet. Raises ValueError, ImportError or pydantic-ai's UserError."""
    client = create_async_httpx2_client(
        timeout=httpx2.Timeout(settings.request_seconds, connect=CONNECT_SECONDS)
    )
    model = _model(settings, client)
    return ConnectedModel(
        model=model,
        client=client,
        settings=_request_settings(settings),
        sends_reasoning=isinstance(model.provider, OpenAICompatibleProvider),
    )


def secrets(settings: ModelAgentSettings) -> list[str]:
    """What must not appear in a log line."""
    values = [value.get_secret_value() for value in settings.extra_headers.values()]
    if settings.api_key is not None:
        values.append(settings.api_key.get_secret_value())
    if settings.base_url is not None:
        values.append(settings.base_url)
    return values


def _model(settings: ModelAgentSettings, client: httpx2.AsyncClient) -> Model[Any]:
    key = settings.api_key.get_secret_value() if settings.api_key else None
    prefix, colon, name = settings.model.partition(":")
    if settings.base_url is not None and not (colon and prefix == "anthropic"):
        compatible = OpenAICompatibleProvider(
            "openai-compatible", base_url=settings.base_url, api_key=key, http_client=client
        )
        # Names such as `qwen3:4b` have a colon of their own.
        known = name if colon and prefix in _OPENAI_PREFIXES else settings.model
        return OpenAIChatModel(known or "default", provider=compatible, profile=_PROFILE)
    if colon and prefix in _OPENAI_PREFIXES:
        _need_key(key, "OPENAI_API_KEY")
        provider = OpenAIProvider(api_key=key, http_client=client)
        return OpenAIChatModel(name, provider=provider, profile=_PROFILE)
    if colon and prefix == "anthropic":
        _need_key(key, "ANTHROPIC_API_KEY")
    return infer_model(settings.model, lambda name: _provider(name, key, settings.base_url, client))


def _need_key(key: str | None, variable: str) -> None:
    if not key and not os.environ.get(variable):
        raise ValueError(f"needs api_key, or the environment variable {variable}")


def _provider(
    name: str, key: str | None, base_url: str | None, client: httpx2.AsyncClient
) -> Provider[Any]:
    provider = infer_provider_class(name)
    given = {"api_key": key, "base_url": base_url, "http_client": client}
    taken = inspect.signature(provider).parameters
    return provider(
        **{name: value for name, value in given.items() if value is not None and name in taken}
    )


def _request_settings(settings: ModelAgentSettings) -> ModelSettings:
    result = ModelSettings(
        timeout=settings.request_seconds,
        first_event_timeout=settings.request_seconds,
        # Retries are ours: an SDK would obey any Retry-After in silence.
        max_retries=0,
    )
    if settings.temperature is not None:
        result["temperature"] = settings.temperature
    if settings.max_tokens is not None:
        result["max_tokens"] = settings.max_tokens
    if settings.extra_headers:
        result["extra_headers"] = {
            name: value.get_secret_value() for name, value in settings.extra_headers.items()
        }
    if settings.extra_body:
        result["extra_body"] = settings.extra_body
    return result
