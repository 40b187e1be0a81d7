//! Stored responses that contain personal data to be erased. The response itself stays, because without it a repeated
//! request would be executed again.

use ledger_database::PgConnection;
use ledger_events::ShardId;
use serde_json::Value;

use crate::ledger::keys;
use crate::ledger::texts::{VaultError, response_kind};
use crate::secrets::seal::Keyring;

/// A stored response with its personal data removed.
#[derive(Debug)]
pub struct Rewritten {
    key_hash: Vec<u8>,
    body: String,
}

/// Fields that become null when erased. [`EMPTIED`] lists the fields that become an empty text.
const NULLED: [&str; 6] = ["metadata", "cancel_reason", "failure_reason", "bank_code", "note", "rejection_reason"];
const EMPTIED: [&str; 2] = ["name", "account_last4"];

/// A response: `key_hash`, `body`, the id of its data key, and the sealed data key.
type Answered = (Vec<u8>, Vec<u8>, i64, Vec<u8>);

/// Returns the responses that are sealed under these data keys, without their personal data. `about` limits them to one
/// entity's.
pub async fn under(
    conn: &mut PgConnection,
    keyring: &Keyring,
    shard: ShardId,
    key_ids: &[i64],
    about: Option<i64>,
) -> Result<Vec<Rewritten>, VaultError> {
    if key_ids.is_empty() {
        return Ok(vec![]);
    }
    let found: Vec<Answered> = sqlx::query_as(
        "SELECT a.key_hash, a.body, k.id, k.sealed FROM idempotency_keys a JOIN vault.data_keys k ON k.shard_id = a.shard_id AND k.id = a.key_id
         WHERE a.shard_id = $1 AND a.key_id = ANY($2) AND ($3::bigint IS NULL OR a.about = $3)",
    )
    .bind(shard)
    .bind(key_ids)
    .bind(about)
    .fetch_all(conn)
    .await?;
    let mut rewritten = Vec::with_capacity(found.len());
    for (key_hash, body, key_id, sealed) in found {
        let hash: [u8; 32] = key_hash.as_slice().try_into().map_err(|_| VaultError::Damaged("an idempotency key's hash"))?;
        let key = keys::beside(keyring, Some(key_id), Some(&sealed))?;
        let body = keyring.open_text_under(key.as_ref(), &response_kind(&hash), 0, &body)?;
        let mut body: Value = serde_json::from_str(body.expose()).map_err(|_| VaultError::Damaged("a stored answer"))?;
        // Another entity of the account may have the same id as the order. Its response has no reference code.
        if about.is_none() || body["data"].get("reference_code").is_some() {
            erase_in(&mut body["data"]);
            rewritten.push(Rewritten { key_hash, body: body.to_string() });
        }
    }
    Ok(rewritten)
}

fn erase_in(data: &mut Value) {
    let Some(fields) = data.as_object_mut() else { return };
    for (name, value) in fields {
        if NULLED.contains(&&**name) {
            *value = Value::Null;
        } else if EMPTIED.contains(&&**name) {
            *value = Value::from("");
        }
    }
}

pub async fn replace(conn: &mut PgConnection, shard: ShardId, answers: &[Rewritten]) -> Result<(), sqlx::Error> {
    if answers.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "UPDATE idempotency_keys a SET body = r.body, is_sealed = false, key_id = NULL, about = NULL
         FROM unnest($2::bytea[], $3::bytea[]) AS r (key_hash, body) WHERE a.shard_id = $1 AND a.key_hash = r.key_hash",
    )
    .bind(shard)
    .bind(answers.iter().map(|answer| &*answer.key_hash).collect::<Vec<_>>())
    .bind(answers.iter().map(|answer| answer.body.as_bytes()).collect::<Vec<_>>())
    .execute(conn)
    .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_response_keeps_its_fields_and_loses_its_personal_data() {
        let mut order = json!({"id": 1, "reference_code": "ORD-1", "metadata": {"to": "Ada"}, "cancel_reason": null});
        erase_in(&mut order);
        assert_eq!(order, json!({"id": 1, "reference_code": "ORD-1", "metadata": null, "cancel_reason": null}));
        let mut approval = json!({"id": 1, "action": "ADJUST", "note": "for Ada", "rejection_reason": "not Ada"});
        erase_in(&mut approval);
        assert_eq!(approval, json!({"id": 1, "action": "ADJUST", "note": null, "rejection_reason": null}));
        let mut beneficiary = json!({"id": 1, "name": "Ada", "type": "BANK", "account_last4": "3000", "bank_code": "X"});
        erase_in(&mut beneficiary);
        assert_eq!(beneficiary, json!({"id": 1, "name": "", "type": "BANK", "account_last4": "", "bank_code": null}));
    }
}
