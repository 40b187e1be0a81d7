//! Settings of the deprecation and the end of `/api/v1`.

use chrono::{Months, NaiveDate};
use clap::Args;
use ledger_events::api_version::EmergencySunsetDeclared;

use super::ConfigError;
use super::values::{date, reason};

/// Earliest end of v1 that clients were promised (`VERSIONING.md`).
const V1_UNTIL: NaiveDate = match NaiveDate::from_ymd_opt(2028, 7, 1) {
    Some(day) => day,
    None => NaiveDate::MAX,
};
/// Minimum time between the deprecation and the end of v1 that clients were promised (`VERSIONING.md`).
const DEPRECATED_FOR: Months = Months::new(12);

/// Settings of the deprecation and the end of `/api/v1`.
#[derive(Args, Clone, Debug)]
pub struct LifecycleSettings {
    /// Date of the deprecation of /api/v1, for example 2030-12-31; sent in the Deprecation header [default: none]
    #[arg(long, env = "LEDGER_DEPRECATION_DATE", value_name = "DATE", value_parser = date)]
    pub deprecation_date: Option<NaiveDate>,

    /// Date of the end of /api/v1, for example 2030-12-31; sent in the Sunset header [default: none]
    #[arg(long, env = "LEDGER_SUNSET_DATE", value_name = "DATE", value_parser = date)]
    pub sunset_date: Option<NaiveDate>,

    /// Reason for ending /api/v1 before 2028-07-01, or less than 12 months after its deprecation; recorded in the log
    /// [default: none]
    #[arg(long, env = "LEDGER_EMERGENCY_SUNSET", value_name = "REASON", value_parser = reason)]
    pub emergency_sunset: Option<String>,
}

impl LifecycleSettings {
    /// Checks the sunset date against the promises to clients (`VERSIONING.md`). Breaking a promise needs a reason.
    ///
    /// # Errors
    /// If the settings break a promise, or contradict each other.
    pub fn check(&self) -> Result<(), ConfigError> {
        let Some(sunset) = self.sunset_date else {
            return match self.emergency_sunset {
                Some(_) => Err(ConfigError("--emergency-sunset needs --sunset-date".into())),
                None => Ok(()),
            };
        };
        if self.deprecation_date.is_some_and(|deprecation| sunset < deprecation) {
            return Err(ConfigError("--sunset-date must not be before --deprecation-date".into()));
        }
        let earliest = self.deprecation_date.and_then(|deprecation| deprecation.checked_add_months(DEPRECATED_FOR));
        let broken = if sunset < V1_UNTIL {
            Some(format!("--sunset-date is {sunset}, but clients were promised /api/v1 until {V1_UNTIL}"))
        } else if earliest.is_none_or(|earliest| sunset < earliest) {
            Some(format!("--sunset-date is {sunset}, which is not 12 months or more after a --deprecation-date"))
        } else {
            None
        };
        match (broken, &self.emergency_sunset) {
            (Some(broken), None) => Err(ConfigError(format!("{broken}: only --emergency-sunset REASON allows that"))),
            (None, Some(_)) => Err(ConfigError("--emergency-sunset is not needed: the sunset breaks no promise".into())),
            _ => Ok(()),
        }
    }

    /// Returns the emergency sunset to record in the log, if one is configured.
    pub fn emergency_sunset(&self) -> Option<EmergencySunsetDeclared> {
        let (reason, sunset_date) = self.emergency_sunset.clone().zip(self.sunset_date)?;
        Some(EmergencySunsetDeclared { deprecation_date: self.deprecation_date, sunset_date, reason })
    }
}
