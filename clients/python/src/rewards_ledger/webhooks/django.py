"""Webhooks in Django."""

import functools
from collections.abc import Sequence
from typing import Any, Callable, Union

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from . import InvalidWebhook, verify

View = Callable[..., HttpResponse]


def webhook(tokens: Union[str, Sequence[str]]) -> Callable[[View], View]:
    """Passes the verified event to a view, after the request. Other requests get 401.

        @webhook(TOKEN)
        def receive(request: HttpRequest, event: Event) -> HttpResponse: ...
    """

    def decorate(view: View) -> View:
        @functools.wraps(view)
        def receive(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            try:
                event = verify(tokens, request.headers, request.body)
            except InvalidWebhook as error:
                return JsonResponse({"error": str(error)}, status=401)
            return view(request, event, *args, **kwargs)

        exempt: View = csrf_exempt(require_POST(receive))
        return exempt

    return decorate
