"""`GET /`: the web page; `/docs`: the API described. Nothing is loaded from elsewhere."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter
from starlette.responses import FileResponse, HTMLResponse, Response

from gateway.http.problems import Problem

PAGE_DIRECTORY = Path(__file__).parents[1] / "page"
ASSETS = Path(__file__).parent / "docs"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'; object-src 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
_HEADERS = {"Content-Security-Policy": PAGE_POLICY, "Cache-Control": "no-cache"}
_NO_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Parley</title>
<h1>Parley is running</h1>
<p>The web page has not been built: <code>make page</code> does it.
Chat with <code>parley chat</code>, or see
<a href="/docs">the API</a>.</p>
"""

router = APIRouter(include_in_schema=False)


@router.api_route("/", methods=["GET", "HEAD"])
async def page() -> Response:
    index = PAGE_DIRECTORY / "index.html"
    if not index.is_file():
        return HTMLResponse(_NO_PAGE, headers=_HEADERS)
    return FileResponse(index, headers=_HEADERS)


@router.get("/theme.js")
async def theme() -> Response:
    return _file(PAGE_DIRECTORY, "theme.js", _HEADERS)


@router.get("/favicon.svg")
async def favicon() -> Response:
    return _file(PAGE_DIRECTORY, "favicon.svg", _HEADERS)


@router.get("/assets/{name}")
async def page_asset(name: str) -> Response:
    """The names carry a hash of their content, so they never change."""
    headers = {**_HEADERS, "Cache-Control": "public, max-age=31536000, immutable"}
    return _file(PAGE_DIRECTORY / "assets", name, headers)


@router.get("/docs")
async def docs() -> Response:
    return _file(ASSETS, "index.html", _HEADERS)


@router.get("/docs/{name}")
async def docs_asset(name: str) -> Response:
    return _file(ASSETS, name, _HEADERS)


def _file(directory: Path, name: str, headers: dict[str, str]) -> Response:
    """Only what lies in the directory itself: a name is compared, never joined unseen."""
    known = {path.name: path for path in directory.glob("*")} if directory.is_dir() else {}
    path = known.get(name)
    kind = _TYPES.get(Path(name).suffix)
    if path is None or kind is None:
        raise Problem(404, "There is nothing here.")
    return FileResponse(path, media_type=kind, headers=headers)
