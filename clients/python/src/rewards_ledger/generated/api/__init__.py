"""The operations of the API, grouped as in its document."""

from ...call import AsyncSend, Send
from .api_keys import ApiKeys, AsyncApiKeys
from .beneficiaries import AsyncBeneficiaries, Beneficiaries
from .deliveries import AsyncDeliveries, Deliveries
from .events import AsyncEvents, Events
from .orders import AsyncOrders, Orders
from .payouts import AsyncPayouts, Payouts
from .products import AsyncProducts, Products
from .reference import AsyncReference, Reference
from .sandbox import AsyncSandbox, Sandbox
from .sessions import AsyncSessions, Sessions
from .team import AsyncTeam, Team
from .transactions import AsyncTransactions, Transactions
from .wallets import AsyncWallets, Wallets
from .webhooks import AsyncWebhooks, Webhooks


class Operations:
    """All operations, for a client that blocks."""

    def __init__(self, send: Send) -> None:
        self.beneficiaries = Beneficiaries(send)
        self.reference = Reference(send)
        self.orders = Orders(send)
        self.events = Events(send)
        self.payouts = Payouts(send)
        self.products = Products(send)
        self.sandbox = Sandbox(send)
        self.transactions = Transactions(send)
        self.wallets = Wallets(send)
        self.webhooks = Webhooks(send)
        self.deliveries = Deliveries(send)
        self.sessions = Sessions(send)
        self.api_keys = ApiKeys(send)
        self.team = Team(send)


class AsyncOperations:
    """All operations, for an asynchronous client."""

    def __init__(self, send: AsyncSend) -> None:
        self.beneficiaries = AsyncBeneficiaries(send)
        self.reference = AsyncReference(send)
        self.orders = AsyncOrders(send)
        self.events = AsyncEvents(send)
        self.payouts = AsyncPayouts(send)
        self.products = AsyncProducts(send)
        self.sandbox = AsyncSandbox(send)
        self.transactions = AsyncTransactions(send)
        self.wallets = AsyncWallets(send)
        self.webhooks = AsyncWebhooks(send)
        self.deliveries = AsyncDeliveries(send)
        self.sessions = AsyncSessions(send)
        self.api_keys = AsyncApiKeys(send)
        self.team = AsyncTeam(send)
