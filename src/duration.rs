//! Durations as people write them in settings.

use std::time::Duration;

/// A duration above zero: a whole number and `ms`, `s`, `m`, `h` or `d`.
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
        Some(0) => Err("a duration of zero does nothing".to_owned()),
        // Far beyond any use, and within what every clock can add.
        Some(total) if total <= 366 * 86_400_000 => Ok(Duration::from_millis(total)),
        _ => Err("a duration is at most 366d".to_owned()),
    }
}
