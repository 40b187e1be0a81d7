//! Time zones of the viewer: the times at which local days and minutes begin.

use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, NaiveTime, Timelike, Utc};
use jiff::Timestamp;
use jiff::civil;
use jiff::tz::{AmbiguousTimestamp, TimeZone};

use super::super::call::Refusal;
use super::super::form::{Form, moment_in};

/// Field with the name of a time zone. Without it, days and minutes are in UTC.
pub const ZONE: &str = "zone";

/// A time zone of the IANA database, with its changes of the clocks.
#[derive(Debug)]
pub struct Zone(TimeZone);

impl Zone {
    pub fn utc() -> Zone {
        Zone(TimeZone::UTC)
    }

    /// Returns the time zone that a query names.
    ///
    /// # Errors
    /// A refusal of a name that the database does not have.
    pub fn of(query: &Form) -> Result<Zone, Refusal> {
        let Some(name) = query.text(ZONE) else { return Ok(Zone::utc()) };
        TimeZone::get(name).map(Zone).map_err(|_| Refusal::of_field(ZONE, "must be a name such as Europe/Berlin"))
    }

    /// Returns the time at which a day begins: midnight, or later if the clocks skip midnight.
    pub fn day(&self, day: NaiveDate) -> Option<DateTime<Utc>> {
        self.first(day.and_time(NaiveTime::MIN))
    }

    /// Returns the first time at which the clocks show a local time. One that they skip is moved behind the gap, by its length.
    pub fn first(&self, local: NaiveDateTime) -> Option<DateTime<Utc>> {
        let at = self.at(local)?.compatible().ok()?;
        DateTime::from_timestamp(at.as_second(), 0)
    }

    /// Returns the moment that a text names, as a time of the API. A day or a time without an offset is in this time zone.
    pub fn moment(&self, text: &str) -> String {
        moment_in(text, |local| self.first(local))
    }

    /// Returns the last time at which the clocks show a local time. They show it twice when they are set back.
    pub fn last(&self, local: NaiveDateTime) -> Option<DateTime<Utc>> {
        let at = self.at(local)?.later().ok()?;
        DateTime::from_timestamp(at.as_second(), 0)
    }

    /// Returns the local date at a time.
    pub fn date(&self, at: DateTime<Utc>) -> NaiveDate {
        let part = |part: i8| u32::try_from(part).ok();
        let local = Timestamp::from_second(at.timestamp()).ok().map(|at| self.0.to_datetime(at).date());
        let date = local.and_then(|date| NaiveDate::from_ymd_opt(date.year().into(), part(date.month())?, part(date.day())?));
        date.unwrap_or_else(|| at.date_naive())
    }

    fn at(&self, local: NaiveDateTime) -> Option<AmbiguousTimestamp> {
        let part = |part: u32| i8::try_from(part).ok();
        let (year, month, day) = (i16::try_from(local.year()).ok()?, part(local.month())?, part(local.day())?);
        let (hour, minute, second) = (part(local.hour())?, part(local.minute())?, part(local.second())?);
        let local = civil::DateTime::new(year, month, day, hour, minute, second, 0).ok()?;
        Some(self.0.to_ambiguous_timestamp(local))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_begins_when_its_clocks_do() {
        let begins = |zone: &str, day: &str| {
            let zone = Zone::of(&Form::from_pairs(vec![(ZONE.to_owned(), zone.to_owned())])).unwrap();
            zone.day(day.parse().unwrap()).unwrap().to_rfc3339()
        };
        for (zone, day, at) in [
            ("", "2026-03-29", "2026-03-29T00:00:00+00:00"),
            ("UTC", "2026-03-29", "2026-03-29T00:00:00+00:00"),
            ("Asia/Kolkata", "2026-03-29", "2026-03-28T18:30:00+00:00"),
            ("America/New_York", "2026-03-29", "2026-03-29T04:00:00+00:00"),
            // The clocks of these days are set forward, and back.
            ("Europe/Berlin", "2026-03-29", "2026-03-28T23:00:00+00:00"),
            ("Europe/Berlin", "2026-03-30", "2026-03-29T22:00:00+00:00"),
            ("Europe/Berlin", "2026-10-25", "2026-10-24T22:00:00+00:00"),
            ("Europe/Berlin", "2026-10-26", "2026-10-25T23:00:00+00:00"),
            // The clocks skip the midnight of this day.
            ("Africa/Cairo", "2024-04-26", "2024-04-25T22:00:00+00:00"),
        ] {
            assert_eq!(begins(zone, day), at, "{zone} {day}");
        }
        assert_eq!(Zone::utc().day(NaiveDate::MAX), None);
    }

    #[test]
    fn an_unknown_zone_is_refused() {
        for name in ["Europe/Nowhere", "<b>", "../Europe/Berlin", "+01:00"] {
            let refusal = Zone::of(&Form::from_pairs(vec![(ZONE.to_owned(), name.to_owned())])).unwrap_err();
            assert_eq!(refusal.messages[ZONE], ["must be a name such as Europe/Berlin"], "{name}");
        }
    }
}
