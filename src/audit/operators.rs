//! Compares operators' tokens in the vault with the log: existence, role, owner, and whether a token is revoked. No event
//! contains the token itself.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};
use ledger_database::PgConnection;
use ledger_events::operator::{OperatorEvent, OperatorTokenIssued};
use ledger_events::{Recorded, ShardId};
use serde_json::{Value, json};

use super::{Difference, FieldDifference, Findings, RowDifference, RowProblem};
use crate::ledger::texts::OPERATOR_NAME;
use crate::secrets::seal::salted_hash;

const TABLE: &str = "vault.operators";

/// State of a token according to the log.
#[derive(Clone, Debug, Default)]
pub struct TokenState {
    /// None for a token issued before issuing was an event. Such a token can only be revoked.
    issued: Option<(OperatorTokenIssued, DateTime<Utc>)>,
    revoked_at: Option<DateTime<Utc>>,
}

/// Folds one event of a token; events of users change nothing. Returns the problem if the event cannot follow the earlier
/// ones.
pub fn fold(tokens: &mut HashMap<i64, TokenState>, recorded: &Recorded, event: &OperatorEvent) -> Option<String> {
    if !matches!(event, OperatorEvent::OperatorTokenIssued(_) | OperatorEvent::OperatorTokenRevoked(_)) {
        return None;
    }
    let (is_first, at) = (!tokens.contains_key(&recorded.stream_id), recorded.moment.recorded_at);
    let token = tokens.entry(recorded.stream_id).or_default();
    let is_wrong = match event {
        OperatorEvent::OperatorTokenIssued(_) => !is_first,
        _ => token.revoked_at.is_some(),
    };
    match event {
        OperatorEvent::OperatorTokenIssued(issued) => _ = token.issued.get_or_insert_with(|| (issued.clone(), at)),
        _ => _ = token.revoked_at.get_or_insert(at),
    }
    is_wrong.then(|| format!("{} cannot follow the earlier events", event.type_and_version().0))
}

#[derive(ledger_database::FromRow)]
struct Stored {
    id: i64,
    name: String,
    role: String,
    created_at: DateTime<Utc>,
    revoked_at: Option<DateTime<Utc>>,
    /// Salt of the name's hash.
    salt: Option<Vec<u8>>,
}

/// Compares the tokens with ids in a range, in the caller's snapshot. `after` is exclusive, `to` is inclusive.
pub async fn check(
    conn: &mut PgConnection,
    shard: ShardId,
    (after, to): (i64, i64),
    logged: &HashMap<i64, TokenState>,
    findings: &mut Findings,
) -> Result<(), sqlx::Error> {
    let rows: Vec<Stored> = sqlx::query_as(
        "SELECT o.id, o.name, o.role, o.created_at, o.revoked_at, t.salt FROM vault.operators o
         LEFT JOIN vault.texts t ON t.shard_id = $1 AND t.kind = $4 AND t.id = o.id
         WHERE o.id > $2 AND o.id <= $3 ORDER BY o.id",
    )
    .bind(shard)
    .bind(after)
    .bind(to)
    .bind(OPERATOR_NAME)
    .fetch_all(conn)
    .await?;
    let mut add = |id: i64, problem| {
        let (key, part) = (id.to_string(), String::new());
        findings.add(Difference::Row(RowDifference { table: TABLE, shard, key, part, problem }));
    };
    for row in &rows {
        match logged.get(&row.id).map(|logged| row.differing(logged)) {
            Some(fields) if fields.is_empty() => {}
            Some(fields) => add(row.id, RowProblem::Differs { fields }),
            None => add(row.id, RowProblem::Extra),
        }
    }
    let stored: HashSet<i64> = rows.iter().map(|row| row.id).collect();
    let mut missing: Vec<i64> = logged.keys().copied().filter(|id| !stored.contains(id)).collect();
    missing.sort_unstable();
    missing.into_iter().for_each(|id| add(id, RowProblem::Missing));
    Ok(())
}

impl Stored {
    fn differing(&self, logged: &TokenState) -> Vec<FieldDifference> {
        let mut compared = vec![("revoked_at", json!(self.revoked_at), json!(logged.revoked_at))];
        if let Some((issued, at)) = &logged.issued {
            // Without the salt, the name cannot be compared with the hash in the log.
            let hash = self.salt.as_ref().map(|salt| salted_hash(salt, &self.name));
            compared.push(("name_hash", json!(hash), json!(issued.name_hash)));
            compared.push(("role", json!(self.role), json!(issued.role)));
            compared.push(("created_at", json!(self.created_at), json!(at)));
        }
        let differs = |(_, stored, folded): &(&str, Value, Value)| stored != folded;
        let field = |(field, stored, folded): (&str, Value, Value)| FieldDifference { field: field.to_owned(), stored, folded };
        compared.into_iter().filter(differs).map(field).collect()
    }
}
