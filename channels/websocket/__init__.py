"""Chats over a WebSocket: `protocol.py` decides without I/O, `endpoint.py` owns the socket."""
