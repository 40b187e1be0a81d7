from enum import Enum


class WebhookState(str, Enum):
    CREATED_LATER = "created_later"
    DELETED = "deleted"
    INACTIVE = "inactive"
    NOT_SUBSCRIBED = "not_subscribed"
    SUBSCRIBED = "subscribed"

    @classmethod
    def _missing_(cls, value: object) -> "WebhookState":
        """Accepts a value that a later version of the service has added."""
        if not isinstance(value, str):
            raise ValueError(f"{value!r} is not a valid {cls.__name__}")
        member = str.__new__(cls, value)
        member._name_ = value
        member._value_ = value
        return member

    def __str__(self) -> str:
        return str(self.value)
