//! Rate limits (specification, "Rate limits"): the rule that governs a request, and the response to its caller.
//!
//! The functions are pure; [`super::gate`] does the counting.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use super::rate_limits::{RateLimit, RateLimits};

/// Duration of the block of an IP with too many logins.
pub const BLOCK: Duration = Duration::from_secs(15 * 60);

/// Returns the source under which logins from an address are counted and blocked.
///
/// For IPv4 this is the address itself. For IPv6 it is the first address of the /64, because one client controls all
/// addresses of a /64.
pub fn source_network(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX)).into(),
        ip => ip,
    }
}

/// Rate limit rule. The first rule that matches a request governs it, and no other applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// `POST /api/v1/orders`.
    Orders,
    /// Product images. All credentials of an account share one budget.
    Images,
    /// Everything else under `/api/v1`.
    General,
    /// `POST /auth/login` and `POST /admin/auth/login`, counted by source network.
    Login,
    /// `POST /auth/refresh`, counted by IP.
    Refresh,
    /// `POST /auth/password-reset` and requests with a token from a mail, counted by source network.
    PasswordReset,
    /// Changes of the own password and second factor under `/client/api`, counted by user.
    Security,
    /// Every other change under `/client/api` and of the portal's account pages, counted by user.
    Portal,
    /// Failed logins of one user, counted by user and source network. No path maps to this rule.
    UserLogin,
    /// Mails that reset a password, counted by email address, known or not. No path maps to this rule.
    ResetMail,
    /// Calls with a wrong operator token, counted by source network. No path maps to this rule.
    Operator,
    /// Steps of a sign-in through OpenID Connect, counted by source network. It never blocks an address, because a page of
    /// another site can make a browser take such a step.
    OpenId,
    /// `POST /suppliers/:name/notices`, counted by source network.
    Notices,
}

impl Rule {
    pub const ALL: [Rule; 13] = [
        Self::Orders,
        Self::Images,
        Self::General,
        Self::Login,
        Self::Refresh,
        Self::PasswordReset,
        Self::Security,
        Self::Portal,
        Self::UserLogin,
        Self::ResetMail,
        Self::Operator,
        Self::OpenId,
        Self::Notices,
    ];

    /// Returns the rule of a request by its routed path. A prefix matches whole segments only.
    pub fn of(method: &str, path: &str) -> Option<Rule> {
        let reads = matches!(method, "GET" | "HEAD");
        if is_under(path, "/api/v1") {
            return Some(match method {
                "POST" if is_under(path, "/api/v1/orders") => Self::Orders,
                _ if reads && is_image(path) => Self::Images,
                _ => Self::General,
            });
        }
        if is_under(path, "/portal") {
            return Rule::of_page(reads, path);
        }
        if !reads && is_under(path, "/console/login") {
            return Some(Self::Login);
        }
        match method {
            "POST" if is_under(path, "/auth/login") || is_under(path, "/admin/auth/login") => Some(Self::Login),
            _ if is_under(path, "/console/oidc") => Some(Self::OpenId),
            "POST" if is_under(path, "/auth/refresh") => Some(Self::Refresh),
            "POST" if is_under(path, "/suppliers") => Some(Self::Notices),
            "POST" if is_under(path, "/auth/password-reset") || is_under(path, "/auth/invitations") => Some(Self::PasswordReset),
            "POST" | "PUT" | "DELETE" if is_under(path, "/client/api/two-factor") || is_under(path, "/client/api/password") => {
                Some(Self::Security)
            }
            _ if !reads && method != "OPTIONS" && is_under(path, "/client/api") => Some(Self::Portal),
            _ => None,
        }
    }

