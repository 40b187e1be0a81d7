"""Calls of the tag `sessions`."""

from urllib.parse import quote

from ...call import AsyncSend, Call, Send
from ..models.accepted_invitation_reply import AcceptedInvitationReply
from ..models.change_password import ChangePassword
from ..models.change_security_policy import ChangeSecurityPolicy
from ..models.choose_password import ChoosePassword
from ..models.confirmation_reply import ConfirmationReply
from ..models.enrolment_reply import EnrolmentReply
from ..models.logged_out_reply import LoggedOutReply
from ..models.login import Login
from ..models.one_time_code import OneTimeCode
from ..models.recovery_codes_reply import RecoveryCodesReply
from ..models.refresh import Refresh
from ..models.request_password_reset import RequestPasswordReset
from ..models.security_policy_reply import SecurityPolicyReply
from ..models.session_list import SessionList
from ..models.tokens_reply import TokensReply
from ..models.two_factor_reply import TwoFactorReply


def _accept_invitation(
    body: ChoosePassword,
) -> Call:
    return Call(
        "POST",
        "/auth/invitations/accept",
        body=body.to_dict(),
    )


def _log_in(
    body: Login,
) -> Call:
    return Call(
        "POST",
        "/auth/login",
        body=body.to_dict(),
    )


def _log_out() -> Call:
    return Call(
        "POST",
        "/auth/logout",
    )


def _request_password_reset(
    body: RequestPasswordReset,
) -> Call:
    return Call(
        "POST",
        "/auth/password-reset",
        body=body.to_dict(),
    )


def _reset_password(
    body: ChoosePassword,
) -> Call:
    return Call(
        "POST",
        "/auth/password-reset/confirm",
        body=body.to_dict(),
    )


def _refresh_tokens(
    body: Refresh,
) -> Call:
    return Call(
        "POST",
        "/auth/refresh",
        body=body.to_dict(),
    )


def _change_password(
    body: ChangePassword,
) -> Call:
    return Call(
        "PUT",
        "/client/api/password",
        body=body.to_dict(),
    )


def _get_security_policy() -> Call:
    return Call(
        "GET",
        "/client/api/security",
    )


def _change_security_policy(
    body: ChangeSecurityPolicy,
) -> Call:
    return Call(
        "PUT",
        "/client/api/security",
        body=body.to_dict(),
    )


def _list_sessions() -> Call:
    return Call(
        "GET",
        "/client/api/sessions",
    )


def _end_session(
    id: int,
) -> Call:
    return Call(
        "DELETE",
        f"/client/api/sessions/{quote(str(id), safe='')}",
    )


def _get_two_factor() -> Call:
    return Call(
        "GET",
        "/client/api/two-factor",
    )


def _begin_two_factor() -> Call:
    return Call(
        "POST",
        "/client/api/two-factor",
    )


def _disable_two_factor(
    body: OneTimeCode,
) -> Call:
    return Call(
        "DELETE",
        "/client/api/two-factor",
        body=body.to_dict(),
    )


def _confirm_two_factor(
    body: OneTimeCode,
) -> Call:
    return Call(
        "POST",
        "/client/api/two-factor/confirm",
        body=body.to_dict(),
    )


