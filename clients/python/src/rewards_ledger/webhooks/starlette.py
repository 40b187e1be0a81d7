"""Webhooks in Starlette and FastAPI."""

from collections.abc import Sequence
from typing import Union

from starlette.exceptions import HTTPException
from starlette.requests import Request

from ..event import Event
from . import InvalidWebhook, verify


class Webhook:
    """Verifies a request and returns its event. Other requests get 401.

    In Starlette, call it: `event = await Webhook(TOKEN)(request)`. In FastAPI, depend on it:

        @app.post("/webhooks")
        async def receive(event: Annotated[Event, Depends(Webhook(TOKEN))]) -> None: ...
    """

    def __init__(self, tokens: Union[str, Sequence[str]]) -> None:
        self._tokens = tokens

    async def __call__(self, request: Request) -> Event:
        try:
            return verify(self._tokens, request.headers, await request.body())
        except InvalidWebhook as error:
            raise HTTPException(401, str(error)) from error