    /// Returns the rule of a page of the portal. A form counts like the request to the API that it stands for.
    fn of_page(reads: bool, path: &str) -> Option<Rule> {
        let is_one_of = |pages: &[&str]| pages.iter().any(|page| is_under(path, page));
        match reads {
            true => None,
            false if is_under(path, "/portal/login") => Some(Self::Login),
            false if is_under(path, "/portal/orders") => Some(Self::Orders),
            false if is_one_of(&["/portal/password-reset", "/portal/reset-password", "/portal/accept-invitation"]) => {
                Some(Self::PasswordReset)
            }
            false if is_one_of(&["/portal/account/password", "/portal/account/two-factor"]) => Some(Self::Security),
            false if is_one_of(&["/portal/api-keys", "/portal/account", "/portal/team"]) => Some(Self::Portal),
            false => Some(Self::General),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Orders => "orders",
            Self::Images => "images",
            Self::General => "general",
            Self::Login => "login",
            Self::Refresh => "refresh",
            Self::PasswordReset => "password-reset",
            Self::Security => "security",
            Self::Portal => "portal",
            Self::UserLogin => "user-login",
            Self::ResetMail => "reset-mail",
            Self::Operator => "operator",
            Self::OpenId => "openid",
            Self::Notices => "notices",
        }
    }

    pub fn limit(self, limits: &RateLimits) -> RateLimit {
        match self {
            Self::Orders => limits.orders,
            Self::Images => limits.images,
            Self::General => limits.general,
            Self::Login => limits.login,
            Self::Refresh => limits.refresh,
            Self::PasswordReset => limits.password_reset,
            Self::Security => limits.security,
            Self::Portal => limits.portal,
            Self::UserLogin => limits.user_login,
            Self::ResetMail => limits.reset_mail,
            Self::Operator => limits.operator,
            Self::OpenId => limits.openid,
            Self::Notices => limits.notices,
        }
    }

    /// Returns the plural noun for the counted requests, used in messages.
    fn noun(self) -> &'static str {
        match self {
            Self::Orders => "order requests",
            Self::Images => "image requests",
            Self::General => "requests",
            Self::Login => "logins",
            Self::Refresh => "token refreshes",
            Self::PasswordReset => "password resets",
            Self::Security => "changes of the password and of two-factor authentication",
            Self::Portal => "changes",
            Self::UserLogin => "failed logins of this user",
            Self::ResetMail => "mails to this address",
            Self::Operator => "wrong operator tokens",
            Self::OpenId => "sign-ins",
            Self::Notices => "notices",
        }
    }

    /// Returns the message of a 429 response, with the wait rounded up to whole minutes.
    pub fn message(self, retry_after: u32) -> String {
        format!("Too many {}. Try again in {}.", self.noun(), minutes(retry_after))
    }
}

/// Returns the message of the 429 response to a blocked IP, with the wait rounded up to whole minutes.
pub fn blocked_message(retry_after: u32) -> String {
    format!("Too many logins: all requests from this address are refused. Try again in {}.", minutes(retry_after))
}

fn minutes(seconds: u32) -> String {
    match seconds.div_ceil(60) {
        0 | 1 => "1 minute".to_owned(),
        minutes => format!("{minutes} minutes"),
    }
}

/// Returns whether a path equals the prefix or continues it with a further segment.
pub fn is_under(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn is_image(path: &str) -> bool {
    let mut segments = path.strip_prefix("/api/v1/products/").unwrap_or_default().split('/');
    segments.next() == Some("images") || segments.next() == Some("image")
}

/// State of a caller's rate limit: the three response headers and the contents of a 429.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// `X-RateLimit-Limit`.
    pub ceiling: u32,
    /// `X-RateLimit-Remaining`.
    pub remaining: u32,
    /// `X-RateLimit-Reset`: the time when the window has closed, in Unix seconds.
    pub resets_at: i64,
    /// Seconds until the window closes, at least 1.
    pub retry_after: u32,
    /// The request exceeds the limit. It was not charged.
    pub is_exceeded: bool,
}

impl Quota {
    /// Returns the quota of an unused window that opens now, in Unix seconds.
    pub fn unused(limit: RateLimit, now: i64) -> Quota {
        let seconds = u32::try_from(limit.window.as_secs()).unwrap_or(u32::MAX).max(1);
        let (ceiling, resets_at) = (limit.requests, now.saturating_add(i64::from(seconds)));
        Quota { ceiling, remaining: ceiling, resets_at, retry_after: seconds, is_exceeded: false }
    }
}

