//! `/admin/v1/events`: the log, for auditors. Read and sent page by page, however long it is.

use std::io;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use futures::stream::try_unfold;
use ledger_database::PgPool;
use ledger_events::{Event, Position, ShardId};
use poem::http::header;
use poem::{Body, FromRequest, IntoResponse, Request, RequestBody, Response};
use poem_openapi::param::Query;
use poem_openapi::registry::{MetaMediaType, MetaResponse, MetaResponses, MetaSchema, MetaSchemaRef, Registry};
use poem_openapi::{ApiResponse, Enum, OpenApi};

use crate::access::Operator;
use crate::api::error::{ApiError, documented_header};
use crate::api::principal::Caller;
use crate::api::state::{State, Tag, time};
use crate::export::selection::Range;
use crate::export::{self, ExportError, Selection, Stream};
use crate::ledger::FIRST_SHARD;
use crate::ledger::reader::{self, Filter};

const NDJSON: &str = "application/x-ndjson";

/// How the answer is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Enum)]
#[oai(rename_all = "snake_case")]
enum Compression {
    /// A zstd file.
    Zstd,
}

/// Whether the caller takes an answer in zstd.
#[derive(Debug, Clone, Copy)]
struct AcceptsZstd(bool);

impl<'a> FromRequest<'a> for AcceptsZstd {
    async fn from_request(request: &'a Request, _: &mut RequestBody) -> poem::Result<Self> {
        let wishes = request.headers().get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
        Ok(Self(wishes.flat_map(|wishes| wishes.split(',')).any(is_zstd)))
    }
}

/// Whether one wish of `Accept-Encoding` is zstd, and is not refused by its weight.
fn is_zstd(wish: &str) -> bool {
    let mut parts = wish.split(';').map(str::trim);
    parts.next().is_some_and(|coding| coding.eq_ignore_ascii_case("zstd"))
        && parts.all(|part| part.strip_prefix("q=").is_none_or(|q| q.parse() != Ok(0.0_f32)))
}

/// A stretch of the log on its way.
#[derive(Debug)]
struct Sending {
    pool: PgPool,
    selection: Arc<Selection>,
    head: Position,
    at: Position,
    /// As a file of its own, or as the encoding of the answer.
    is_file: bool,
    is_encoded: bool,
}

impl Sending {
    async fn next(mut self) -> Result<Option<(Vec<u8>, Self)>, ExportError> {
        if self.at >= self.selection.to {
            return Ok(None);
        }
        let page = self.selection.page(&self.pool, self.at).await?;
        self.at = page.reached;
        let part = export::page(&page.events, self.is_file || self.is_encoded)?;
        Ok(Some((part, self)))
    }
}

impl IntoResponse for Sending {
    fn into_response(self) -> Response {
        let Selection { shard_id, from, to, .. } = *self.selection;
        let mut response = Response::builder()
            .header(header::VARY, "Accept-Encoding")
            .header("X-Log-Shard", shard_id.to_string())
            .header("X-Log-Head", self.head.to_string())
            .header("X-Log-From", from.to_string())
            .header("X-Log-To", to.to_string());
        response = match (self.is_file, self.is_encoded) {
            (true, _) => {
                let name = format!("attachment; filename=\"events-{shard_id}-{from}-{to}.ndjson.zst\"");
                response.content_type("application/zstd").header(header::CONTENT_DISPOSITION, name)
            }
            (false, true) => response.content_type(NDJSON).header(header::CONTENT_ENCODING, "zstd"),
            (false, false) => response.content_type(NDJSON),
        };
        let parts = try_unfold(self, move |sending| async move {
            sending.next().await.map_err(|error| {
                // The status is sent; that the body breaks off is all that the caller can be told.
                tracing::error!(shard_id, %error, "an export broke off");
                io::Error::other("the export broke off")
            })
        });
        response.body(Body::from_bytes_stream(parts))
    }
}

