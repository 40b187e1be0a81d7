//! Search over everything that support staff get from clients: numbers, references, names, addresses and IDs.
//!
//! A term is looked up in every place whose form it has, and each place has an index for it:
//!
//! | Term | Index |
//! |---|---|
//! | order by number or reference code | `orders_pkey` |
//! | order by the client's reference | `orders_client_reference` |
//! | payout by the client's reference | `payouts_client_reference` |
//! | funding by reference | `wallet_transactions_funding_reference_key` |
//! | account by number | `accounts_pkey` |
//! | account by the beginning of its name | `accounts_name` |
//! | credential by the first 8 characters of its key | `credentials_key_prefix_key` |
//! | user by email | `users_email_key`, over a keyed hash |
//! | webhook by number | `webhooks_pkey` |
//! | event by ID | `events_event_id_key` |
//! | events by the ID of their request | `events_request`, Bloom filters of ranges of pages |

use ledger_database::{FromRow, PgConnection, PgPool, replanned};
use ledger_events::{AccountId, Id, Position, ShardId, placement};
use ledger_projections::page;
use uuid::Uuid;

/// Maximum number of results of one kind.
const MAX_OF_KIND: i64 = 20;
/// Length of the part of an API key that identifies it.
const KEY_PREFIX: usize = 8;
/// Minimum length of the beginning of an account's name.
const MIN_NAME: usize = 2;
/// Maximum length of a reference.
const MAX_REFERENCE: usize = 100;
/// Maximum length of a request ID.
const MAX_REQUEST_ID: usize = 128;

/// Places to look a term up in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Id of an order, an account or a webhook.
    pub number: Option<i64>,
    /// Id of the order with this reference code.
    pub order: Option<i64>,
    /// Beginning of an account's name, in upper or lower case.
    pub name: Option<String>,
    /// First characters of an API key.
    pub key_prefix: Option<String>,
    pub email: Option<String>,
    pub event_id: Option<Uuid>,
    pub request_id: Option<String>,
    /// Reference of an order or a payout that a client has chosen, or of a funding.
    pub reference: Option<String>,
}

impl Terms {
    /// Reads a search term.
    pub fn of(text: &str) -> Terms {
        let text = text.trim();
        let number = text.parse().ok().filter(|number| *number > 0);
        let is_hex = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let is_key = is_hex && (text.len() == KEY_PREFIX || text.len() == 32);
        let is_request_id = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'));
        let is_email = text.contains('@');
        Terms {
            number,
            order: placement::order_of_reference(text).map(|id| id.0),
            name: (text.chars().count() >= MIN_NAME && !is_email).then(|| text.to_owned()),
            key_prefix: text.get(..KEY_PREFIX).filter(|_| is_key).map(str::to_owned),
            email: is_email.then(|| text.to_owned()),
            event_id: text.parse().ok(),
            request_id: (is_request_id && (1..=MAX_REQUEST_ID).contains(&text.len())).then(|| text.to_owned()),
            reference: (1..=MAX_REFERENCE).contains(&text.chars().count()).then(|| text.to_owned()),
        }
    }
}

/// Kind of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Order,
    Account,
    Credential,
    User,
    Webhook,
    Payout,
    Transaction,
    Event,
}

/// Something that a term names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub kind: Kind,
    pub shard: ShardId,
    /// Id of the resource; the position of an event.
    pub id: i64,
    pub account_id: Option<AccountId>,
    /// Public text of the resource: a reference code, a name, or an event type. Empty if it is sealed in the vault.
    pub text: String,
    /// Stream of an event and its id.
    pub event: Option<FoundEvent>,
}

/// Details of an event that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundEvent {
    pub event_id: Uuid,
    pub stream_type: String,
    pub stream_id: i64,
}

#[derive(FromRow)]
struct Row {
    shard_id: ShardId,
    id: i64,
    account_id: Option<AccountId>,
    text: String,
}

impl Row {
    fn of(self, kind: Kind) -> Found {
        Found { kind, shard: self.shard_id, id: self.id, account_id: self.account_id, text: self.text, event: None }
    }
}

#[derive(FromRow)]
struct EventRow {
    shard_id: ShardId,
    position: Position,
    event_id: Uuid,
    stream_type: String,
    stream_id: i64,
    account_id: Option<String>,
    event_type: String,
}

impl From<EventRow> for Found {
    fn from(row: EventRow) -> Found {
        let EventRow { shard_id: shard, position: id, event_id, stream_type, stream_id, account_id, event_type: text } = row;
        let account_id = account_id.and_then(|account| account.parse().ok());
        Found { kind: Kind::Event, shard, id, account_id, text, event: Some(FoundEvent { event_id, stream_type, stream_id }) }
    }
}

