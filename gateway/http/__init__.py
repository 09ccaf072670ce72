"""The gateway over HTTP: pages, API, health and the WebSocket's handshake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import WebSocketRoute

from gateway.app import Gateway
from gateway.http import actions, admin, api, health, media, page, problems, sessions, slack
from gateway.http.auth import Authenticator
from gateway.http.context import Context
from gateway.http.gate import Gate
from gateway.http.shapes import ProblemDetails
from gateway.http.websocket import WebSockets
from gateway.logs import Logs
from gateway.telemetry import Metrics

__all__ = ["create_app"]


def create_app(
    gateway: Gateway,
    *,
    auth: Authenticator | None = None,
    metrics: Metrics | None = None,
    logs: Logs | None = None,
) -> FastAPI:
    """The gateway need not be started yet: until it is, everything but its health answers 503."""
    settings = gateway.settings
    context = Context(
        gateway,
        auth or Authenticator(settings.auth, Path(settings.data_dir)),
        metrics or Metrics(),
        logs or Logs(),
    )
    app = FastAPI(
        title="Parley",
        version=gateway.version,
        description="A chat gateway that never loses a word.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
    )
    app.state.context = context
    routers = [part.router for part in (sessions, actions, api, admin, media, health, slack, page)]
    for router in routers:
        app.include_router(router)
    app.router.routes.append(WebSocketRoute("/ws", WebSockets(context)))
    problems.install(app, routers)
    if settings.server.allowed_origins:
        # Their pages send a token with every request: cookies of ours do not reach them.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=[origin.rstrip("/") for origin in settings.server.allowed_origins],
            allow_methods=["GET", "POST", "PATCH", "DELETE"],
            allow_headers=["Authorization", "Content-Type"],
        )
    app.add_middleware(
        Gate,
        settings=gateway.current,
        state=lambda: gateway.state,
        on_answer=context.metrics.count_request,
    )
    _describe_problems(app)
    return app


def _describe_problems(app: FastAPI) -> None:
    """FastAPI describes its own form of a wrong request, which is not what is sent."""
    describe = app.openapi

    def openapi() -> dict[str, Any]:
        document = describe()
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        if "ProblemDetails" not in schemas:
            shape = ProblemDetails.model_json_schema(
                ref_template="#/components/schemas/{model}", mode="serialization"
            )
            schemas.update(shape.pop("$defs", {}))
            schemas["ProblemDetails"] = shape
        return document

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's way
