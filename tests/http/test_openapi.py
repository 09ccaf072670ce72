"""The OpenAPI document and the server agree, whatever is asked."""

from __future__ import annotations

import asyncio
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.http.conftest import Start

KEY = "websocket:c"
EXAMPLES = 25
PHASES = (Phase.explicit, Phase.generate)
CHECKS = [
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


async def test_every_answer_is_as_documented(start: Start) -> None:
    """No question makes the server fail, and every status, type and body is in the document."""
    daemon = await start(limits={"messages_per_minute": 0})
    chat = await daemon.chat()
    await chat.say("c", "hello")

    asked = await asyncio.to_thread(ask_everything, daemon.url)

    assert asked > 20
    assert not [event for event in daemon.events if event["level"] == "ERROR"]


def ask_everything(url: str) -> int:
    """How many operations there are; fails at the first answer that is not as documented."""
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    count = 0
    for result in schema.get_all_operations():
        operation: Any = result.ok() if isinstance(result, Ok) else None
        assert operation is not None, "the document has a broken operation"
        try:
            ask(operation)
        except FailureGroup as failure:
            # A group of failures does not pass from a thread to the event loop.
            raise AssertionError(str(failure)) from None
        count += 1
    return count


def ask(operation: Any) -> None:
    """Proper and improper questions, about a session that is there and about others."""
    cases = st.one_of(*(operation.as_strategy(generation_mode=mode) for mode in GenerationMode))

    @given(case=cases, known=st.booleans())
    @settings(
        max_examples=EXAMPLES,
        phases=PHASES,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def check(case: Any, known: bool) -> None:
        if known and "key" in case.path_parameters and case.method != "DELETE":
            case.path_parameters["key"] = KEY
        response = case.call()
        case.validate_response(response, checks=CHECKS)
        # 501 is documented: it says what is not there yet.
        assert response.status_code < 500 or response.status_code == 501

    check()
