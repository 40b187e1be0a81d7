from enum import Enum


class WebhookEventType(str, Enum):
    ORDER_CANCELLED = "order.cancelled"
    ORDER_CREATED = "order.created"
    ORDER_DELIVERED = "order.delivered"
    ORDER_PARTIALLY_DELIVERED = "order.partially_delivered"
    ORDER_PENDING = "order.pending"
    PAYOUT_CANCELLED = "payout.cancelled"
    PAYOUT_FAILED = "payout.failed"
    PAYOUT_PAID = "payout.paid"
    PAYOUT_REQUESTED = "payout.requested"
    WALLET_LOW_BALANCE = "wallet.low_balance"

    @classmethod
    def _missing_(cls, value: object) -> "WebhookEventType":
        """Accepts a value that a later version of the service has added."""
        if not isinstance(value, str):
            raise ValueError(f"{value!r} is not a valid {cls.__name__}")
        member = str.__new__(cls, value)
        member._name_ = value
        member._value_ = value
        return member

    def __str__(self) -> str:
        return str(self.value)
