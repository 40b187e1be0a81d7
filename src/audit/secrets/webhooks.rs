//! Comparison of webhooks' URLs, tokens and custom headers in the vault with the log.

use std::collections::HashMap;

use ledger_database::{FromRow, PgConnection};
use ledger_events::WebhookId;
use ledger_events::webhook::Webhook;

use super::{Streams, TextRow, add};
use crate::audit::Findings;
use crate::ledger::texts::{WEBHOOK_HEADERS, WEBHOOK_TOKEN, WEBHOOK_URL};
use crate::secrets::seal::Keyring;

/// Compares webhooks' URLs, tokens and headers, in the caller's snapshot.
pub async fn webhooks(
    conn: &mut PgConnection,
    streams: Streams<'_>,
    webhooks: &HashMap<WebhookId, Webhook>,
    keyring: Option<&Keyring>,
    findings: &mut Findings,
) -> Result<(), sqlx::Error> {
    let live = webhooks.values().filter(|webhook| !webhook.is_deleted);
    let mut ids: Vec<i64> =
        live.map(|webhook| webhook.id.0).filter(|id| (streams.range.0 + 1..=streams.range.1).contains(id)).collect();
    ids.sort_unstable();
    for kind in [WEBHOOK_URL, WEBHOOK_TOKEN, WEBHOOK_HEADERS] {
        let rows: Vec<TextOf> = sqlx::query_as(
            "SELECT w.id, t.salt, t.sealed, t.key_id, k.sealed AS data_key FROM unnest($2::bigint[]) AS w (id)
             LEFT JOIN vault.texts t ON t.shard_id = $1 AND t.kind = $3 AND t.id = w.id
             LEFT JOIN vault.data_keys k ON k.shard_id = $1 AND k.id = t.key_id",
        )
        .bind(streams.shard)
        .bind(&ids)
        .bind(kind)
        .fetch_all(&mut *conn)
        .await?;
        for TextOf { id, text } in rows {
            let Some(webhook) = webhooks.get(&WebhookId(id)) else { continue };
            // A webhook that signs with a credential's secret needs no token.
            if kind == WEBHOOK_TOKEN && webhook.credential_id.is_some() && text.sealed.is_none() {
                continue;
            }
            let logged = streams.logged(id);
            let hash = match kind {
                WEBHOOK_URL => logged.url_hash.as_deref(),
                WEBHOOK_HEADERS => logged.headers_hash.as_deref(),
                _ => None,
            };
            // A webhook that never had custom headers has no text for them.
            if kind == WEBHOOK_HEADERS && hash.is_none() && text.sealed.is_none() {
                continue;
            }
            if let Some(problem) = text.problem(keyring, kind, id, hash) {
                add(findings, "vault.texts", format!("{kind} {id}"), problem);
            }
        }
    }
    Ok(())
}

#[derive(FromRow)]
struct TextOf {
    id: i64,
    #[sqlx(flatten)]
    text: TextRow,
}
