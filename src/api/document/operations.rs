//! Operations of the document: security, possible responses, and all headers of requests and responses.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{contents, refusals, schemas};
use crate::access::limits::{Rule, is_under};
use crate::api::auth::RATE_LIMIT_HEADERS;
use crate::api::browser_headers::is_private;
use crate::api::error::{ApiError, Code, JSON};
use crate::api::events::MAX_WAIT;
use crate::api::log::is_for_auditors;
use crate::api::page::MAX_PAGE;
use crate::api::principal::{API_KEY, API_SECRET, CONSOLE_SESSION, PORTAL_SESSION};
use crate::api::probes;
use crate::api::statistics::MAX_STATISTICS_DAYS;
use crate::reconciliation::statements::MAX_DAYS;

/// Pattern of an `as_of` parameter: a position of the log, or a time.
const AS_OF: &str = r"^([1-9][0-9]{0,17}|[0-9]{4}-[01][0-9]-[0-3][0-9](T[0-2][0-9]:[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?(Z|[+-][0-2][0-9]:[0-5][0-9]))?)$";

/// Components that operations refer to instead of repeating them.
#[derive(Default)]
pub struct Shared {
    headers: BTreeMap<&'static str, Value>,
    parameters: BTreeMap<&'static str, Value>,
    responses: BTreeMap<String, Value>,
}

impl Shared {
    /// Returns a reference to a response of the components that equals this one. It adds the response if there is none.
    fn response(&mut self, name: &str, response: Value) -> Value {
        let names = (1..).map(|n| if n == 1 { name.to_owned() } else { format!("{name}{n}") });
        let mut free = names.filter(|name| self.responses.get(name).is_none_or(|known| *known == response));
        let name = free.next().unwrap_or_default();
        let reference = json!({"$ref": format!("#/components/responses/{name}")});
        self.responses.insert(name, response);
        reference
    }

    pub fn add_to(self, components: &mut Value) {
        let mut add = |kind: &str, name: &str, value: Value| components[kind][name] = value;
        self.headers.into_iter().for_each(|(name, header)| add("headers", name, header));
        self.parameters.into_iter().for_each(|(name, parameter)| add("parameters", name, parameter));
        self.responses.iter().for_each(|(name, response)| add("responses", name, response.clone()));
    }
}

/// Returns whether a path is covered by the stability promise of `VERSIONING.md`.
fn is_client_api(path: &str) -> bool {
    path.starts_with("/api/v1/")
}

pub fn finish(path: &str, method: &str, operation: &mut Value, shared: &mut Shared) {
    let (mut is_signed, mut has_cookie) = (false, false);
    match operation.get_mut("security").and_then(Value::as_array_mut) {
        Some(security) => {
            require_together(security);
            is_signed = security.iter().any(|entry| entry.get(API_KEY).is_some());
            let is_session = |entry: &Value| [PORTAL_SESSION, CONSOLE_SESSION].iter().any(|scheme| entry.get(scheme).is_some());
            has_cookie = security.iter().any(is_session);
        }
        // The operation is public.
        None => operation["security"] = json!([]),
    }
    for parameter in operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten() {
        finish_parameter(path, parameter);
    }
    for media_type in contents(operation.get_mut("requestBody")) {
        media_type.get_mut("schema").into_iter().for_each(schemas::upgrade);
    }
    let has_position = is_client_api(path) || is_under(path, "/admin/v1");
    add_parameters(operation, has_position, is_signed, has_cookie && method != "get", shared);
    let (codes, own) = (refusals::of(path, method, operation), refusals::own(operation));
    let id = operation["operationId"].as_str().map(name_of_id).unwrap_or_default();
    let Some(responses) = operation.get_mut("responses").and_then(Value::as_object_mut) else { return };
    responses.retain(|status, _| match status.parse() {
        Ok(429) => !probes::PATHS.contains(&path),
        Ok(status @ 400_u16..) => codes.iter().any(|code| code.status() == status),
        _ => true,
    });
    for (status, response) in responses.iter_mut().filter(|(_, response)| response.get("$ref").is_none()) {
        for media_type in contents(Some(response)) {
            media_type.get_mut("schema").into_iter().for_each(schemas::upgrade);
        }
        add_headers(path, method, status, response, shared);
        if let Some(status) = status.parse().ok().filter(|status| *status >= 400_u16) {
            let codes: Vec<Code> = codes.iter().copied().filter(|code| code.status() == status).collect();
            name_codes(status, &codes, response);
            let owner = if codes.iter().any(|code| own.contains(code)) { id.as_str() } else { "" };
            *response = shared.response(&format!("{owner}{}", reason(status)), response.take());
        }
    }
}

