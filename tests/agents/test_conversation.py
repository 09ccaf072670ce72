"""Rows of the log as messages for a model."""

from __future__ import annotations

from typing import Any

from pydantic_ai.messages import (
    BinaryContent,
    FilePart,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from gateway.agents.agent import Produced
from gateway.agents.conversation import conversation, files, tool_calls, unanswered
from sessions.history import UNKNOWN_RESULT, ModelRow


def call(id: str, name: str = "add", arguments: Any = "{}") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def user(text: str) -> ModelRow:
    return ModelRow(role="user", content=text, seq=1)


def test_rows_that_follow_each_other_become_one_request() -> None:
    """Two messages of a user are two parts of one request, because roles have to alternate."""
    rows = [ModelRow(role="system", content="note"), user("one"), user("two")]

    [request] = conversation(rows, system="openai")

    assert isinstance(request, ModelRequest)
    assert [(type(part), getattr(part, "content", None)) for part in request.parts] == [
        (SystemPromptPart, "note"),
        (UserPromptPart, "one"),
        (UserPromptPart, "two"),
    ]


def test_a_call_and_its_result_keep_their_name() -> None:
    """A result without a name takes that of its call."""
    rows = [
        user("add"),
        ModelRow(role="assistant", content="Wait.", tool_calls=[call("c1")]),
        ModelRow(role="tool", content="3", tool_call_id="c1"),
    ]

    _, response, request = conversation(rows, system="openai")

    assert [type(part) for part in response.parts] == [TextPart, ToolCallPart]
    [result] = request.parts
    assert isinstance(result, ToolReturnPart)
    assert (result.tool_name, result.tool_call_id, result.content) == ("add", "c1", "3")


def test_ids_and_names_of_others_are_made_legal_together() -> None:
    """An id that a provider would refuse is replaced in the call and in its result alike."""
    foreign = "call|fc_" + "x" * 60
    rows = [
        user("add"),
        ModelRow(role="assistant", content="", tool_calls=[call(foreign, "math.add")]),
        ModelRow(role="tool", content="3", tool_call_id=foreign, name="math.add"),
    ]

    _, response, request = conversation(rows, system="openai")

    [made], [result] = response.parts, request.parts
    assert isinstance(made, ToolCallPart)
    assert isinstance(result, ToolReturnPart)
    assert made.tool_call_id == result.tool_call_id
    assert len(made.tool_call_id) <= 40
    assert made.tool_name == result.tool_name == "math_add"


def test_reasoning_is_kept_for_the_running_turn_only() -> None:
    """Thoughts of older turns are not paid for again."""
    rows = [
        user("one"),
        ModelRow(role="assistant", content="1", reasoning_content="old"),
        user("two"),
        ModelRow(role="assistant", content="", reasoning_content="new", tool_calls=[call("c1")]),
        ModelRow(role="tool", content="3", tool_call_id="c1"),
    ]

    messages = conversation(rows, system="local", sends_reasoning=True)

    thoughts = [
        part for message in messages for part in message.parts if isinstance(part, ThinkingPart)
    ]
    assert [(part.content, part.id, part.provider_name) for part in thoughts] == [
        ("new", "reasoning_content", "local")
    ]


def test_reasoning_is_not_sent_to_a_provider_that_refuses_it() -> None:
    """Without a field for it, thoughts would end up in the text."""
    rows = [user("one"), ModelRow(role="assistant", content="1", reasoning_content="hm")]

    messages = conversation(rows, system="openai")

    assert [type(part) for part in messages[1].parts] == [TextPart]


def test_a_row_without_anything_to_send_is_left_out() -> None:
    """An assistant row that held only thoughts of an older turn does not become an empty one."""
    rows = [
        user("one"),
        ModelRow(role="assistant", content="", reasoning_content="hm"),
        user("two"),
    ]

    messages = conversation(rows, system="openai")

    assert [message.kind for message in messages] == ["request"]


def test_arguments_that_are_no_object_are_wrapped() -> None:
    """What a model once wrote wrongly must not spoil every later request."""
    rows = [
        user("x"),
        ModelRow(role="assistant", content="", tool_calls=[call("c1", "f", "{oops")]),
    ]

    part = conversation(rows, system="openai")[1].parts[0]

    assert isinstance(part, ToolCallPart)
    assert part.args == {"invalid": "{oops"}


def test_two_calls_with_one_id_get_two() -> None:
    """Every call of an answer can be told from the others."""
    response = ModelResponse(parts=[ToolCallPart("a", "{}", "c"), ToolCallPart("b", "{}", "c")])

    calls = tool_calls(response)

    assert [item["id"] for item in calls] == ["c", "c_1"]
    assert [part.tool_call_id for part in response.tool_calls] == ["c", "c_1"]


def test_only_made_up_results_at_the_end_are_unanswered() -> None:
    """An unknown outcome of an older turn is history; one of the running turn is not."""
    made_up = ModelRow(role="tool", content=UNKNOWN_RESULT, tool_call_id="c1")
    step = ModelRow(role="assistant", content="", tool_calls=[call("c1")])

    assert unanswered([user("one"), step, made_up]) == [(2, call("c1"))]
    assert unanswered([user("one"), step, made_up, user("two")]) == []
    assert unanswered([]) == []


def test_a_file_of_the_model_is_produced() -> None:
    """A picture in an answer becomes a file with a name."""
    picture = FilePart(BinaryContent(b"png", media_type="image/png"))

    assert files(ModelResponse(parts=[picture])) == [Produced("file-1.png", "image/png", b"png")]
