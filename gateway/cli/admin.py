"""A running gateway, as commands that change its sessions reach it: through its admin socket."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gateway import admin
from gateway.cli.exits import Failure, Locked

ANSWER_SECONDS = 60.0
STOPPING = frozenset({"starting", "shutting_down"})

Progress = Callable[[int, int], None]


class _Connection(http.client.HTTPConnection):
    def __init__(self, data_dir: Path, seconds: float) -> None:
        super().__init__("localhost", timeout=seconds)
        self._data_dir = data_dir

    def connect(self) -> None:
        found = admin.connect(self._data_dir)
        if found is None:
            raise ConnectionRefusedError
        found.settimeout(self.timeout)
        self.sock = found


class RunningGateway:
    def __init__(self, data_dir: Path, seconds: float = ANSWER_SECONDS) -> None:
        self._data_dir, self._seconds = data_dir, seconds

    @property
    def listens(self) -> bool:
        found = admin.connect(self._data_dir)
        if found is not None:
            found.close()
        return found is not None

    def get(self, path: str) -> tuple[int, Any]:
        """Raises Failure."""
        return self._request("GET", path)

    def session(self, method: str, key: object, action: str = "") -> bool:
        """False if there is no such session. Raises Failure, or Locked while it stops."""
        path = f"/api/v1/sessions/{quote(str(key), safe='')}{action}"
        status, answer = self._request(method, path)
        if status == 404:
            return False
        _check(status, answer)
        return True

    def follow(self, path: str, body: Mapping[str, Any], progress: Progress) -> Any:
        """The result of work that takes long. Raises Failure, or Locked while it stops."""
        result: Any = None
        connection = _Connection(self._data_dir, self._seconds)
        try:
            response = self._send(connection, "POST", path, body)
            if response.status != 200:
                _check(response.status, _decoded(response.read()))
            for line in response:
                result = _decoded(line)
                if "done" in result:
                    progress(result["done"], result["total"])
        except (OSError, http.client.HTTPException) as error:
            raise _gone(error) from error
        finally:
            connection.close()
        if not isinstance(result, dict) or "result" not in result:
            reason = result.get("error") if isinstance(result, dict) else None
            raise Failure(reason or "the gateway stopped before it was done; run this again")
        return result["result"]

    def _request(self, method: str, path: str) -> tuple[int, Any]:
        connection = _Connection(self._data_dir, self._seconds)
        try:
            response = self._send(connection, method, path, None)
            return response.status, _decoded(response.read())
        except (OSError, http.client.HTTPException) as error:
            raise _gone(error) from error
        finally:
            connection.close()

    @staticmethod
    def _send(
        connection: _Connection, method: str, path: str, body: Mapping[str, Any] | None
    ) -> http.client.HTTPResponse:
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"Content-Type": "application/json"})
        return connection.getresponse()


def _check(status: int, answer: Any) -> None:
    if status < 300:
        return
    facts = answer if isinstance(answer, dict) else {}
    detail = facts.get("detail") or f"the gateway answered {status}"
    raise Locked(detail) if facts.get("code") in STOPPING else Failure(detail)


def _decoded(data: bytes) -> Any:
    try:
        return json.loads(data) if data.strip() else {}
    except ValueError:
        return {}


def _gone(error: Exception) -> Failure:
    reason = str(error) or "the connection was closed"
    return Failure(f"the gateway did not finish this ({reason}); run this again")
