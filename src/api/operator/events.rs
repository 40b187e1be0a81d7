//! `/admin/v1/events`: the event log, for auditors. It is read and sent page by page, so that memory use does not depend
//! on its length.

use std::io;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use futures::stream::try_unfold;
use ledger_database::PgPool;
use ledger_events::{AccountId, Event, Position, ShardId};
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

/// Compression of the response body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Enum)]
#[oai(rename_all = "snake_case")]
enum Compression {
    /// Zstandard.
    Zstd,
}

/// Whether the caller accepts a response in Zstandard encoding.
#[derive(Debug, Clone, Copy)]
struct AcceptsZstd(bool);

impl<'a> FromRequest<'a> for AcceptsZstd {
    async fn from_request(request: &'a Request, _: &mut RequestBody) -> poem::Result<Self> {
        let wishes = request.headers().get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
        Ok(Self(wishes.flat_map(|wishes| wishes.split(',')).any(is_zstd)))
    }
}

/// Returns whether an element of `Accept-Encoding` is `zstd` with a weight above 0.
fn is_zstd(wish: &str) -> bool {
    let mut parts = wish.split(';').map(str::trim);
    parts.next().is_some_and(|coding| coding.eq_ignore_ascii_case("zstd"))
        && parts.all(|part| part.strip_prefix("q=").is_none_or(|q| q.parse() != Ok(0.0_f32)))
}

/// An export in progress.
#[derive(Debug)]
struct Sending {
    pool: PgPool,
    selection: Arc<Selection>,
    head: Position,
    at: Position,
    /// Whether the response is a compressed file, as opposed to a response with a content encoding.
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
                // The status line is already sent, so an aborted body is the only way to report the error.
                tracing::error!(shard_id, %error, "export aborted");
                io::Error::other("the export was aborted")
            })
        });
        response.body(Body::from_bytes_stream(parts))
    }
}

impl ApiResponse for Sending {
    fn meta() -> MetaResponses {
        let text = "One event per line: `shard_id`, `position`, `event_id`, `stream_type`, `stream_id`, `version`, `type`, \
                    `schema_version`, `recorded_at`, and `data` and `metadata` byte for byte as recorded.";
        let lines = MetaSchema { description: Some(text), ..MetaSchema::new("string") };
        let content = vec![
            MetaMediaType { content_type: NDJSON, schema: MetaSchemaRef::Inline(Box::new(lines)) },
            MetaMediaType { content_type: "application/zstd", schema: crate::api::images::binary() },
        ];
        let headers = vec![
            documented_header::<i64>("X-Log-Shard", "Shard whose log is exported."),
            documented_header::<i64>("X-Log-Head", "Last position of the log when the export began."),
            documented_header::<i64>("X-Log-From", "First position of the exported range."),
            documented_header::<i64>(
                "X-Log-To",
                "Last position of the exported range. A response that ends before it is incomplete.",
            ),
            documented_header::<Option<String>>("Content-Encoding", "`zstd`, if the request accepts it."),
            documented_header::<Option<String>>("Content-Disposition", "Suggested file name, for `compression=zstd` only."),
            documented_header::<String>("Vary", "`Accept-Encoding`"),
        ];
        MetaResponses {
            responses: vec![MetaResponse { description: "OK", status: Some(200), status_range: None, content, headers }],
        }
    }

    fn register(_: &mut Registry) {}
}

/// Checks that a position from the query is at least 1.
fn position(name: &str, position: Option<Position>) -> Result<Option<Position>, ApiError> {
    match position {
        Some(..1) => Err(ApiError::invalid(name, "must be a position, 1 or more")),
        position => Ok(position),
    }
}

/// Reads a comma-separated list of event types.
pub(super) fn types(text: Option<&str>) -> Result<Vec<String>, ApiError> {
    let named = text.into_iter().flat_map(|text| text.split(',')).map(str::trim);
    named
        .map(|name| match Event::types().any(|(_, known, _)| known == name) {
            true => Ok(name.to_owned()),
            false => Err(ApiError::invalid("type", "must be event types, such as OrderPlaced, separated by commas")),
        })
        .collect()
}

pub struct Events;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Events")]
impl Events {
    /// Export the event log
    ///
    /// Returns the log, or a part of it, in order of position, up to its current end. To resume an aborted export, set
    /// `from` to the position after the last complete line. Supports `Accept-Encoding: zstd`.
    #[oai(path = "/events", method = "get", operation_id = "export_events")]
    #[allow(clippy::too_many_arguments)] // each is a parameter
    async fn export(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        encoding: AcceptsZstd,
        /// Only events at this position or later.
        from: Query<Option<i64>>,
        /// Only events at this position or earlier.
        to: Query<Option<i64>>,
        /// Only events recorded at or after this time.
        since: Query<Option<DateTime<Utc>>>,
        /// Only events recorded before this time.
        until: Query<Option<DateTime<Utc>>>,
        /// Only events of this account.
        account_id: Query<Option<i64>>,
        /// Only events of this stream, such as `order/42`.
        stream: Query<Option<String>>,
        /// Only events of these types, separated by commas, such as `OrderPlaced,OrderDelivered`.
        #[oai(name = "type")]
        event_types: Query<Option<String>>,
        /// Shard whose log to export. Default: the first shard.
        shard_id: Query<Option<i16>>,
        /// `zstd` returns the export as a compressed file.
        compression: Query<Option<Compression>>,
    ) -> Result<Sending, ApiError> {
        let shard: ShardId = shard_id.0.unwrap_or(FIRST_SHARD);
        if !state.ledger.shards().contains(&shard) {
            return Err(ApiError::invalid("shard_id", "is not a shard of this ledger"));
        }
        let range = Range {
            from: position("from", from.0)?,
            to: position("to", to.0)?,
            since: time("since", since.0)?,
            until: time("until", until.0)?,
        };
        let stream = stream.0.map(|text| text.parse::<Stream>()).transpose();
        let stream = stream.map_err(|problem| ApiError::invalid("stream", problem))?;
        let filter = Filter { account_id: account_id.0.map(AccountId), types: types(event_types.0.as_deref())? };
        let pool = &state.read_pool();
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
    fn zstd_is_used_only_if_the_caller_accepts_it() {
        for (wish, expected) in
            [("zstd", true), (" ZSTD ", true), ("zstd;q=0.5", true), ("zstd; q=0", false), ("gzip", false), ("*", false)]
        {
            assert_eq!(is_zstd(wish), expected, "{wish}");
        }
    }
}
