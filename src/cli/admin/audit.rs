//! `admin audit`: shows who did what.

use clap::Args;
use reqwest::Method;

use super::Operation;

#[derive(Args, Debug)]
pub struct AuditArgs {
    /// Only actions of this actor, such as operator/3, or of this kind, such as operator
    #[arg(long)]
    actor: Option<String>,
    /// Only actions on this subject, such as order/42
    #[arg(long)]
    subject: Option<String>,
    /// Only actions of these event types, comma-separated
    #[arg(long = "type", value_name = "TYPES")]
    types: Option<String>,
    /// Only reveals of secrets: voucher codes, and keys, tokens and signing secrets that were created or rotated
    #[arg(long)]
    reveals: bool,
    /// Only actions that belong to this account
    #[arg(long, value_name = "ID")]
    account: Option<i64>,
    /// Only actions at or after this time, for example 2030-12-31T12:00:00Z
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only actions before this time
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Only actions before this position: next_before of the previous page
    #[arg(long, value_name = "POSITION")]
    before: Option<i64>,
    /// Actions per page
    #[arg(long, default_value_t = 20)]
    limit: u32,
}

pub fn operation(args: AuditArgs) -> Operation {
    let AuditArgs { actor, subject, types, reveals, account, since, until, before, limit } = args;
    let number = |number: Option<i64>| number.map(|number| number.to_string());
    let given = [
        ("actor", actor),
        ("subject", subject),
        ("type", types),
        ("reveals", reveals.then(|| "true".to_owned())),
        ("account_id", number(account)),
        ("since", since),
        ("until", until),
        ("before", number(before)),
        ("limit", Some(limit.to_string())),
    ];
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(given.iter().filter_map(|(name, value)| Some((name, value.as_deref()?))));
    (Method::GET, format!("/admin/v1/audit?{}", query.finish()), None)
}
