//! The rate limits of the configuration (specification, "Rate limits").

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::duration::duration;

/// Maximum number of requests in a time window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RateLimit {
    pub requests: u32,
    pub window: Duration,
}

impl RateLimit {
    /// Far above any real limit, and within the range of the database's counter.
    const MAX_REQUESTS: u32 = 1_000_000_000;
}

impl FromStr for RateLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<RateLimit, String> {
        let (requests, window) = text.split_once('/').ok_or("a limit looks like 100/60s")?;
        let count = requests.parse().ok().filter(|n| (1..=RateLimit::MAX_REQUESTS).contains(n));
        let requests = count.ok_or_else(|| format!("{requests:?} is not a count from 1 to {}", RateLimit::MAX_REQUESTS))?;
        let window = duration(window)?;
        if window.subsec_nanos() != 0 {
            return Err("a window must be a whole number of seconds".to_owned());
        }
        Ok(RateLimit { requests, window })
    }
}

impl fmt::Display for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.window.as_secs();
        match seconds % 3_600 {
            0 => write!(f, "{}/{}h", self.requests, seconds / 3_600),
            _ => write!(f, "{}/{seconds}s", self.requests),
        }
    }
}

/// Rate limit rules of the specification and of the portal. Fields are named as in the setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimits {
    pub orders: RateLimit,
    pub images: RateLimit,
    pub general: RateLimit,
    pub login: RateLimit,
    pub refresh: RateLimit,
    /// Requests for a password reset, and requests with a token from a mail, per source.
    pub password_reset: RateLimit,
    /// Changes of the own password and second factor, per user.
    pub security: RateLimit,
    /// All other state-changing portal requests, per user.
    pub portal: RateLimit,
    /// Failed logins of one user: counted for each network where the user has logged in before, and once for all others
    /// together.
    pub user_login: RateLimit,
    /// Mails that reset a password, per email address.
    pub reset_mail: RateLimit,
    /// Requests with a wrong operator token, per source.
    pub operator: RateLimit,
    /// Steps of sign-ins through OpenID Connect, per source.
    pub openid: RateLimit,
    /// Notices of suppliers, per source.
    pub notices: RateLimit,
}

impl Default for RateLimits {
    fn default() -> RateLimits {
        let limit = |requests, seconds| RateLimit { requests, window: Duration::from_secs(seconds) };
        RateLimits {
            orders: limit(100, 60),
            images: limit(100, 60),
            general: limit(1_000, 3_600),
            login: limit(5, 60),
            refresh: limit(20, 60),
            password_reset: limit(10, 3_600),
            security: limit(10, 3_600),
            portal: limit(20, 3_600),
            user_login: limit(20, 3_600),
            reset_mail: limit(3, 3_600),
            operator: limit(20, 60),
            openid: limit(20, 60),
            notices: limit(600, 60),
        }
    }
}

impl RateLimits {
    pub fn rules(&self) -> [(&'static str, RateLimit); 13] {
        [
            ("orders", self.orders),
            ("images", self.images),
            ("general", self.general),
            ("login", self.login),
            ("refresh", self.refresh),
            ("password-reset", self.password_reset),
            ("security", self.security),
            ("portal", self.portal),
            ("user-login", self.user_login),
            ("reset-mail", self.reset_mail),
            ("operator", self.operator),
            ("openid", self.openid),
            ("notices", self.notices),
        ]
    }
}

impl FromStr for RateLimits {
    type Err = String;

    fn from_str(text: &str) -> Result<RateLimits, String> {
        let mut limits = RateLimits::default();
        for rule in text.split(',').map(str::trim).filter(|rule| !rule.is_empty()) {
            let (name, limit) = rule.split_once('=').ok_or_else(|| format!("{rule:?} does not look like orders=100/60s"))?;
            let place = match name.trim() {
                "orders" => &mut limits.orders,
                "images" => &mut limits.images,
                "general" => &mut limits.general,
                "login" => &mut limits.login,
                "refresh" => &mut limits.refresh,
                "password-reset" => &mut limits.password_reset,
                "security" => &mut limits.security,
                "portal" => &mut limits.portal,
                "user-login" => &mut limits.user_login,
                "reset-mail" => &mut limits.reset_mail,
                "operator" => &mut limits.operator,
                "openid" => &mut limits.openid,
                "notices" => &mut limits.notices,
                _ => return Err(format!("{name:?} is not one of {}", limits.rules().map(|(name, _)| name).join(", "))),
            };
            *place = limit.trim().parse().map_err(|error| format!("{name}: {error}"))?;
        }
        Ok(limits)
    }
}