/// Active block of an IP.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Block {
    /// End of the block, in Unix seconds.
    pub ends_at: f64,
    /// Remaining time, in seconds.
    pub ends_in: f64,
}

impl Block {
    /// Returns the quota that every request of the blocked IP gets: the login rule's limit and the block's end.
    pub fn quota(&self, login: RateLimit) -> Quota {
        Quota { ceiling: login.requests, is_exceeded: true, ..until(self.ends_at, self.ends_in) }
    }
}

/// State of a window after a batch of requests was counted together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    pub ceiling: i32,
    /// Requests granted in the window so far, including those of this batch.
    pub used: i32,
    /// Requests of this batch that were granted. They are the first ones of the batch.
    pub granted: i32,
    /// End of the window, in Unix seconds.
    pub closes_at: f64,
    /// Remaining time, in seconds.
    pub closes_in: f64,
}

impl Window {
    /// Returns the quota for a request that was not charged.
    pub fn seen(&self) -> Quota {
        let count = |number| u32::try_from(number).unwrap_or_default();
        let remaining = count(self.ceiling - self.used);
        Quota { ceiling: count(self.ceiling), remaining, ..until(self.closes_at, self.closes_in) }
    }

    /// Returns the quota for the nth request of the batch, counted from 0.
    pub fn quota(&self, nth: i32) -> Quota {
        let is_exceeded = nth >= self.granted;
        let used = if is_exceeded { self.used } else { self.used - self.granted + nth + 1 };
        // A granted request reports the rest of the ceiling; a refused one reports 0.
        let remaining = if is_exceeded { 0 } else { u32::try_from(self.ceiling - used).unwrap_or_default() };
        let ceiling = u32::try_from(self.ceiling).unwrap_or_default();
        Quota { ceiling, remaining, is_exceeded, ..until(self.closes_at, self.closes_in) }
    }
}

