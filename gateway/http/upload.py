"""A file out of a multipart body, straight to the disk: nothing of it is kept in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from gateway.http.problems import Problem
from gateway.media import Incoming, Media

FIELD = b"file"
MAX_HEADER_BYTES = 8_192


class Upload:
    """Follows the parser. Only the first part named `file` counts; other parts are passed over."""

    def __init__(self, content_type: str, limit: int) -> None:
        kind, options = parse_options_header(content_type)
        boundary = options.get(b"boundary")
        if kind != b"multipart/form-data" or not boundary:
            raise Problem(422, "The body must be multipart/form-data with a part named file.")
        self.name, self.mime = "", ""
        self.size = 0
        self.complete = False
        self._limit = limit
        self._pieces: list[bytes] = []
        self._field, self._value = bytearray(), bytearray()
        self._headers: dict[bytes, bytes] = {}
        self._wanted = self._found = False
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_field": self._on_field,
                "on_header_value": self._on_value,
                "on_header_end": self._on_header,
                "on_headers_finished": self._on_headers,
                "on_part_data": self._on_data,
                "on_part_end": self._end,
            },
        )

    def feed(self, data: bytes) -> bytes:
        """The bytes of the file that this piece of the body held."""
        try:
            self._parser.write(data)
        except FormParserError as error:
            raise Problem(422, "The multipart body is damaged.") from error
        found, self._pieces = b"".join(self._pieces), []
        return found

    def _begin(self) -> None:
        self._headers = {}
        self._field, self._value = bytearray(), bytearray()

    def _on_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]
        self._check_header()

    def _on_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]
        self._check_header()

    def _check_header(self) -> None:
        size = sum(map(len, self._headers.values())) + len(self._field) + len(self._value)
        if size > MAX_HEADER_BYTES:
            raise Problem(422, "The multipart body is damaged.")

    def _on_header(self) -> None:
        self._headers[bytes(self._field).lower()] = bytes(self._value)
        self._field, self._value = bytearray(), bytearray()

    def _on_headers(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        self._wanted = not self._found and options.get(b"name") == FIELD
        if self._wanted:
            self._found = True
            self.name = options.get(b"filename", b"").decode("utf-8", "replace")
            self.mime = self._headers.get(b"content-type", b"").decode("latin-1")

    def _on_data(self, data: bytes, start: int, end: int) -> None:
        if self._wanted:
            self.size += end - start
            if self.size > self._limit:
                raise Problem(413, f"A file has at most {self._limit} bytes.")
            self._pieces.append(data[start:end])

    def _end(self) -> None:
        self.complete = self.complete or self._wanted
        self._wanted = False


async def store(
    body: AsyncIterator[bytes], content_type: str, limit: int, media: Media, owner: str
) -> dict[str, object]:
    """Reads the whole body; on the disk on return. Raises Problem, and then nothing is left."""
    upload = Upload(content_type, limit)
    incoming: Incoming = await asyncio.to_thread(media.receive)
    try:
        async for piece in body:
            found = upload.feed(piece)
            if found:
                await asyncio.to_thread(incoming.write, found)
        if not upload.complete:
            raise Problem(422, "The body has no complete part named file.")
        return await asyncio.to_thread(media.keep, incoming, owner, upload.name, upload.mime)
    except BaseException:
        incoming.discard()
        raise