/// Looks up the terms, at most [`MAX_OF_KIND`] results of each kind. `email_lookup` is the keyed hash of the email.
pub async fn find(
    pool: &PgPool,
    shards: &[ShardId],
    terms: &Terms,
    email_lookup: Option<[u8; 32]>,
) -> Result<Vec<Found>, sqlx::Error> {
    replanned(|| find_once(pool, shards, terms, email_lookup)).await
}

async fn find_once(
    pool: &PgPool,
    shards: &[ShardId],
    terms: &Terms,
    email_lookup: Option<[u8; 32]>,
) -> Result<Vec<Found>, sqlx::Error> {
    let mut tx = page::snapshot(pool).await?;
    let orders: Vec<i64> = terms.number.into_iter().chain(terms.order).collect();
    let mut found = orders_of(&mut tx, shards, &orders).await?;
    found.extend(accounts_of(&mut tx, terms).await?);
    if let Some(prefix) = &terms.key_prefix {
        found.extend(credentials_of(&mut tx, prefix).await?);
    }
    if let Some(lookup) = &email_lookup {
        found.extend(users_of(&mut tx, lookup).await?);
    }
    if let Some(number) = terms.number {
        found.extend(webhooks_of(&mut tx, shards, number).await?);
    }
    if let Some(reference) = &terms.reference {
        found.extend(of_reference(&mut tx, shards, reference, &orders).await?);
    }
    if let Some(event_id) = terms.event_id {
        found.extend(events_of_id(&mut tx, shards, event_id).await?);
    }
    if let Some(request_id) = &terms.request_id {
        found.extend(events_of_request(&mut tx, request_id).await?);
    }
    tx.commit().await?;
    Ok(found)
}

async fn orders_of(conn: &mut PgConnection, shards: &[ShardId], ids: &[i64]) -> Result<Vec<Found>, sqlx::Error> {
    if ids.is_empty() {
        return Ok(vec![]);
    }
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT shard_id, id, account_id, reference_code || ' ' || status AS text FROM orders
         WHERE shard_id = ANY($1) AND id = ANY($2) ORDER BY id LIMIT $3",
    )
    .bind(ids.iter().flat_map(|id| id.shards_among(shards)).collect::<Vec<_>>())
    .bind(ids)
    .bind(MAX_OF_KIND)
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| row.of(Kind::Order)).collect())
}

async fn accounts_of(conn: &mut PgConnection, terms: &Terms) -> Result<Vec<Found>, sqlx::Error> {
    // The operators are those of the index, which compares bytes. No character is greater than the last one of Unicode.
    let rows: Vec<Row> = sqlx::query_as(
        "(SELECT shard_id, id, id AS account_id, name AS text FROM accounts WHERE id = $1)
         UNION
         (SELECT shard_id, id, id AS account_id, name AS text FROM accounts
          WHERE lower(name) ~>=~ lower($2) AND lower(name) ~<~ (lower($2) || $4) ORDER BY lower(name) USING ~<~ LIMIT $3)
         ORDER BY id LIMIT $3",
    )
    .bind(terms.number)
    .bind(terms.name.as_deref())
    .bind(MAX_OF_KIND)
    .bind(char::MAX.to_string())
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| row.of(Kind::Account)).collect())
}

async fn credentials_of(conn: &mut PgConnection, prefix: &str) -> Result<Vec<Found>, sqlx::Error> {
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT shard_id, id, account_id, key_prefix || ' ' || name AS text FROM credentials WHERE key_prefix = $1 LIMIT $2",
    )
    .bind(prefix)
    .bind(MAX_OF_KIND)
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| row.of(Kind::Credential)).collect())
}

async fn users_of(conn: &mut PgConnection, lookup: &[u8; 32]) -> Result<Vec<Found>, sqlx::Error> {
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT u.shard_id, u.id, u.account_id, '' AS text FROM vault.users v JOIN users u ON u.id = v.user_id
         WHERE v.email_lookup = $1 AND NOT u.is_removed LIMIT $2",
    )
    .bind(&lookup[..])
    .bind(MAX_OF_KIND)
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| row.of(Kind::User)).collect())
}

async fn webhooks_of(conn: &mut PgConnection, shards: &[ShardId], id: i64) -> Result<Vec<Found>, sqlx::Error> {
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT shard_id, id, account_id, '' AS text FROM webhooks WHERE shard_id = ANY($1) AND id = $2 ORDER BY shard_id LIMIT $3",
    )
    .bind(id.shards_among(shards))
    .bind(id)
    .bind(MAX_OF_KIND)
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| row.of(Kind::Webhook)).collect())
}

