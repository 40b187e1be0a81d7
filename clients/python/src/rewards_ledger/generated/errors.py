"""An exception for each error code of the API."""

from ..api_error import ApiError


class AccountSuspended(ApiError):
    """`E_ACCOUNT_SUSPENDED`"""


class AlreadyCreated(ApiError):
    """`E_ALREADY_CREATED`"""


class ApiKeyExpired(ApiError):
    """`E_API_KEY_EXPIRED`"""


class Conflict(ApiError):
    """`E_CONFLICT`"""


class CurrencyMismatch(ApiError):
    """`E_CURRENCY_MISMATCH`"""


class DeliveryAttemptsExhausted(ApiError):
    """`E_DELIVERY_ATTEMPTS_EXHAUSTED`"""


class DeliveryNotFailed(ApiError):
    """`E_DELIVERY_NOT_FAILED`"""


class DuplicateReference(ApiError):
    """`E_DUPLICATE_REFERENCE`"""


class Forbidden(ApiError):
    """`E_FORBIDDEN`"""


class HeadersTooLarge(ApiError):
    """`E_HEADERS_TOO_LARGE`"""


class HmacHeaderInvalid(ApiError):
    """`E_HMAC_HEADER_INVALID`"""


class HmacSignatureInvalid(ApiError):
    """`E_HMAC_SIGNATURE_INVALID`"""


class HmacSignatureRequired(ApiError):
    """`E_HMAC_SIGNATURE_REQUIRED`"""


class HmacTimestampExpired(ApiError):
    """`E_HMAC_TIMESTAMP_EXPIRED`"""


class IdempotencyInProgress(ApiError):
    """`E_IDEMPOTENCY_IN_PROGRESS`"""


class IdempotencyKeyReused(ApiError):
    """`E_IDEMPOTENCY_KEY_REUSED`"""


class InsufficientBalance(ApiError):
    """`E_INSUFFICIENT_BALANCE`"""


class InsufficientScope(ApiError):
    """`E_INSUFFICIENT_SCOPE`"""


class Internal(ApiError):
    """`E_INTERNAL`"""


class InvalidCredentials(ApiError):
    """`E_INVALID_CREDENTIALS`"""


class InvalidDenomination(ApiError):
    """`E_INVALID_DENOMINATION`"""


class InvalidToken(ApiError):
    """`E_INVALID_TOKEN`"""


class MalformedJson(ApiError):
    """`E_MALFORMED_JSON`"""


class MalformedRequest(ApiError):
    """`E_MALFORMED_REQUEST`"""


class MethodNotAllowed(ApiError):
    """`E_METHOD_NOT_ALLOWED`"""


class NetworkNotAllowed(ApiError):
    """`E_NETWORK_NOT_ALLOWED`"""


class NotFound(ApiError):
    """`E_NOT_FOUND`"""


class OrderNotCancellable(ApiError):
    """`E_ORDER_NOT_CANCELLABLE`"""


class OutcomeUnknown(ApiError):
    """`E_OUTCOME_UNKNOWN`"""


class PayloadTooLarge(ApiError):
    """`E_PAYLOAD_TOO_LARGE`"""


class PayoutNotCancellable(ApiError):
    """`E_PAYOUT_NOT_CANCELLABLE`"""


class ProductUnavailable(ApiError):
    """`E_PRODUCT_UNAVAILABLE`"""


class QuantityLimitExceeded(ApiError):
    """`E_QUANTITY_LIMIT_EXCEEDED`"""


class TwoFactorEnrolment(ApiError):
    """`E_TWO_FACTOR_ENROLMENT`"""


class TwoFactorRequired(ApiError):
    """`E_TWO_FACTOR_REQUIRED`"""


class Unauthorized(ApiError):
    """`E_UNAUTHORIZED`"""


class Unavailable(ApiError):
    """`E_UNAVAILABLE`"""


class UnsupportedMediaType(ApiError):
    """`E_UNSUPPORTED_MEDIA_TYPE`"""


class UriTooLong(ApiError):
    """`E_URI_TOO_LONG`"""


class ValidationFailure(ApiError):
    """`E_VALIDATION_FAILURE`"""


class WebhookInactive(ApiError):
    """`E_WEBHOOK_INACTIVE`"""


class WebhookLimitReached(ApiError):
    """`E_WEBHOOK_LIMIT_REACHED`"""


BY_CODE: dict[str, type[ApiError]] = {
    "E_ACCOUNT_SUSPENDED": AccountSuspended,
    "E_ALREADY_CREATED": AlreadyCreated,
    "E_API_KEY_EXPIRED": ApiKeyExpired,
    "E_CONFLICT": Conflict,
    "E_CURRENCY_MISMATCH": CurrencyMismatch,
    "E_DELIVERY_ATTEMPTS_EXHAUSTED": DeliveryAttemptsExhausted,
    "E_DELIVERY_NOT_FAILED": DeliveryNotFailed,
    "E_DUPLICATE_REFERENCE": DuplicateReference,
    "E_FORBIDDEN": Forbidden,
    "E_HEADERS_TOO_LARGE": HeadersTooLarge,
    "E_HMAC_HEADER_INVALID": HmacHeaderInvalid,
    "E_HMAC_SIGNATURE_INVALID": HmacSignatureInvalid,
    "E_HMAC_SIGNATURE_REQUIRED": HmacSignatureRequired,
    "E_HMAC_TIMESTAMP_EXPIRED": HmacTimestampExpired,
    "E_IDEMPOTENCY_IN_PROGRESS": IdempotencyInProgress,
    "E_IDEMPOTENCY_KEY_REUSED": IdempotencyKeyReused,
    "E_INSUFFICIENT_BALANCE": InsufficientBalance,
    "E_INSUFFICIENT_SCOPE": InsufficientScope,
    "E_INTERNAL": Internal,
    "E_INVALID_CREDENTIALS": InvalidCredentials,
    "E_INVALID_DENOMINATION": InvalidDenomination,
    "E_INVALID_TOKEN": InvalidToken,
    "E_MALFORMED_JSON": MalformedJson,
    "E_MALFORMED_REQUEST": MalformedRequest,
    "E_METHOD_NOT_ALLOWED": MethodNotAllowed,
    "E_NETWORK_NOT_ALLOWED": NetworkNotAllowed,
    "E_NOT_FOUND": NotFound,
    "E_ORDER_NOT_CANCELLABLE": OrderNotCancellable,
    "E_OUTCOME_UNKNOWN": OutcomeUnknown,
    "E_PAYLOAD_TOO_LARGE": PayloadTooLarge,
    "E_PAYOUT_NOT_CANCELLABLE": PayoutNotCancellable,
    "E_PRODUCT_UNAVAILABLE": ProductUnavailable,
    "E_QUANTITY_LIMIT_EXCEEDED": QuantityLimitExceeded,
    "E_TWO_FACTOR_ENROLMENT": TwoFactorEnrolment,
    "E_TWO_FACTOR_REQUIRED": TwoFactorRequired,
    "E_UNAUTHORIZED": Unauthorized,
    "E_UNAVAILABLE": Unavailable,
    "E_UNSUPPORTED_MEDIA_TYPE": UnsupportedMediaType,
    "E_URI_TOO_LONG": UriTooLong,
    "E_VALIDATION_FAILURE": ValidationFailure,
    "E_WEBHOOK_INACTIVE": WebhookInactive,
    "E_WEBHOOK_LIMIT_REACHED": WebhookLimitReached,
}
