"""Contains all the data models used in inputs/outputs"""

from .accepted_invitation import AcceptedInvitation
from .accepted_invitation_reply import AcceptedInvitationReply
from .add_beneficiary import AddBeneficiary
from .api_key import ApiKey
from .api_key_list import ApiKeyList
from .api_key_list_data import ApiKeyListData
from .api_key_reply import ApiKeyReply
from .attempt import Attempt
from .attempt_outcome import AttemptOutcome
from .attempts_by_webhook import AttemptsByWebhook
from .attempts_by_webhook_reply import AttemptsByWebhookReply
from .beneficiary import Beneficiary
from .beneficiary_list import BeneficiaryList
from .beneficiary_list_data import BeneficiaryListData
from .beneficiary_reply import BeneficiaryReply
from .beneficiary_type import BeneficiaryType
from .cancel_order import CancelOrder
from .category import Category
from .category_list import CategoryList
from .category_list_data import CategoryListData
from .change_password import ChangePassword
from .change_security_policy import ChangeSecurityPolicy
from .change_team_member import ChangeTeamMember
from .change_webhook import ChangeWebhook
from .charge import Charge
from .charge_reply import ChargeReply
from .choose_password import ChoosePassword
from .confirmation import Confirmation
from .confirmation_reply import ConfirmationReply
from .country import Country
from .country_list import CountryList
from .country_list_data import CountryListData
from .currency import Currency
from .currency_list import CurrencyList
from .currency_list_data import CurrencyListData
from .deactivation_reason import DeactivationReason
from .deleted_beneficiary import DeletedBeneficiary
from .deleted_beneficiary_reply import DeletedBeneficiaryReply
from .deleted_webhook import DeletedWebhook
from .deleted_webhook_reply import DeletedWebhookReply
from .delivery import Delivery
from .delivery_detail import DeliveryDetail
from .delivery_detail_reply import DeliveryDetailReply
from .delivery_list import DeliveryList
from .delivery_list_data import DeliveryListData
from .delivery_retry import DeliveryRetry
from .delivery_retry_reply import DeliveryRetryReply
from .delivery_statistics import DeliveryStatistics
from .delivery_statistics_reply import DeliveryStatisticsReply
from .delivery_status import DeliveryStatus
from .denomination_type import DenominationType
from .enrolment import Enrolment
from .enrolment_reply import EnrolmentReply
from .error import Error
from .error_code import ErrorCode
from .error_detail import ErrorDetail
from .error_detail_messages import ErrorDetailMessages
from .event_delivery import EventDelivery
from .event_explanation import EventExplanation
from .event_outcome import EventOutcome
from .event_page import EventPage
from .event_page_reply import EventPageReply
from .fund_own_wallet import FundOwnWallet
from .history_actor import HistoryActor
from .history_attempt import HistoryAttempt
from .history_delivery import HistoryDelivery
from .history_retry import HistoryRetry
from .image_size import ImageSize
from .invitation import Invitation
from .invitation_list import InvitationList
from .invitation_list_data import InvitationListData
from .invitation_reply import InvitationReply
from .invite_person import InvitePerson
from .issue_credential import IssueCredential
from .issued_credential import IssuedCredential
from .issued_credential_reply import IssuedCredentialReply
from .key_scope import KeyScope
from .listed_attempt import ListedAttempt
from .logged_out import LoggedOut
from .logged_out_reply import LoggedOutReply
from .login import Login
from .low_balance_notice import LowBalanceNotice
from .low_balance_notice_list import LowBalanceNoticeList
from .low_balance_notice_list_data import LowBalanceNoticeListData
from .low_balance_notice_reply import LowBalanceNoticeReply
from .one_time_code import OneTimeCode
from .order import Order
from .order_day import OrderDay
from .order_item import OrderItem
from .order_list import OrderList
from .order_list_data import OrderListData
from .order_reply import OrderReply
from .order_statistics import OrderStatistics
from .order_statistics_reply import OrderStatisticsReply
from .order_status import OrderStatus
from .order_timeline import OrderTimeline
from .order_timeline_entry import OrderTimelineEntry
from .order_timeline_reply import OrderTimelineReply
from .orders_in_status import OrdersInStatus
from .payout import Payout
from .payout_list import PayoutList
from .payout_list_data import PayoutListData
from .payout_reply import PayoutReply
from .payout_status import PayoutStatus
from .place_order import PlaceOrder
from .product import Product
from .product_image import ProductImage
from .product_image_list import ProductImageList
from .product_image_list_data import ProductImageListData
from .product_image_reply import ProductImageReply
from .product_list import ProductList
from .product_list_data import ProductListData
from .product_reply import ProductReply
from .quote_charge import QuoteCharge
from .rate_limit_error import RateLimitError
from .recorded_transaction import RecordedTransaction
from .recorded_transaction_reply import RecordedTransactionReply
from .recovery_codes import RecoveryCodes
from .recovery_codes_reply import RecoveryCodesReply
from .refresh import Refresh
from .register_webhook import RegisterWebhook
from .registered_webhook import RegisteredWebhook
from .replay_events import ReplayEvents
from .replay_requested import ReplayRequested
from .replay_requested_reply import ReplayRequestedReply
from .replay_status import ReplayStatus
from .replayed_events import ReplayedEvents
from .request_password_reset import RequestPasswordReset
from .request_payout import RequestPayout
from .rotate_secret import RotateSecret
from .rotate_token import RotateToken
from .rotated_secret import RotatedSecret
from .rotated_secret_reply import RotatedSecretReply
from .rotated_token import RotatedToken
from .rotated_token_reply import RotatedTokenReply
from .security_policy import SecurityPolicy
from .security_policy_reply import SecurityPolicyReply
from .sent_mail import SentMail
from .sent_mail_list import SentMailList
from .sent_mail_list_data import SentMailListData
from .session import Session
from .session_list import SessionList
from .session_list_data import SessionListData
from .set_notice import SetNotice
from .spend import Spend
from .statement import Statement
from .statement_reply import StatementReply
from .team_member import TeamMember
from .team_member_list import TeamMemberList
from .team_member_list_data import TeamMemberListData
from .team_member_reply import TeamMemberReply
from .test_webhook import TestWebhook
from .tokens import Tokens
from .tokens_reply import TokensReply
from .transaction import Transaction
from .transaction_category import TransactionCategory
from .transaction_list import TransactionList
from .transaction_list_data import TransactionListData
from .transaction_reply import TransactionReply
from .transaction_type import TransactionType
from .two_factor import TwoFactor
from .two_factor_reply import TwoFactorReply
from .user_role import UserRole
from .voucher import Voucher
from .voucher_reference import VoucherReference
from .vouchers import Vouchers
from .vouchers_reply import VouchersReply
from .wallet import Wallet
from .wallet_list import WalletList
from .wallet_list_data import WalletListData
from .webhook import Webhook
from .webhook_attempts import WebhookAttempts
from .webhook_attempts_reply import WebhookAttemptsReply
from .webhook_day import WebhookDay
from .webhook_deactivation import WebhookDeactivation
from .webhook_envelope import WebhookEnvelope
from .webhook_envelope_event_type import WebhookEnvelopeEventType
from .webhook_event_type import WebhookEventType
from .webhook_explanation import WebhookExplanation
from .webhook_explanation_reply import WebhookExplanationReply
from .webhook_header import WebhookHeader
from .webhook_list import WebhookList
from .webhook_list_data import WebhookListData
from .webhook_low_balance import WebhookLowBalance
from .webhook_low_balance_envelope import WebhookLowBalanceEnvelope
from .webhook_low_balance_envelope_event_type import WebhookLowBalanceEnvelopeEventType
from .webhook_order import WebhookOrder
from .webhook_payout import WebhookPayout
from .webhook_payout_envelope import WebhookPayoutEnvelope
from .webhook_payout_envelope_event_type import WebhookPayoutEnvelopeEventType
from .webhook_replay import WebhookReplay
from .webhook_replay_list import WebhookReplayList
from .webhook_replay_list_data import WebhookReplayListData
from .webhook_reply import WebhookReply
from .webhook_state import WebhookState
from .webhook_statistics import WebhookStatistics
from .webhook_statistics_reply import WebhookStatisticsReply
from .webhook_test import WebhookTest
from .webhook_test_reply import WebhookTestReply

