"""Calls of the tag `team`."""

from collections.abc import AsyncIterator, Iterator
from typing import Optional
from urllib.parse import quote

from ...call import AsyncSend, Call, Send, async_pages, pages
from ..models.change_team_member import ChangeTeamMember
from ..models.confirmation_reply import ConfirmationReply
from ..models.invitation_list import InvitationList
from ..models.invitation_reply import InvitationReply
from ..models.invite_person import InvitePerson
from ..models.team_member import TeamMember
from ..models.team_member_list import TeamMemberList
from ..models.team_member_reply import TeamMemberReply


def _list_team(
    *,
    page: Optional[int] = None,
    limit: Optional[int] = None,
) -> Call:
    return Call(
        "GET",
        "/client/api/users",
        params={
            "page": page,
            "limit": limit,
        },
    )


def _list_invitations() -> Call:
    return Call(
        "GET",
        "/client/api/users/invitations",
    )


def _invite_user(
    body: InvitePerson,
    *,
    idempotency_key: Optional[str] = None,
) -> Call:
    return Call(
        "POST",
        "/client/api/users/invitations",
        body=body.to_dict(),
        takes_key=True,
        idempotency_key=idempotency_key,
    )


def _revoke_invitation(
    id: int,
) -> Call:
    return Call(
        "DELETE",
        f"/client/api/users/invitations/{quote(str(id), safe='')}",
    )


def _get_team_member(
    id: int,
) -> Call:
    return Call(
        "GET",
        f"/client/api/users/{quote(str(id), safe='')}",
    )


def _change_team_member(
    id: int,
    body: ChangeTeamMember,
) -> Call:
    return Call(
        "PUT",
        f"/client/api/users/{quote(str(id), safe='')}",
        body=body.to_dict(),
    )


def _remove_team_member(
    id: int,
) -> Call:
    return Call(
        "DELETE",
        f"/client/api/users/{quote(str(id), safe='')}",
    )


class Team:
    """Calls of the tag `team`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def list_team(
        self,
        *,
        page: Optional[int] = None,
        limit: Optional[int] = None,
    ) -> TeamMemberList:
        """List users.

        Returns the users of the account, newest first. Removed users are not listed."""
        response = self._send(
            _list_team(
                page=page,
                limit=limit,
            )
        )
        return TeamMemberList.from_dict(response.json())

    def iter_team(
        self,
        *,
        limit: Optional[int] = None,
    ) -> Iterator[TeamMember]:
        """List users, page after page.

        Returns the users of the account, newest first. Removed users are not listed."""
        for response in pages(
            self._send,
            _list_team(
                limit=limit,
            ),
        ):
            for each in TeamMemberList.from_dict(response.json()).data.users:
                yield each

    def list_invitations(
        self,
    ) -> InvitationList:
        """List invitations.

        Returns the account's invitations that nobody has accepted, newest first. Requires the role owner."""
        response = self._send(_list_invitations())
        return InvitationList.from_dict(response.json())

    def invite_user(
        self,
        body: InvitePerson,
        *,
        idempotency_key: Optional[str] = None,
    ) -> InvitationReply:
        """Invite a user.

        Sends a mail with a link to the person, who chooses a password there. The invitation expires after 7 days. It replaces
        an open one to the same address, whose link stops. An account can have 100 open invitations. Requires the role owner."""
        response = self._send(
            _invite_user(
                body,
                idempotency_key=idempotency_key,
            )
        )
        return InvitationReply.from_dict(response.json())

    def revoke_invitation(
        self,
        id: int,
    ) -> ConfirmationReply:
        """Revoke an invitation.

        Ends an invitation that nobody has accepted. Requires the role owner."""
        response = self._send(
            _revoke_invitation(
                id,
            )
        )
        return ConfirmationReply.from_dict(response.json())

    def get_team_member(
        self,
        id: int,
    ) -> TeamMemberReply:
        """Retrieve a user.

        Returns a user of the account. Returns 404 for a removed user."""
        response = self._send(
            _get_team_member(
                id,
            )
        )
        return TeamMemberReply.from_dict(response.json())

    def change_team_member(
        self,
        id: int,
        body: ChangeTeamMember,
    ) -> TeamMemberReply:
        """Change a user's role.

        The change takes effect with the next request and ends all sessions of the user, who has to log in again. Returns 409
        `E_CONFLICT` for the last owner and for a removed user. Requires the role owner."""
        response = self._send(
            _change_team_member(
                id,
                body,
            )
        )
        return TeamMemberReply.from_dict(response.json())

    def remove_team_member(
        self,
        id: int,
    ) -> TeamMemberReply:
        """Remove a user.

        Takes effect with the next request and ends all sessions and tokens of the user. Returns 409 `E_CONFLICT` for the last
        owner. Requires the role owner."""
        response = self._send(
            _remove_team_member(
                id,
            )
        )
        return TeamMemberReply.from_dict(response.json())