impl ApiResponse for Sending {
    fn meta() -> MetaResponses {
        let text = "One event a line: `shard_id`, `position`, `event_id`, `stream_type`, `stream_id`, `version`, `type`, \
                    `schema_version`, `recorded_at`, and `data` and `metadata` byte for byte as they are recorded.";
        let lines = MetaSchema { description: Some(text), ..MetaSchema::new("string") };
        let content = vec![
            MetaMediaType { content_type: NDJSON, schema: MetaSchemaRef::Inline(Box::new(lines)) },
            MetaMediaType { content_type: "application/zstd", schema: crate::api::images::binary() },
        ];
        let headers = vec![
            documented_header::<i64>("X-Log-Shard", "Whose log it is."),
            documented_header::<i64>("X-Log-Head", "Where the log ended when the answer began."),
            documented_header::<i64>("X-Log-From", "The first position that was looked at."),
            documented_header::<i64>("X-Log-To", "The last one; what breaks off before it is not whole."),
            documented_header::<Option<String>>("Content-Encoding", "`zstd`, where it was accepted."),
            documented_header::<Option<String>>("Content-Disposition", "A file's name, for `compression=zstd`."),
            documented_header::<String>("Vary", "`Accept-Encoding`"),
        ];
        MetaResponses {
            responses: vec![MetaResponse { description: "OK", status: Some(200), status_range: None, content, headers }],
        }
    }

    fn register(_: &mut Registry) {}
}

/// A position in the query.
fn position(name: &str, position: Option<Position>) -> Result<Option<Position>, ApiError> {
    match position {
        Some(..1) => Err(ApiError::invalid(name, "must be a position: 1 or more")),
        position => Ok(position),
    }
}

/// Types of events, separated by commas.
fn types(text: Option<&str>) -> Result<Vec<String>, ApiError> {
    let named = text.into_iter().flat_map(|text| text.split(',')).map(str::trim);
    named
        .map(|name| match Event::types().any(|(_, known, _)| known == name) {
            true => Ok(name.to_owned()),
            false => Err(ApiError::invalid("type", "must be types of events, such as OrderPlaced, separated by commas")),
        })
        .collect()
}

pub struct Events;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Events")]
impl Events {
    /// Export the log
    ///
    /// Or a part of it, in the order of positions, up to where it ends now. An answer that broke off
    /// is gone on with by `from`, one after the last whole line. `Accept-Encoding: zstd` is honoured.
    #[oai(path = "/events", method = "get", operation_id = "export_events")]
    #[allow(clippy::too_many_arguments)] // each is a parameter
    async fn export(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        encoding: AcceptsZstd,
        /// Only events at this position or later.
        from: Query<Option<i64>>,
        /// Only events up to this position.
        to: Query<Option<i64>>,
        /// Only events recorded at this time or later.
        since: Query<Option<DateTime<Utc>>>,
        /// Only events recorded before this time.
        until: Query<Option<DateTime<Utc>>>,
        /// Only events of this account.
        account_id: Query<Option<i64>>,
        /// Only events of one stream, such as `order/42`.
        stream: Query<Option<String>>,
        /// Only events of these types, separated by commas.
        #[oai(name = "type")]
        event_types: Query<Option<String>>,
        /// The log of this shard; by default the first.
        shard_id: Query<Option<i16>>,
        /// `zstd`: as a compressed file.
        compression: Query<Option<Compression>>,
    ) -> Result<Sending, ApiError> {
        let shard: ShardId = shard_id.0.unwrap_or(FIRST_SHARD);
        if !state.ledger.shards().any(|known| known == shard) {
            return Err(ApiError::invalid("shard_id", "is no shard of this ledger"));
        }
        let range = Range {
            from: position("from", from.0)?,
            to: position("to", to.0)?,
            since: time("since", since.0)?,
            until: time("until", until.0)?,
        };
        let stream = stream.0.map(|text| text.parse::<Stream>()).transpose();
        let stream = stream.map_err(|problem| ApiError::invalid("stream", problem))?;
        let filter = Filter { account_id: account_id.0, types: types(event_types.0.as_deref())? };
        let pool = state.ledger.pool();
        let head = reader::head(pool, shard).await?;
        let (from, to) = range.resolve(pool, shard, head).await?;
        let selection = Arc::new(Selection { shard_id: shard, from, to, stream, filter });
        let is_file = compression.0.is_some();
        Ok(Sending { pool: pool.clone(), selection, head, at: 0, is_file, is_encoded: encoding.0 && !is_file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zstd_is_taken_where_it_is_wished_for() {
        for (wish, expected) in
            [("zstd", true), (" ZSTD ", true), ("zstd;q=0.5", true), ("zstd; q=0", false), ("gzip", false), ("*", false)]
        {
            assert_eq!(is_zstd(wish), expected, "{wish}");
        }
    }
}
