"""Webhooks in Flask."""

import functools
from collections.abc import Sequence
from typing import Any, Callable, Union

from flask import request
from flask.typing import ResponseReturnValue

from . import InvalidWebhook, verify

View = Callable[..., ResponseReturnValue]


def webhook(tokens: Union[str, Sequence[str]]) -> Callable[[View], View]:
    """Passes the verified event to a view as its first argument. Other requests get 401.

        @app.post("/webhooks")
        @webhook(TOKEN)
        def receive(event: Event) -> str: ...
    """

    def decorate(view: View) -> View:
        @functools.wraps(view)
        def receive(*args: Any, **kwargs: Any) -> ResponseReturnValue:
            try:
                event = verify(tokens, dict(request.headers), request.get_data())
            except InvalidWebhook as error:
                return {"error": str(error)}, 401
            return view(event, *args, **kwargs)

        return receive

    return decorate