class AsyncTeam:
    """Calls of the tag `team`."""

    def __init__(self, send: AsyncSend) -> None:
        self._send = send

    async def list_team(
        self,
        *,
        page: Optional[int] = None,
        limit: Optional[int] = None,
    ) -> TeamMemberList:
        """List users.

        Returns the users of the account, newest first. Removed users are not listed."""
        response = await self._send(
            _list_team(
                page=page,
                limit=limit,
            )
        )
        return TeamMemberList.from_dict(response.json())

    async def iter_team(
        self,
        *,
        limit: Optional[int] = None,
    ) -> AsyncIterator[TeamMember]:
        """List users, page after page.

        Returns the users of the account, newest first. Removed users are not listed."""
        async for response in async_pages(
            self._send,
            _list_team(
                limit=limit,
            ),
        ):
            for each in TeamMemberList.from_dict(response.json()).data.users:
                yield each

    async def list_invitations(
        self,
    ) -> InvitationList:
        """List invitations.

        Returns the account's invitations that nobody has accepted, newest first. Requires the role owner."""
        response = await self._send(_list_invitations())
        return InvitationList.from_dict(response.json())

    async def invite_user(
        self,
        body: InvitePerson,
        *,
        idempotency_key: Optional[str] = None,
    ) -> InvitationReply:
        """Invite a user.

        Sends a mail with a link to the person, who chooses a password there. The invitation expires after 7 days. It replaces
        an open one to the same address, whose link stops. An account can have 100 open invitations. Requires the role owner."""
        response = await self._send(
            _invite_user(
                body,
                idempotency_key=idempotency_key,
            )
        )
        return InvitationReply.from_dict(response.json())

    async def revoke_invitation(
        self,
        id: int,
    ) -> ConfirmationReply:
        """Revoke an invitation.

        Ends an invitation that nobody has accepted. Requires the role owner."""
        response = await self._send(
            _revoke_invitation(
                id,
            )
        )
        return ConfirmationReply.from_dict(response.json())

    async def get_team_member(
        self,
        id: int,
    ) -> TeamMemberReply:
        """Retrieve a user.

        Returns a user of the account. Returns 404 for a removed user."""
        response = await self._send(
            _get_team_member(
                id,
            )
        )
        return TeamMemberReply.from_dict(response.json())

    async def change_team_member(
        self,
        id: int,
        body: ChangeTeamMember,
    ) -> TeamMemberReply:
        """Change a user's role.

        The change takes effect with the next request and ends all sessions of the user, who has to log in again. Returns 409
        `E_CONFLICT` for the last owner and for a removed user. Requires the role owner."""
        response = await self._send(
            _change_team_member(
                id,
                body,
            )
        )
        return TeamMemberReply.from_dict(response.json())

    async def remove_team_member(
        self,
        id: int,
    ) -> TeamMemberReply:
        """Remove a user.

        Takes effect with the next request and ends all sessions and tokens of the user. Returns 409 `E_CONFLICT` for the last
        owner. Requires the role owner."""
        response = await self._send(
            _remove_team_member(
                id,
            )
        )
        return TeamMemberReply.from_dict(response.json())
