import datetime
from collections.abc import Mapping
from typing import Any, TypeVar, Union, cast

from attrs import define as _attrs_define
from dateutil.parser import isoparse

from ..models.replayed_events import ReplayedEvents
from ..types import UNSET, Unset

T = TypeVar("T", bound="ReplayEvents")


@_attrs_define
class ReplayEvents:
    """Events to deliver again.

    Attributes:
        since (datetime.datetime): Only events recorded at or after this time.
        dry_run (Union[None, Unset, bool]): Whether to count the events only, without starting a replay. Default: false.
        from_position (Union[None, Unset, int]): Only events at or after this position of the log. To go on with a dry
            run that is not complete, give its
            `next_position` here. Default: no limit.
        only (Union[None, ReplayedEvents, Unset]): Part of these events to deliver. Default: both parts.
    """

    since: datetime.datetime
    dry_run: Union[None, Unset, bool] = UNSET
    from_position: Union[None, Unset, int] = UNSET
    only: Union[None, ReplayedEvents, Unset] = UNSET

    def to_dict(self) -> dict[str, Any]:
        since = self.since.isoformat()

        dry_run: Union[None, Unset, bool]
        if isinstance(self.dry_run, Unset):
            dry_run = UNSET
        else:
            dry_run = self.dry_run

        from_position: Union[None, Unset, int]
        if isinstance(self.from_position, Unset):
            from_position = UNSET
        else:
            from_position = self.from_position

        only: Union[None, Unset, str]
        if isinstance(self.only, Unset):
            only = UNSET
        elif isinstance(self.only, ReplayedEvents):
            only = self.only.value
        else:
            only = self.only

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "since": since,
            }
        )
        if dry_run is not UNSET:
            field_dict["dry_run"] = dry_run
        if from_position is not UNSET:
            field_dict["from_position"] = from_position
        if only is not UNSET:
            field_dict["only"] = only

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        since = isoparse(d.pop("since"))

        def _parse_dry_run(data: object) -> Union[None, Unset, bool]:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(Union[None, Unset, bool], data)

        dry_run = _parse_dry_run(d.pop("dry_run", UNSET))

        def _parse_from_position(data: object) -> Union[None, Unset, int]:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            return cast(Union[None, Unset, int], data)

        from_position = _parse_from_position(d.pop("from_position", UNSET))

        def _parse_only(data: object) -> Union[None, ReplayedEvents, Unset]:
            if data is None:
                return data
            if isinstance(data, Unset):
                return data
            try:
                if not isinstance(data, str):
                    raise TypeError()
                only_type_0 = ReplayedEvents(data)

                return only_type_0
            except:  # noqa: E722
                pass
            return cast(Union[None, ReplayedEvents, Unset], data)

        only = _parse_only(d.pop("only", UNSET))

        replay_events = cls(
            since=since,
            dry_run=dry_run,
            from_position=from_position,
            only=only,
        )

        return replay_events
