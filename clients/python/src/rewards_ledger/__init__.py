"""Client of the Rewards Ledger: orders, events, and verified webhooks.

    with RewardsLedger("https://ledger.example.com", api_key="…", api_secret="…") as ledger:
        order = ledger.orders.place_order(models.PlaceOrder(product_id=1, denomination=25, quantity=2)).data
"""

from . import errors, webhooks
from .api_error import ApiError, LedgerError, NoResponse
from .call import Call
from .client import AsyncRewardsLedger, RewardsLedger
from .event import Event, EventBatch
from .generated import models
from .retries import Retries
from .version import VERSION as __version__

__all__ = [
    "ApiError",
    "AsyncRewardsLedger",
    "Call",
    "Event",
    "EventBatch",
    "LedgerError",
    "NoResponse",
    "Retries",
    "RewardsLedger",
    "__version__",
    "errors",
    "models",
    "webhooks",
]