__all__ = (
    "AcceptedInvitation",
    "AcceptedInvitationReply",
    "AddBeneficiary",
    "ApiKey",
    "ApiKeyList",
    "ApiKeyListData",
    "ApiKeyReply",
    "Attempt",
    "AttemptOutcome",
    "AttemptsByWebhook",
    "AttemptsByWebhookReply",
    "Beneficiary",
    "BeneficiaryList",
    "BeneficiaryListData",
    "BeneficiaryReply",
    "BeneficiaryType",
    "CancelOrder",
    "Category",
    "CategoryList",
    "CategoryListData",
    "ChangePassword",
    "ChangeSecurityPolicy",
    "ChangeTeamMember",
    "ChangeWebhook",
    "Charge",
    "ChargeReply",
    "ChoosePassword",
    "Confirmation",
    "ConfirmationReply",
    "Country",
    "CountryList",
    "CountryListData",
    "Currency",
    "CurrencyList",
    "CurrencyListData",
    "DeactivationReason",
    "DeletedBeneficiary",
    "DeletedBeneficiaryReply",
    "DeletedWebhook",
    "DeletedWebhookReply",
    "Delivery",
    "DeliveryDetail",
    "DeliveryDetailReply",
    "DeliveryList",
    "DeliveryListData",
    "DeliveryRetry",
    "DeliveryRetryReply",
    "DeliveryStatistics",
    "DeliveryStatisticsReply",
    "DeliveryStatus",
    "DenominationType",
    "Enrolment",
    "EnrolmentReply",
    "Error",
    "ErrorCode",
    "ErrorDetail",
    "ErrorDetailMessages",
    "EventDelivery",
    "EventExplanation",
    "EventOutcome",
    "EventPage",
    "EventPageReply",
    "FundOwnWallet",
    "HistoryActor",
    "HistoryAttempt",
    "HistoryDelivery",
    "HistoryRetry",
    "ImageSize",
    "Invitation",
    "InvitationList",
    "InvitationListData",
    "InvitationReply",
    "InvitePerson",
    "IssueCredential",
    "IssuedCredential",
    "IssuedCredentialReply",
    "KeyScope",
    "ListedAttempt",
    "LoggedOut",
    "LoggedOutReply",
    "Login",
    "LowBalanceNotice",
    "LowBalanceNoticeList",
    "LowBalanceNoticeListData",
    "LowBalanceNoticeReply",
    "OneTimeCode",
    "Order",
    "OrderDay",
    "OrderItem",
    "OrderList",
    "OrderListData",
    "OrderReply",
    "OrdersInStatus",
    "OrderStatistics",
    "OrderStatisticsReply",
    "OrderStatus",
    "OrderTimeline",
    "OrderTimelineEntry",
    "OrderTimelineReply",
    "Payout",
    "PayoutList",
    "PayoutListData",
    "PayoutReply",
    "PayoutStatus",
    "PlaceOrder",
    "Product",
    "ProductImage",
    "ProductImageList",
    "ProductImageListData",
    "ProductImageReply",
    "ProductList",
    "ProductListData",
    "ProductReply",
    "QuoteCharge",
    "RateLimitError",
    "RecordedTransaction",
    "RecordedTransactionReply",
    "RecoveryCodes",
    "RecoveryCodesReply",
    "Refresh",
    "RegisteredWebhook",
    "RegisterWebhook",
    "ReplayedEvents",
    "ReplayEvents",
    "ReplayRequested",
    "ReplayRequestedReply",
    "ReplayStatus",
    "RequestPasswordReset",
    "RequestPayout",
    "RotatedSecret",
    "RotatedSecretReply",
    "RotatedToken",
    "RotatedTokenReply",
    "RotateSecret",
    "RotateToken",
    "SecurityPolicy",
    "SecurityPolicyReply",
    "SentMail",
    "SentMailList",
    "SentMailListData",
    "Session",
    "SessionList",
    "SessionListData",
    "SetNotice",
    "Spend",
    "Statement",
    "StatementReply",
    "TeamMember",
    "TeamMemberList",
    "TeamMemberListData",
    "TeamMemberReply",
    "TestWebhook",
    "Tokens",
    "TokensReply",
    "Transaction",
    "TransactionCategory",
    "TransactionList",
    "TransactionListData",
    "TransactionReply",
    "TransactionType",
    "TwoFactor",
    "TwoFactorReply",
    "UserRole",
    "Voucher",
    "VoucherReference",
    "Vouchers",
    "VouchersReply",
    "Wallet",
    "WalletList",
    "WalletListData",
    "Webhook",
    "WebhookAttempts",
    "WebhookAttemptsReply",
    "WebhookDay",
    "WebhookDeactivation",
    "WebhookEnvelope",
    "WebhookEnvelopeEventType",
    "WebhookEventType",
    "WebhookExplanation",
    "WebhookExplanationReply",
    "WebhookHeader",
    "WebhookList",
    "WebhookListData",
    "WebhookLowBalance",
    "WebhookLowBalanceEnvelope",
    "WebhookLowBalanceEnvelopeEventType",
    "WebhookOrder",
    "WebhookPayout",
    "WebhookPayoutEnvelope",
    "WebhookPayoutEnvelopeEventType",
    "WebhookReplay",
    "WebhookReplayList",
    "WebhookReplayListData",
    "WebhookReply",
    "WebhookState",
    "WebhookStatistics",
    "WebhookStatisticsReply",
    "WebhookTest",
    "WebhookTestReply",
)
