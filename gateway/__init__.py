"""The only package that knows both the channels and the sessions."""
