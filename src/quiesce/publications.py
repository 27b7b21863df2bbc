"""What a deployment publishes about itself: its API as OpenAPI, and a page that shows it.

Both are made when they are first asked for and then kept: no other request pays for them, not even with the import
of what makes them.
"""

from collections.abc import Mapping
from functools import cache

from quiesce.asks import Publication

JSON = "application/json"
HTML = "text/html; charset=utf-8"
PAGE_HEADERS: Mapping[str, str] = {
    "content-security-policy": "default-src 'none'; img-src data:; style-src 'unsafe-inline';"
    " script-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
}


@cache
def read(publication: Publication) -> tuple[str, Mapping[str, str], str]:
    """Return a document's media type, its headers and its text."""
    match publication:
        case Publication.OPENAPI:
            from quiesce import openapi  # noqa: PLC0415 - only who asks for it pays for it

            return JSON, {}, openapi.text()
        case Publication.DOCS:
            from quiesce import docs_page  # noqa: PLC0415 - the same

            return HTML, PAGE_HEADERS, docs_page.PAGE
