//! The filters of a list, and the days of its period, as parameters of the API.

use chrono::{DateTime, NaiveDate, NaiveDateTime, SecondsFormat, TimeDelta, Utc};
use maud::{Markup, html};

use super::super::call::Refusal;
use super::super::form::{Form, address};
use super::fields::Filled;
use super::zone::{ZONE, Zone};

/// Fields of a period: its first and its last day or minute, and their time zone.
pub const PERIOD: [&str; 3] = ["from", "to", ZONE];

/// Returns the filters of a query with these names, and its days, as a query of the API.
///
/// # Errors
/// A refusal that names the day which is none.
pub fn filters(query: &Form, names: &[&str]) -> Result<String, Refusal> {
    Ok(created(query, names, period(query)?))
}

/// Returns the filters of a query with these names, and its minutes, as a query of the API.
///
/// # Errors
/// A refusal that names the field whose value is no minute.
pub fn filters_by_minute(query: &Form, names: &[&str]) -> Result<String, Refusal> {
    Ok(created(query, names, minutes(query)?))
}

fn created(query: &Form, names: &[&str], period: [Option<DateTime<Utc>>; 2]) -> String {
    let mut filters = url::form_urlencoded::Serializer::new(query.only(names));
    for (parameter, at) in ["created_from", "created_to"].into_iter().zip(period) {
        filters.extend_pairs(at.map(|at| (parameter, rfc3339(at))));
    }
    filters.finish()
}

/// Returns the address of the part of a list in these minutes (UTC), such as `2026-01-31T12:00`. Both are included.
pub fn during(path: &str, from: &str, to: &str) -> String {
    address(path, &[("from", from), ("to", to)])
}

/// Returns the start and the end of the minutes or days `from` to `to` of a query, in its time zone. Both are included.
///
/// # Errors
/// A refusal that names the minute which is none, or the time zone.
pub fn minutes(query: &Form) -> Result<[Option<DateTime<Utc>>; 2], Refusal> {
    let zone = Zone::of(query)?;
    let at = |name: &str, is_end: bool| {
        let Some(text) = query.text(name) else { return Ok(None) };
        let at = minute(&zone, text, is_end).or_else(|| day(&zone, text, is_end));
        at.map(Some).ok_or_else(|| Refusal::of_field(name, "must be a minute such as 2026-01-31T12:00"))
    };
    Ok([at("from", false)?, at("to", true)?])
}

/// Returns the time at which a minute begins or ends.
fn minute(zone: &Zone, text: &str, is_end: bool) -> Option<DateTime<Utc>> {
    let minute = NaiveDateTime::parse_from_str(text, "%Y-%m-%dT%H:%M").ok()?;
    if is_end { zone.last(minute)?.checked_add_signed(TimeDelta::minutes(1)) } else { zone.first(minute) }
}

/// Returns the time at which a day begins or ends. It ends when the next one begins.
fn day(zone: &Zone, text: &str, is_end: bool) -> Option<DateTime<Utc>> {
    let day = text.parse::<NaiveDate>().ok()?;
    zone.day(if is_end { day.succ_opt()? } else { day })
}

/// Returns a query with the days `from` and `to` as their first and their last minute, for fields that take minutes.
pub fn in_minutes(query: &Form) -> Form {
    let minute = |(name, value): &(String, String)| {
        let at = match name.as_str() {
            "from" => "T00:00",
            "to" => "T23:59",
            _ => "",
        };
        let is_day = !at.is_empty() && value.parse::<NaiveDate>().is_ok();
        (name.clone(), if is_day { format!("{value}{at}") } else { value.clone() })
    };
    Form::from_pairs(query.pairs().iter().map(minute).collect())
}

/// Returns the start and the end of the days `from` to `to` of a query, in its time zone.
///
/// # Errors
/// A refusal that names the day which is none, or the time zone.
pub fn period(query: &Form) -> Result<[Option<DateTime<Utc>>; 2], Refusal> {
    days(query, &Zone::of(query)?)
}

/// Returns the start and the end of the days `from` to `to` of a query in UTC, for sums that are kept by day.
///
/// # Errors
/// A refusal that names the day which is none.
pub fn period_in_utc(query: &Form) -> Result<[Option<DateTime<Utc>>; 2], Refusal> {
    days(query, &Zone::utc())
}

fn days(query: &Form, zone: &Zone) -> Result<[Option<DateTime<Utc>>; 2], Refusal> {
    // The last day is included, and the API excludes the time at which a period ends.
    let at = |name: &str, is_end: bool| {
        let Some(text) = query.text(name) else { return Ok(None) };
        day(zone, text, is_end).map(Some).ok_or_else(|| Refusal::of_field(name, "must be a date such as 2026-01-31"))
    };
    Ok([at("from", false)?, at("to", true)?])
}

/// Fields for the first and the last day of a period, and for their time zone.
pub fn day_fields(fields: &Filled<'_>) -> Markup {
    period_fields(fields, "date")
}