/// Converts an operation ID such as `place_order` to the form used in names, `PlaceOrder`.
fn name_of_id(id: &str) -> String {
    let words = id.split('_').map(|word| {
        let (first, rest) = word.split_at(word.len().min(1));
        first.to_uppercase() + rest
    });
    words.collect()
}

/// Merges API key and secret into one entry. Entries of `security` are alternatives; names within an entry are required
/// together.
fn require_together(security: &mut Vec<Value>) {
    if security.iter().any(|entry| entry.get(API_KEY).is_some()) {
        security.retain(|entry| entry.get(API_SECRET).is_none() || entry.get(API_KEY).is_some());
        for entry in security.iter_mut().filter(|entry| entry.get(API_KEY).is_some()) {
            entry[API_SECRET] = json!([]);
        }
    }
}

fn finish_parameter(path: &str, parameter: &mut Value) {
    let name = parameter["name"].as_str().unwrap_or_default().to_owned();
    let Some(schema) = parameter.get_mut("schema") else { return };
    let (bounds, default) = match name.as_str() {
        "page" => (Some((1, MAX_PAGE)), Some(1)),
        "limit" if path.ends_with("/products") => (Some((1, 10_000)), Some(50)),
        "per_page" if path.ends_with("/products") => (Some((1, 10_000)), None),
        "limit" if path.ends_with("/reconciliation/statements/{id}") => (Some((1, 1_000)), Some(100)),
        "limit" => (Some((1, 100)), Some(20)),
        "days" if path.ends_with("/stats") => (Some((1, MAX_STATISTICS_DAYS.unsigned_abs())), Some(30)),
        "days" => (Some((0, MAX_DAYS.unsigned_abs())), None),
        "wait" => (Some((0, MAX_WAIT)), Some(0)),
        "position" => (Some((1, i64::MAX.unsigned_abs())), None),
        "from" if path.ends_with("/proof/consistency") => (Some((0, i64::MAX.unsigned_abs())), None),
        _ => (None, None),
    };
    if let Some((least, most)) = bounds {
        schema["minimum"] = json!(least);
        schema["maximum"] = json!(most);
    }
    if let Some(default) = default {
        schema["default"] = json!(default);
    }
    let pattern = match name.as_str() {
        "as_of" => Some(AS_OF),
        "amount" if path.ends_with("/reconciliation/statements/{id}") => Some(schemas::MONEY),
        "denomination" => Some(schemas::AMOUNT),
        _ => None,
    };
    if let Some(pattern) = pattern {
        schema["pattern"] = json!(pattern);
    }
    schemas::finish_parameter(schema);
}

/// Adds the headers that requests of all operations may carry.
fn add_parameters(operation: &mut Value, has_position: bool, is_signed: bool, is_cookie_change: bool, shared: &mut Shared) {
    let mut added = vec![(
        "X-Request-ID",
        "Your own ID for the request, 1 to 128 characters of `[A-Za-z0-9._-]`. The response repeats it, or has a new ID.",
    )];
    if has_position {
        added.push((
            "X-Log-Position",
            "The header of the same name in the newest response that had it. A list, export, statement or report then includes \
             every change up to that response. Without the header, it includes all changes that were answered before the request: \
             leave it out if you know of a later change from elsewhere, such as a webhook.",
        ));
    }
    if is_signed {
        added.push((
            "X-Signature",
            "`t=<unix_seconds>,v1=<signature_hex>`. Required if the credential requires HMAC signing, otherwise ignored. \
             See [Signing a request](/docs/guides/signing).",
        ));
    }
    if is_cookie_change {
        added.push((
            "Origin",
            "Required with the cookie: the service's own origin, which browsers send from the service's pages. Without it, \
             the response is 403 `E_FORBIDDEN`, which does not count against any rate limit. Ignored with a token.",
        ));
    }
    for (name, description) in added {
        let reference = json!({"$ref": format!("#/components/parameters/{name}")});
        let parameter = json!({
            "name": name, "in": "header", "required": false, "description": description, "schema": {"type": "string"}
        });
        shared.parameters.insert(name, parameter);
        let parameters = operation.as_object_mut().map(|operation| operation.entry("parameters").or_insert(json!([])));
        if let Some(parameters) = parameters.and_then(Value::as_array_mut)
            && !parameters.contains(&reference)
        {
            parameters.push(reference);
        }
    }
}