/// Finds orders, payouts and fundings by reference, without the orders that are found already. Each condition names the
/// collation of both the index of this schema and that of the last release, as docs/migrations.md explains.
async fn of_reference(
    conn: &mut PgConnection,
    shards: &[ShardId],
    reference: &str,
    known: &[i64],
) -> Result<Vec<Found>, sqlx::Error> {
    #[derive(FromRow)]
    struct OfKind {
        kind: String,
        #[sqlx(flatten)]
        row: Row,
    }
    let rows: Vec<OfKind> = sqlx::query_as(
        "(SELECT 'order' AS kind, shard_id, id, account_id, reference_code || ' ' || status AS text FROM orders
          WHERE client_reference COLLATE \"C\" = $2 AND shard_id = ANY($1) AND id <> ALL($3) LIMIT $4)
         UNION ALL
         (SELECT 'payout', shard_id, id, account_id, 'PAY-' || id || ' ' || status FROM payouts
          WHERE client_reference COLLATE \"C\" = $2 AND shard_id = ANY($1) LIMIT $4)
         UNION ALL
         (SELECT 'transaction', shard_id, id, account_id, 'Funding ' || reference FROM wallet_transactions
          WHERE category = 'FUNDING' AND reference = $2 AND reference COLLATE \"C\" = $2 AND shard_id = ANY($1) LIMIT $4)",
    )
    .bind(shards)
    .bind(reference)
    .bind(known)
    .bind(MAX_OF_KIND)
    .fetch_all(conn)
    .await?;
    let kind = |name: &str| match name {
        "order" => Kind::Order,
        "payout" => Kind::Payout,
        _ => Kind::Transaction,
    };
    Ok(rows.into_iter().map(|OfKind { kind: name, row }| row.of(kind(&name))).collect())
}

/// SELECT of the columns of [`EventRow`], followed by the given condition.
macro_rules! select_events {
    ($condition:literal) => {
        concat!(
            "SELECT shard_id, position, event_id, stream_type, stream_id, metadata->>'account_id' AS account_id,
                type AS event_type FROM events WHERE ",
            $condition
        )
    };
}

async fn events_of_id(conn: &mut PgConnection, shards: &[ShardId], event_id: Uuid) -> Result<Vec<Found>, sqlx::Error> {
    let rows: Vec<EventRow> = sqlx::query_as(select_events!("shard_id = ANY($1) AND event_id = $2"))
        .bind(shards)
        .bind(event_id)
        .fetch_all(conn)
        .await?;
    Ok(rows.into_iter().map(Found::from).collect())
}

/// Finds the events of a request. Only a bitmap scan reads the index, and the server cannot know that the filters exclude
/// nearly all of the table. So the other ways to read a table are off.
async fn events_of_request(conn: &mut PgConnection, request_id: &str) -> Result<Vec<Found>, sqlx::Error> {
    sqlx::query("SELECT set_config('enable_bitmapscan', 'on', true), set_config('enable_indexscan', 'off', true)")
        .execute(&mut *conn)
        .await?;
    let rows: Vec<EventRow> = sqlx::query_as(select_events!("metadata->>'request_id' = $1 LIMIT $2"))
        .bind(request_id)
        .bind(MAX_OF_KIND)
        .persistent(false)
        .fetch_all(conn)
        .await?;
    let mut found: Vec<Found> = rows.into_iter().map(Found::from).collect();
    found.sort_unstable_by_key(|event| (event.shard, event.id));
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use ledger_events::{OrderId, id_base};

    use super::*;

    #[test]
    fn a_term_is_looked_up_wherever_it_has_the_form() {
        let number = Terms::of(" 42 ");
        assert_eq!((number.number, number.order, number.name.as_deref()), (Some(42), None, Some("42")));
        assert_eq!(number.request_id.as_deref(), Some("42"));
        for id in [42, id_base(2) + 42] {
            assert_eq!(Terms::of(&placement::reference_code(OrderId(id))).order, Some(id));
        }
        let email = Terms::of("Jo@Example.com");
        assert_eq!((email.email.as_deref(), email.name, email.request_id), (Some("Jo@Example.com"), None, None));
        assert_eq!(Terms::of("3f9a1c0d").key_prefix.as_deref(), Some("3f9a1c0d"));
        assert_eq!(Terms::of("3f9a1c0d5b7e48f2a6c4d8e0b1f29375").key_prefix.as_deref(), Some("3f9a1c0d"));
        assert_eq!(Terms::of("3f9a1c0").key_prefix, None);
        let id = "019c13e2-6f00-7abc-8def-0123456789ab";
        assert_eq!((Terms::of(id).event_id, Terms::of(id).request_id.as_deref()), (id.parse().ok(), Some(id)));
        assert_eq!(Terms::of(" Äcme Ltd").name.as_deref(), Some("Äcme Ltd"));
        let letter = || Some("A".to_owned());
        assert_eq!(Terms::of("A"), Terms { request_id: letter(), reference: letter(), ..Terms::default() });
        assert_eq!(Terms::of(&"é".repeat(101)).reference, None);
        assert_eq!(Terms::of("-3").number, None);
        assert_eq!(Terms::of("ééééé").key_prefix, None);
    }
}
