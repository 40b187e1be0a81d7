from enum import Enum


class AttemptOutcome(str, Enum):
    DELIVERED = "delivered"
    FAILED = "failed"
    IN_FLIGHT = "in_flight"
    UNKNOWN = "unknown"

    @classmethod
    def _missing_(cls, value: object) -> "AttemptOutcome":
        """Accepts a value that a later version of the service has added."""
        if not isinstance(value, str):
            raise ValueError(f"{value!r} is not a valid {cls.__name__}")
        member = str.__new__(cls, value)
        member._name_ = value
        member._value_ = value
        return member

    def __str__(self) -> str:
        return str(self.value)
