"""The Kafka Connect REST API: `client` (one method per endpoint), `types`, `errors`.

Importing this package is cheap on purpose; only `client` and `wire` import httpx.
"""