class Sessions:
    """Calls of the tag `sessions`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def accept_invitation(
        self,
        body: ChoosePassword,
    ) -> AcceptedInvitationReply:
        """Accept an invitation.

        Creates the user to whom the token was sent by mail. The user can then log in. Returns 409 `E_CONFLICT` if another
        user has the email address, or if the user who sent the invitation is no longer an owner."""
        response = self._send(
            _accept_invitation(
                body,
            )
        )
        return AcceptedInvitationReply.from_dict(response.json())

    def log_in(
        self,
        body: Login,
    ) -> TokensReply:
        """Log in.

        Starts a session. Returns an access token, valid for 15 minutes, and a refresh token, valid for 7 days. Also sets the
        portal cookie, valid for 8 hours. An unknown email and a wrong password both return 401 `E_INVALID_CREDENTIALS`. A user
        with two-factor authentication also sends `otp`; without it, a right password returns 401 `E_TWO_FACTOR_REQUIRED`.
        Failed logins of a user are rate limited: see [Rate limits and polling](/docs/guides/limits)."""
        response = self._send(
            _log_in(
                body,
            )
        )
        return TokensReply.from_dict(response.json())

    def log_out(
        self,
    ) -> LoggedOutReply:
        """Log out.

        Ends the session. Its tokens and its portal cookie are invalid from the next request on."""
        response = self._send(_log_out())
        return LoggedOutReply.from_dict(response.json())

    def request_password_reset(
        self,
        body: RequestPasswordReset,
    ) -> ConfirmationReply:
        """Request a password reset.

        Sends a mail with a token to the user with this email address. The token is valid for 30 minutes. The response is the
        same if there is no such user. At most 3 mails an hour are sent to an address."""
        response = self._send(
            _request_password_reset(
                body,
            )
        )
        return ConfirmationReply.from_dict(response.json())

    def reset_password(
        self,
        body: ChoosePassword,
    ) -> ConfirmationReply:
        """Reset a password.

        Sets a new password with the token from a mail, and ends all sessions of the user. Two-factor authentication stays
        as it is."""
        response = self._send(
            _reset_password(
                body,
            )
        )
        return ConfirmationReply.from_dict(response.json())

    def refresh_tokens(
        self,
        body: Refresh,
    ) -> TokensReply:
        """Refresh tokens.

        Exchanges a refresh token for a new access token and a new refresh token. A refresh token works only once. A second
        use means that it was copied, so it ends the whole session, and the user must log in again."""
        response = self._send(
            _refresh_tokens(
                body,
            )
        )
        return TokensReply.from_dict(response.json())

    def change_password(
        self,
        body: ChangePassword,
    ) -> ConfirmationReply:
        """Change the password.

        Changes the password of the signed-in user. The current session goes on; all other sessions of the user end. Returns
        409 `E_CONFLICT` if somebody else changes the password at the same time."""
        response = self._send(
            _change_password(
                body,
            )
        )
        return ConfirmationReply.from_dict(response.json())

    def get_security_policy(
        self,
    ) -> SecurityPolicyReply:
        """Get the security policy.

        Returns the account's rules for logins."""
        response = self._send(_get_security_policy())
        return SecurityPolicyReply.from_dict(response.json())

    def change_security_policy(
        self,
        body: ChangeSecurityPolicy,
    ) -> SecurityPolicyReply:
        """Change the security policy.

        Sets whether owners need two-factor authentication. From the next request on, an owner without it gets 403
        `E_TWO_FACTOR_ENROLMENT` for everything but enrolment and logout. Returns 409 `E_CONFLICT` if the owner who requires
        it has none. Requires the role owner."""
        response = self._send(
            _change_security_policy(
                body,
            )
        )
        return SecurityPolicyReply.from_dict(response.json())

    def list_sessions(
        self,
    ) -> SessionList:
        """List sessions.

        Returns up to 100 sessions of the signed-in user, newest first."""
        response = self._send(_list_sessions())
        return SessionList.from_dict(response.json())

    def end_session(
        self,
        id: int,
    ) -> ConfirmationReply:
        """End a session.

        Ends a session of the signed-in user. Its tokens and its portal cookie are invalid from the next request on."""
        response = self._send(
            _end_session(
                id,
            )
        )
        return ConfirmationReply.from_dict(response.json())

    def get_two_factor(
        self,
    ) -> TwoFactorReply:
        """Get two-factor authentication.

        Returns whether the signed-in user has two-factor authentication."""
        response = self._send(_get_two_factor())
        return TwoFactorReply.from_dict(response.json())

    def begin_two_factor(
        self,
    ) -> EnrolmentReply:
        """Begin two-factor enrolment.

        Creates a secret for an authenticator app (TOTP, RFC 6238). It has no effect until a code confirms it. Returns 409
        `E_CONFLICT` if the user has two-factor authentication."""
        response = self._send(_begin_two_factor())
        return EnrolmentReply.from_dict(response.json())

    def disable_two_factor(
        self,
        body: OneTimeCode,
    ) -> TwoFactorReply:
        """Disable two-factor authentication.

        Takes a code of the app, or a recovery code. Returns 409 `E_CONFLICT` if the user has no two-factor authentication."""
        response = self._send(
            _disable_two_factor(
                body,
            )
        )
        return TwoFactorReply.from_dict(response.json())

    def confirm_two_factor(
        self,
        body: OneTimeCode,
    ) -> RecoveryCodesReply:
        """Confirm two-factor enrolment.

        Enables two-factor authentication with a code of the app. Each login takes a code from now on, and the user's other
        sessions end. The recovery codes are shown only in this response. Returns 409 `E_CONFLICT` if no enrolment was begun."""
        response = self._send(
            _confirm_two_factor(
                body,
            )
        )
        return RecoveryCodesReply.from_dict(response.json())


