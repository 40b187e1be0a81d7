//! Durations as people write them in settings.

use std::time::Duration;

/// Parses a duration above zero: a whole number with the unit `ms`, `s`, `m`, `h`, or `d`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let malformed = || "a duration looks like 500ms, 30s, 5m, 1h or 1d".to_owned();
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(malformed)?;
    let (number, unit) = text.split_at(unit_at);
    let milliseconds: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(malformed()),
    };
    let number: u64 = number.parse().map_err(|_| malformed())?;
    match number.checked_mul(milliseconds) {
        Some(0) => Err("a duration must be above zero".to_owned()),
        // Far above any real setting, and within the range of every clock type.
        Some(total) if total <= 366 * 86_400_000 => Ok(Duration::from_millis(total)),
        _ => Err("a duration is at most 366d".to_owned()),
    }
}
