"""`/api/v1/media`: files in, and out through signed links."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import FileResponse, Response

from gateway.http import shapes, upload
from gateway.http.answers import answer
from gateway.http.context import CurrentUser, InContext
from gateway.http.problems import Problem
from gateway.http.shapes import MAX_NUMBER, problems
from gateway.media import INLINE

router = APIRouter(prefix="/api/v1/media", tags=["media"])

_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {"file": {"type": "string", "format": "binary"}},
                }
            }
        },
    }
}
SANDBOX = "sandbox; default-src 'none'; frame-ancestors 'none'"


@router.post(
    "",
    status_code=201,
    response_model=shapes.MediaShape,
    responses=problems(413),
    openapi_extra=_BODY,
)
async def upload_file(request: Request, user: CurrentUser, context: InContext) -> Response:
    """Stores a file. Its id can be sent with a message of the same user."""
    media = context.gateway.media
    item: dict[str, Any] = await upload.store(
        request.stream(),
        request.headers.get("content-type", ""),
        context.gateway.settings.limits.upload,
        media,
        user.id,
    )
    return answer({**item, "url": media.url(item)}, 201)


@router.get("/{id}", responses=problems(404), response_class=FileResponse)
async def show_file(
    context: InContext,
    id: Annotated[str, Path(max_length=64)],
    exp: Annotated[int, Query(ge=0, le=MAX_NUMBER)] = 0,
    sig: Annotated[str, Query(max_length=128)] = "",
) -> Response:
    """The link is looked at before the file: a wrong one says nothing about what is there."""
    media = context.gateway.media
    if not media.is_signed(id, exp, sig):
        raise Problem(403, "This link is not valid, or not any more.")
    facts = await asyncio.to_thread(media.facts, id)
    if facts is None:
        raise Problem(404, "There is no such file.")
    inline = facts.mime in INLINE
    headers = {
        "Content-Security-Policy": SANDBOX,
        "Cache-Control": "private, max-age=3600, immutable",
    }
    return FileResponse(
        media.file(id),
        media_type=facts.mime if inline else "application/octet-stream",
        filename=facts.name,
        content_disposition_type="inline" if inline else "attachment",
        headers=headers,
    )