class AsyncSessions:
    """Calls of the tag `sessions`."""

    def __init__(self, send: AsyncSend) -> None:
        self._send = send

    async def accept_invitation(
        self,
        body: ChoosePassword,
    ) -> AcceptedInvitationReply:
        """Accept an invitation.

        Creates the user to whom the token was sent by mail. The user can then log in. Returns 409 `E_CONFLICT` if another
        user has the email address, or if the user who sent the invitation is no longer an owner."""
        response = await self._send(
            _accept_invitation(
                body,
            )
        )
        return AcceptedInvitationReply.from_dict(response.json())

    async def log_in(
        self,
        body: Login,
    ) -> TokensReply:
        """Log in.

        Starts a session. Returns an access token, valid for 15 minutes, and a refresh token, valid for 7 days. Also sets the
        portal cookie, valid for 8 hours. An unknown email and a wrong password both return 401 `E_INVALID_CREDENTIALS`. A user
        with two-factor authentication also sends `otp`; without it, a right password returns 401 `E_TWO_FACTOR_REQUIRED`.
        Failed logins of a user are rate limited: see [Rate limits and polling](/docs/guides/limits)."""
        response = await self._send(
            _log_in(
                body,
            )
        )
        return TokensReply.from_dict(response.json())

    async def log_out(
        self,
    ) -> LoggedOutReply:
        """Log out.

        Ends the session. Its tokens and its portal cookie are invalid from the next request on."""
        response = await self._send(_log_out())
        return LoggedOutReply.from_dict(response.json())

    async def request_password_reset(
        self,
        body: RequestPasswordReset,
    ) -> ConfirmationReply:
        """Request a password reset.

        Sends a mail with a token to the user with this email address. The token is valid for 30 minutes. The response is the
        same if there is no such user. At most 3 mails an hour are sent to an address."""
        response = await self._send(
            _request_password_reset(
                body,
            )
        )
        return ConfirmationReply.from_dict(response.json())

    async def reset_password(
        self,
        body: ChoosePassword,
    ) -> ConfirmationReply:
        """Reset a password.

        Sets a new password with the token from a mail, and ends all sessions of the user. Two-factor authentication stays
        as it is."""
        response = await self._send(
            _reset_password(
                body,
            )
        )
        return ConfirmationReply.from_dict(response.json())

    async def refresh_tokens(
        self,
        body: Refresh,
    ) -> TokensReply:
        """Refresh tokens.

        Exchanges a refresh token for a new access token and a new refresh token. A refresh token works only once. A second
        use means that it was copied, so it ends the whole session, and the user must log in again."""
        response = await self._send(
            _refresh_tokens(
                body,
            )
        )
        return TokensReply.from_dict(response.json())

    async def change_password(
        self,
        body: ChangePassword,
    ) -> ConfirmationReply:
        """Change the password.

        Changes the password of the signed-in user. The current session goes on; all other sessions of the user end. Returns
        409 `E_CONFLICT` if somebody else changes the password at the same time."""
        response = await self._send(
            _change_password(
                body,
            )
        )
        return ConfirmationReply.from_dict(response.json())

    async def get_security_policy(
        self,
    ) -> SecurityPolicyReply:
        """Get the security policy.

        Returns the account's rules for logins."""
        response = await self._send(_get_security_policy())
        return SecurityPolicyReply.from_dict(response.json())

    async def change_security_policy(
        self,
        body: ChangeSecurityPolicy,
    ) -> SecurityPolicyReply:
        """Change the security policy.

        Sets whether owners need two-factor authentication. From the next request on, an owner without it gets 403
        `E_TWO_FACTOR_ENROLMENT` for everything but enrolment and logout. Returns 409 `E_CONFLICT` if the owner who requires
        it has none. Requires the role owner."""
        response = await self._send(
            _change_security_policy(
                body,
            )
        )
        return SecurityPolicyReply.from_dict(response.json())

    async def list_sessions(
        self,
    ) -> SessionList:
        """List sessions.

        Returns up to 100 sessions of the signed-in user, newest first."""
        response = await self._send(_list_sessions())
        return SessionList.from_dict(response.json())

    async def end_session(
        self,
        id: int,
    ) -> ConfirmationReply:
        """End a session.

        Ends a session of the signed-in user. Its tokens and its portal cookie are invalid from the next request on."""
        response = await self._send(
            _end_session(
                id,
            )
        )
        return ConfirmationReply.from_dict(response.json())

    async def get_two_factor(
        self,
    ) -> TwoFactorReply:
        """Get two-factor authentication.

        Returns whether the signed-in user has two-factor authentication."""
        response = await self._send(_get_two_factor())
        return TwoFactorReply.from_dict(response.json())

    async def begin_two_factor(
        self,
    ) -> EnrolmentReply:
        """Begin two-factor enrolment.

        Creates a secret for an authenticator app (TOTP, RFC 6238). It has no effect until a code confirms it. Returns 409
        `E_CONFLICT` if the user has two-factor authentication."""
        response = await self._send(_begin_two_factor())
        return EnrolmentReply.from_dict(response.json())

    async def disable_two_factor(
        self,
        body: OneTimeCode,
    ) -> TwoFactorReply:
        """Disable two-factor authentication.

        Takes a code of the app, or a recovery code. Returns 409 `E_CONFLICT` if the user has no two-factor authentication."""
        response = await self._send(
            _disable_two_factor(
                body,
            )
        )
        return TwoFactorReply.from_dict(response.json())

    async def confirm_two_factor(
        self,
        body: OneTimeCode,
    ) -> RecoveryCodesReply:
        """Confirm two-factor enrolment.

        Enables two-factor authentication with a code of the app. Each login takes a code from now on, and the user's other
        sessions end. The recovery codes are shown only in this response. Returns 409 `E_CONFLICT` if no enrolment was begun."""
        response = await self._send(
            _confirm_two_factor(
                body,
            )
        )
        return RecoveryCodesReply.from_dict(response.json())
