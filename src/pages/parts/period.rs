//! The filters of a list, and the days of its period, as parameters of the API.

use chrono::{DateTime, Days, NaiveDate, NaiveDateTime, NaiveTime, SecondsFormat, TimeDelta, Utc};

use super::super::call::Refusal;
use super::super::form::{Form, address};

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

/// Returns the start and the end of the minutes or days `from` to `to` of a query. Both are included.
///
/// # Errors
/// A refusal that names the minute which is none.
pub fn minutes(query: &Form) -> Result<[Option<DateTime<Utc>>; 2], Refusal> {
    let at = |name: &str, is_end: bool| {
        let Some(text) = query.text(name) else { return Ok(None) };
        let minute = NaiveDateTime::parse_from_str(text, "%Y-%m-%dT%H:%M").map(|minute| (minute, TimeDelta::minutes(1)));
        let day = || text.parse::<NaiveDate>().map(|day| (day.and_time(NaiveTime::MIN), TimeDelta::days(1)));
        let (start, length) =
            minute.or_else(|_| day()).map_err(|_| Refusal::of_field(name, "must be a minute such as 2026-01-31T12:00"))?;
        let at = start.checked_add_signed(if is_end { length } else { TimeDelta::zero() });
        let at = at.ok_or_else(|| Refusal::of_field(name, "must be a minute such as 2026-01-31T12:00"))?;
        Ok(Some(at.and_utc()))
    };
    Ok([at("from", false)?, at("to", true)?])
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

/// Returns the start and the end of the days `from` to `to` of a query.
///
/// # Errors
/// A refusal that names the day which is none.
pub fn period(query: &Form) -> Result<[Option<DateTime<Utc>>; 2], Refusal> {
    // The last day is included, and the API excludes the time at which a period ends.
    let at = |name: &str, further: u64| {
        let Some(text) = query.text(name) else { return Ok(None) };
        let day = text.parse::<NaiveDate>().ok().and_then(|day| day.checked_add_days(Days::new(further)));
        let day = day.ok_or_else(|| Refusal::of_field(name, "must be a date such as 2026-01-31"))?;
        Ok(Some(day.and_time(NaiveTime::MIN).and_utc()))
    };
    Ok([at("from", 0)?, at("to", 1)?])
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
}
