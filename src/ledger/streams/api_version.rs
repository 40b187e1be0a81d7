//! Versions of the client API, and when they end.

use ledger_database::PgConnection;
use ledger_events::api_version::{ApiVersionEvent, EmergencySunsetDeclared};
use ledger_events::{Event, Moment, ShardId, StreamType};

use super::Stream;

/// Version 1 of the client API, which is also its stream's id.
pub const V1: i64 = 1;

/// A version of the client API with the last emergency sunset that was declared for it.
#[derive(Debug)]
pub struct ApiVersion {
    id: i64,
    version: i64,
    pub sunset: EmergencySunsetDeclared,
}

impl Stream for ApiVersion {
    type Id = i64;
    type Event = ApiVersionEvent;
    type Index = ();
    type Query<'a> = ();

    const NAME: &'static str = "API version";

    fn id(&self) -> i64 {
        self.id
    }

    fn version(&self) -> i64 {
        self.version
    }

    fn evolve(_: Option<Self>, id: i64, event: &ApiVersionEvent, at: &Moment) -> Option<Self> {
        let ApiVersionEvent::EmergencySunsetDeclared(sunset) = event;
        Some(ApiVersion { id, version: at.version, sunset: sunset.clone() })
    }

    async fn load(conn: &mut PgConnection, shard: ShardId, _: &[i64]) -> Result<Vec<Self>, sqlx::Error> {
        let row: Option<(i64, String, i16, String)> = sqlx::query_as(
            "SELECT version, type, schema_version, data::text FROM events
             WHERE shard_id = $1 AND stream_type = $2 AND stream_id = $3 ORDER BY version DESC LIMIT 1",
        )
        .bind(shard)
        .bind(StreamType::ApiVersion.as_str())
        .bind(V1)
        .fetch_optional(conn)
        .await?;
        let Some((version, kind, schema_version, data)) = row else { return Ok(vec![]) };
        let event = Event::read(StreamType::ApiVersion, &kind, schema_version, &data);
        match event.map_err(|error| sqlx::Error::Decode(Box::new(error)))? {
            Event::ApiVersion(ApiVersionEvent::EmergencySunsetDeclared(sunset)) => {
                Ok(vec![ApiVersion { id: V1, version, sunset }])
            }
            _ => Err(sqlx::Error::RowNotFound),
        }
    }
}
