"""What a failed request to a model means: worth another try or not, and what the user is told."""

from __future__ import annotations

import httpx2
from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelAPIError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelRequestTimeout,
    ModelTimeoutError,
    ModelUnavailableError,
    UnexpectedModelBehavior,
)

from gateway.agents.retry import is_transient

_FINAL = (ModelRequestRejectedError, ModelQuotaExceededError, ContentFilterError)
_PASSING = (ModelAPIError, UnexpectedModelBehavior, httpx2.HTTPError, OSError)


class CutOff(UnexpectedModelBehavior):
    """The stream ended without a reason to end."""


def is_worth_retrying(error: Exception) -> bool:
    if isinstance(error, ModelHTTPError):
        return is_transient(error.status_code) and not isinstance(error, ModelQuotaExceededError)
    return isinstance(error, _PASSING) and not isinstance(error, _FINAL)


def retry_after(error: Exception) -> float | None:
    return error.retry_after if isinstance(error, ModelAPIError) else None


def message_for(error: Exception) -> str:
    """For the user: short, and nothing about addresses, keys or accounts."""
    match error:
        case ModelRateLimitError() | ModelUnavailableError():
            return "The model is overloaded. Please try again later."
        case ModelRequestTimeout() | ModelTimeoutError():
            return "The model did not answer in time."
        case ModelConnectionError() | httpx2.TransportError() | OSError():
            return "The model cannot be reached."
        case ModelContextWindowExceededError():
            return "The conversation is too long for the model."
        case ModelRequestRejectedError() | ModelQuotaExceededError():
            return "The model refused the request."
        case ContentFilterError():
            return "The model declined to answer."
        case _:
            return "The model could not answer."