/// Adds the headers that responses of several operations share.
fn add_headers(path: &str, method: &str, status: &str, response: &mut Value, shared: &mut Shared) {
    let integer = json!({"type": "integer", "format": "int64"});
    let text = json!({"type": "string"});
    let says_itself = response.pointer("/headers/Cache-Control/description").is_some();
    let mut add = |name: &'static str, is_required: bool, description: &str, schema: &Value| {
        let header = json!({"description": description, "required": is_required, "schema": schema});
        shared.headers.insert(name, header);
        response["headers"][name] = json!({"$ref": format!("#/components/headers/{name}")});
    };
    add("X-Request-ID", true, "ID of the request. Quote it when you contact support.", &text);
    if method != "get" && status.starts_with('2') {
        let description = "Position of the event log that includes this change, as an opaque text. Send it with each later request, \
                           until a response has another.";
        add("X-Log-Position", false, description, &text);
    }
    if is_client_api(path) {
        add("Deprecation", false, "Time since which the API version is deprecated, as `@<unix_seconds>` (RFC 9745).", &text);
        add("Sunset", false, "Time at which the API version is switched off, as an HTTP date (RFC 8594).", &text);
    }
    if is_private(path) && !says_itself {
        add("Cache-Control", true, "`no-store`: responses about an account must not be cached.", &text);
    }
    let is_governed = Rule::of(&method.to_uppercase(), path).is_some();
    // If the store of the rate limits was unreachable, nothing was counted.
    if is_governed && status == "503" {
        for (name, description) in RATE_LIMIT_HEADERS {
            let description = format!("{description} Omitted if the rate limiter itself is unavailable.");
            response["headers"][name] = json!({"description": description, "required": false, "schema": integer});
        }
    } else if status == "429" || is_governed {
        RATE_LIMIT_HEADERS.iter().for_each(|(name, description)| add(name, true, description, &integer));
    } else if status == "401" && (is_under(path, "/admin") || is_for_auditors(path)) {
        for (name, description) in RATE_LIMIT_HEADERS {
            let description = format!("{description} Omitted if the request has no token.");
            response["headers"][name] = json!({"description": description, "required": false, "schema": integer});
        }
    }
}

/// Adds the codes of an error status to the description, and an example for each.
fn name_codes(status: u16, codes: &[Code], response: &mut Value) {
    let names: Vec<String> = codes.iter().map(|code| format!("`{}`", code.as_str())).collect();
    if let Some(description) = response["description"].as_str().filter(|_| !names.is_empty()) {
        response["description"] = json!(format!("{description} {}", names.join(", ")));
    }
    let mut examples = json!({});
    for &code in codes {
        let error = match code {
            Code::ValidationFailure => ApiError::invalid("quantity", "must be at least 1"),
            code => ApiError::new(code),
        };
        examples[code.as_str()] = json!({"value": error.body()});
    }
    if status == 429 {
        let message = "Too many requests. Try again in 1 minute.";
        let flat = json!({"error": "rate_limit_exceeded", "message": message, "retry_after": 42});
        examples["rate_limit_exceeded"] = json!({"value": flat});
    }
    if let Some(media_type) = response.pointer_mut(&format!("/content/{}", JSON.replace('/', "~1"))) {
        media_type["examples"] = examples;
    }
}

/// Returns the name of a status, which names its response in the components.
fn reason(status: u16) -> &'static str {
    match status {
        400 => "BadRequest",
        401 => "Unauthorized",
        402 => "PaymentRequired",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        413 => "PayloadTooLarge",
        415 => "UnsupportedMediaType",
        422 => "Unprocessable",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "Unavailable",
        504 => "OutcomeUnknown",
        _ => "Error",
    }
}