fn until(at: f64, within: f64) -> Quota {
    // Postgres times have microseconds; an f64 of this size represents them.
    let retry_after = within.ceil().clamp(1.0, f64::from(u32::MAX)) as u32;
    Quota { ceiling: 0, remaining: 0, resets_at: at.ceil() as i64, retry_after, is_exceeded: false }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_first_rule_that_matches_governs() {
        for (method, path, rule) in [
            ("POST", "/api/v1/orders", Some(Rule::Orders)),
            ("POST", "/api/v1/orders/7/cancel", Some(Rule::Orders)),
            ("GET", "/api/v1/orders", Some(Rule::General)),
            ("POST", "/api/v1/orders-archive", Some(Rule::General)),
            ("GET", "/api/v1/products/images", Some(Rule::Images)),
            ("HEAD", "/api/v1/products/images", Some(Rule::Images)),
            ("GET", "/api/v1/products/7/image", Some(Rule::Images)),
            ("GET", "/api/v1/products/image", Some(Rule::General)),
            ("GET", "/api/v1/products/7/images", Some(Rule::General)),
            ("POST", "/api/v1/products/7/image", Some(Rule::General)),
            ("GET", "/api/v1/products/7", Some(Rule::General)),
            ("GET", "/api/v1", Some(Rule::General)),
            ("DELETE", "/api/v1/nowhere", Some(Rule::General)),
            ("GET", "/api/v10/orders", None),
            ("POST", "/auth/login", Some(Rule::Login)),
            ("GET", "/auth/login", None),
            ("POST", "/auth/refresh", Some(Rule::Refresh)),
            ("POST", "/auth/logout", None),
            ("POST", "/client/api/api-keys", Some(Rule::Portal)),
            ("DELETE", "/client/api/api-keys/7", Some(Rule::Portal)),
            ("GET", "/client/api/api-keys", None),
            ("POST", "/portal/login", Some(Rule::Login)),
            ("POST", "/portal/orders/7/cancel", Some(Rule::Orders)),
            ("POST", "/portal/api-keys", Some(Rule::Portal)),
            ("POST", "/portal/team/invitations", Some(Rule::Portal)),
            ("POST", "/portal/account/sessions/7/end", Some(Rule::Portal)),
            ("POST", "/portal/account/two-factor/confirm", Some(Rule::Security)),
            ("POST", "/portal/reset-password", Some(Rule::PasswordReset)),
            ("POST", "/portal/webhooks", Some(Rule::General)),
            ("GET", "/portal/orders", None),
            ("POST", "/console/login", Some(Rule::Login)),
            ("GET", "/console/login", None),
            ("POST", "/console/accounts", None),
            ("POST", "/auth/password-reset", Some(Rule::PasswordReset)),
            ("POST", "/auth/password-reset/confirm", Some(Rule::PasswordReset)),
            ("POST", "/auth/invitations/accept", Some(Rule::PasswordReset)),
            ("PUT", "/client/api/password", Some(Rule::Security)),
            ("DELETE", "/client/api/two-factor", Some(Rule::Security)),
            ("POST", "/client/api/two-factor/confirm", Some(Rule::Security)),
            ("GET", "/client/api/two-factor", None),
            ("POST", "/client/api/users/invitations", Some(Rule::Portal)),
            ("POST", "/admin/v1/accounts", None),
            ("POST", "/suppliers/acme/notices", Some(Rule::Notices)),
            ("GET", "/suppliers/acme/notices", None),
            ("GET", "/metrics", None),
        ] {
            assert_eq!(Rule::of(method, path), rule, "{method} {path}");
        }
    }

    #[test]
    fn an_ipv6_source_is_its_64_bit_network() {
        for (ip, network) in [
            ("192.0.2.1", "192.0.2.1"),
            ("2001:db8:0:1:2:3:4:5", "2001:db8:0:1::"),
            ("2001:db8:0:1::", "2001:db8:0:1::"),
            ("2001:db8:0:2::1", "2001:db8:0:2::"),
        ] {
            assert_eq!(source_network(ip.parse().unwrap()), network.parse::<IpAddr>().unwrap(), "{ip}");
        }
    }

    #[test]
    fn messages_round_up_to_whole_minutes() {
        assert_eq!(Rule::Orders.message(1), "Too many order requests. Try again in 1 minute.");
        assert_eq!(Rule::General.message(60), "Too many requests. Try again in 1 minute.");
        assert_eq!(Rule::General.message(61), "Too many requests. Try again in 2 minutes.");
        assert!(blocked_message(900).ends_with("Try again in 15 minutes."));
    }

    #[test]
    fn a_reset_is_never_before_the_window_closes() {
        let window = Window { ceiling: 5, used: 5, granted: 0, closes_at: 1_000.25, closes_in: 59.3 };
        let quota = window.quota(0);
        assert_eq!((quota.resets_at, quota.retry_after, quota.remaining), (1_001, 60, 0));
        assert_eq!(Window { closes_in: -0.1, ..window }.quota(0).retry_after, 1);
    }

    proptest! {
        /// `before` requests were granted earlier in the window, and `asked` requests arrive in one batch.
        #[test]
        fn the_remaining_quota_counts_down_to_zero(ceiling in 1..2_000_i32, before in 0..2_000_i32, asked in 1..2_000_i32) {
            let before = before.min(ceiling);
            let granted = asked.min(ceiling - before);
            let window = Window { ceiling, used: before + granted, granted, closes_at: 60.0, closes_in: 60.0 };
            let quotas: Vec<Quota> = (0..asked).map(|nth| window.quota(nth)).collect();
            prop_assert_eq!(quotas.iter().filter(|q| !q.is_exceeded).count(), usize::try_from(granted).unwrap());
            for (nth, quota) in quotas.iter().enumerate() {
                let left = (ceiling - before - i32::try_from(nth).unwrap() - 1).max(0);
                prop_assert_eq!(quota.remaining, u32::try_from(left).unwrap());
            }
        }
    }
}
