//! Emergency sunset of the client API's version, which breaks the promise to clients. The log records the reason.

use ledger_database::PgConnection;
use ledger_events::api_version::{ApiVersionEvent, EmergencySunsetDeclared};
use ledger_events::{Actor, ShardId};
use ledger_events::{Event, StreamType};

use super::command::Command;
use super::{FIRST_SHARD, Ledger, Origin, WriteError};

/// Version of the API that ends, which is also its stream's id.
pub const V1: i64 = 1;

/// The last emergency sunset, with its version in the stream.
pub type Declared = (i64, EmergencySunsetDeclared);

/// Records an emergency sunset, unless it equals the last recorded one, because every start of a node declares it again.
///
/// # Errors
/// Returns an error when the event cannot be appended.
pub async fn declare(ledger: &Ledger, sunset: EmergencySunsetDeclared) -> Result<(), WriteError> {
    let origin = Origin { actor: Actor::Operator(0), request_id: "start".to_owned() };
    ledger.execute(FIRST_SHARD, Command::DeclareEmergencySunset(sunset), origin).await.map(drop)
}

/// Loads the last declared emergency sunset.
pub async fn load(conn: &mut PgConnection, shard: ShardId) -> Result<Option<Declared>, sqlx::Error> {
    let row: Option<(i64, String, i16, String)> = sqlx::query_as(
        "SELECT version, type, schema_version, data::text FROM events
         WHERE shard_id = $1 AND stream_type = $2 AND stream_id = $3 ORDER BY version DESC LIMIT 1",
    )
    .bind(shard)
    .bind(StreamType::ApiVersion.as_str())
    .bind(V1)
    .fetch_optional(conn)
    .await?;
    let Some((version, kind, schema_version, data)) = row else { return Ok(None) };
    let event = Event::read(StreamType::ApiVersion, &kind, schema_version, &data);
    match event.map_err(|error| sqlx::Error::Decode(Box::new(error)))? {
        Event::ApiVersion(ApiVersionEvent::EmergencySunsetDeclared(event)) => Ok(Some((version, event))),
        _ => Err(sqlx::Error::RowNotFound),
    }
}