/// Fields for the first and the last minute of a period, and for their time zone.
pub fn minute_fields(fields: &Filled<'_>) -> Markup {
    period_fields(fields, "datetime-local")
}

fn period_fields(fields: &Filled<'_>, kind: &str) -> Markup {
    html! {
        (fields.input("from", "From", kind, ""))
        (fields.input("to", "Until", kind, ""))
        (zone_field(fields))
    }
}

/// A choice of the time zone: UTC, or the one of the query. A script adds the viewer's, and chooses it for a new period.
pub fn zone_field(fields: &Filled<'_>) -> Markup {
    let chosen = fields.form.text(ZONE).filter(|zone| *zone != "UTC").map(|zone| (zone, zone));
    let zones: Vec<(&str, &str)> = std::iter::once(("", "UTC")).chain(chosen).collect();
    fields.select(ZONE, "Time zone", &zones, "")
}

/// Returns a time as a parameter of the API.
pub fn rfc3339(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_and_days_are_included() {
        let period = |text: &str| minutes(&Form::parse(text.as_bytes())).unwrap().map(|at| rfc3339(at.unwrap()));
        assert_eq!(period("from=2026-01-31T12:05&to=2026-01-31T12:05"), ["2026-01-31T12:05:00Z", "2026-01-31T12:06:00Z"]);
        assert_eq!(period("from=2026-01-31&to=2026-01-31"), ["2026-01-31T00:00:00Z", "2026-02-01T00:00:00Z"]);
        let form = in_minutes(&Form::parse(b"from=2026-01-31&to=2026-01-31&actor=2026-01-31"));
        assert_eq!(["from", "to", "actor"].map(|name| form.value(name)), ["2026-01-31T00:00", "2026-01-31T23:59", "2026-01-31"]);
    }

    #[test]
    fn days_become_the_period_that_includes_them() {
        let query = |text: &str| filters(&Form::parse(text.as_bytes()), &["status"]);
        assert_eq!(
            query("status=DELAYED&from=2026-01-31&to=2026-01-31&page=2").unwrap(),
            "status=DELAYED&created_from=2026-01-31T00%3A00%3A00Z&created_to=2026-02-01T00%3A00%3A00Z"
        );
        let since = filters_by_minute(&Form::parse(b"from=2026-01-31T12:05&status=failed"), &["status"]).unwrap();
        assert_eq!(since, "status=failed&created_from=2026-01-31T12%3A05%3A00Z");
        assert_eq!(query("").unwrap(), "");
        for wrong in ["to=soon", "to=2026-01-31T12", "to=262142-12-31"] {
            let refusal = minutes(&Form::parse(wrong.as_bytes())).unwrap_err();
            assert_eq!(refusal.messages["to"], ["must be a minute such as 2026-01-31T12:00"]);
        }
        let refusal = query("to=soon").unwrap_err();
        assert_eq!(refusal.messages["to"], ["must be a date such as 2026-01-31"]);
    }

    #[test]
    fn days_and_minutes_are_those_of_the_time_zone() {
        type Bounds = fn(&Form) -> Result<[Option<DateTime<Utc>>; 2], Refusal>;
        let of = |query: &str, bounds: Bounds| {
            let form = Form::parse(format!("{query}&zone=Europe/Berlin").as_bytes());
            bounds(&form).unwrap().map(|at| rfc3339(at.unwrap()))
        };
        // On this day, the clocks go from 02:00 to 03:00, so it has 23 hours.
        let spring = "from=2026-03-29&to=2026-03-29";
        assert_eq!(of(spring, period), ["2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"]);
        assert_eq!(of(spring, minutes), ["2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"]);
        assert_eq!(of(spring, period_in_utc), ["2026-03-29T00:00:00Z", "2026-03-30T00:00:00Z"]);
        let skipped = "from=2026-03-29T02:30&to=2026-03-29T02:30";
        assert_eq!(of(skipped, minutes), ["2026-03-29T01:30:00Z", "2026-03-29T01:31:00Z"]);
        // On this day, they go from 03:00 back to 02:00, so it has 25 hours, and half past two comes twice.
        let autumn = "from=2026-10-25&to=2026-10-25";
        assert_eq!(of(autumn, period), ["2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"]);
        let twice = "from=2026-10-25T02:30&to=2026-10-25T02:30";
        assert_eq!(of(twice, minutes), ["2026-10-25T00:30:00Z", "2026-10-25T01:31:00Z"]);

        let wrong = Form::parse(b"from=2026-03-29&zone=Europe/Nowhere");
        for refusal in [period(&wrong), minutes(&wrong)].map(Result::unwrap_err) {
            assert_eq!(refusal.messages.keys().collect::<Vec<_>>(), ["zone"]);
        }
        let shown = zone_field(&Filled { form: &Form::parse(b"zone=Europe/Berlin"), refusal: None }).0;
        let chosen = "<option value=\"Europe/Berlin\" selected>Europe/Berlin</option>";
        assert!(shown.contains("<option value=\"\">UTC</option>") && shown.contains(chosen), "{shown}");
    }
}
