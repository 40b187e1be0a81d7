//! Nearly valid bodies, sent to every operation that reads one. Nothing breaks, and a refused body has no effect.
//! `.ci/fuzz` sends many more of them than a run of the tests.

use std::cell::Cell;

use bank_statements::lines::{Columns, from_csv};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRunner};
use reqwest::RequestBuilder;
use serde_json::{Value, json};

use super::documents;
use crate::api::routes::{self, Things, World};
use crate::support::ledger;
use crate::support::node::Node;

/// JSON that is valid for no field, or that only a careful parser reads correctly.
const HOSTILE: [&str; 30] = [
    "null",
    "true",
    "0",
    "-1",
    "-0",
    "1.0",
    "1e2",
    "1.005",
    "1e400",
    "-1e400",
    "1e-400",
    "0.1e-2147483648",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "99999999999999999999999999999.99",
    "\"\"",
    "\" \"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "\"\u{202e}a\"",
    "\"-1.00\"",
    "\"99999999999999.99\"",
    "\"0000-00-00\"",
    "\"9999-12-31T23:59:60Z\"",
    "\"https://[::1]/\"",
    "[]",
    "[null]",
    "{}",
    "{\"a\":{\"a\":[{}]}}",
];

/// A mutation of a body.
#[derive(Clone, Debug)]
enum Change {
    /// Removes a value.
    Drop(Index),
    /// Replaces a value with this JSON.
    Set(Index, String),
    /// Adds a field to an object.
    Add(Index, String, String),
    /// Repeats a field.
    Repeat(Index, String),
    /// Wraps a value in this many nested arrays.
    Nest(Index, usize),
    /// Inserts bytes into the text.
    Insert(Index, Vec<u8>),
    /// Truncates the text.
    Cut(Index),
    /// Repeats a part of the text.
    Double(Index, Index),
}

fn json_text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(HOSTILE.to_vec()).prop_map(str::to_owned),
        1 => any::<i64>().prop_map(|number| number.to_string()),
        1 => any::<f64>().prop_map(|number| json!(number).to_string()),
        1 => any::<String>().prop_map(|text| json!(text).to_string()),
        1 => (1..5_000_usize).prop_map(|length| json!("x".repeat(length)).to_string()),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<Index>;
    let bytes = prop_oneof![
        "[\\[\\]{}\",:\\\\0-9eE.+ -]{1,4}".prop_map(String::into_bytes),
        "[<>&;/=!?\r\n,\u{0}\u{feff}é]{1,4}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 1..4),
    ];
    prop_oneof![
        2 => at().prop_map(Change::Drop),
        6 => (at(), json_text()).prop_map(|(at, json)| Change::Set(at, json)),
        1 => (at(), "[a-z_]{0,12}", json_text()).prop_map(|(at, name, json)| Change::Add(at, name, json)),
        2 => (at(), json_text()).prop_map(|(at, json)| Change::Repeat(at, json)),
        1 => (at(), 1..300_usize).prop_map(|(at, depth)| Change::Nest(at, depth)),
        2 => (at(), bytes).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        1 => at().prop_map(Change::Cut),
        1 => (at(), at()).prop_map(|(at, end)| Change::Double(at, end)),
    ]
}

/// A body during its mutation. Strings of the form `@n@` are placeholders for JSON, or any other text.
struct Draft {
    json: Value,
    others: Vec<String>,
}

/// Suffix that marks the second occurrence of a field's name.
const AGAIN: &str = "@again";

impl Draft {
    /// Returns a placeholder for this JSON.
    fn other(&mut self, json: &str) -> Value {
        self.others.push(json.to_owned());
        json!(format!("@{}@", self.others.len() - 1))
    }

    /// Returns the location of a value as a JSON pointer.
    fn place(&self, at: Index) -> Option<String> {
        let mut places = vec![];
        walk(String::new(), &self.json, &mut places);
        (!places.is_empty()).then(|| places.swap_remove(at.index(places.len())))
    }

    fn apply(&mut self, change: &Change) {
        let (Change::Drop(at)
        | Change::Set(at, _)
        | Change::Add(at, ..)
        | Change::Repeat(at, _)
        | Change::Nest(at, _)
        | Change::Insert(at, _)
        | Change::Cut(at)
        | Change::Double(at, _)) = change;
        let Some(place) = self.place(*at) else { return };
        let (parent, name) = place.rsplit_once('/').unwrap();
        match change {
            Change::Drop(_) => match self.json.pointer_mut(parent).unwrap() {
                Value::Object(fields) => _ = fields.remove(name),
                Value::Array(items) => _ = items.remove(name.parse().unwrap()),
                _ => {}
            },
            Change::Set(_, json) => {
                let other = self.other(json);
                *self.json.pointer_mut(&place).unwrap() = other;
            }
            Change::Add(_, name, json) => self.insert(parent, name, json),
            Change::Repeat(_, json) => self.insert(parent, &format!("{name}{AGAIN}"), json),
            Change::Nest(_, depth) => {
                let value = self.json.pointer(&place).unwrap().to_string();
                let other = self.other(&format!("{}{value}{}", "[".repeat(*depth), "]".repeat(*depth)));
                *self.json.pointer_mut(&place).unwrap() = other;
            }
            Change::Insert(..) | Change::Cut(_) | Change::Double(..) => {}
        }
    }

    fn insert(&mut self, parent: &str, name: &str, json: &str) {
        let other = self.other(json);
        if let Some(fields) = self.json.pointer_mut(parent).and_then(Value::as_object_mut) {
            fields.insert(name.to_owned(), other);
        }
    }

    fn text(&self) -> String {
        let text = self.json.to_string().replace(&format!("{AGAIN}\""), "\"");
        let put = |text: String, (n, other): (usize, &String)| text.replace(&format!("\"@{n}@\""), other);
        // The last placeholder first, because it may contain an earlier one.
        self.others.iter().enumerate().rev().fold(text, put)
    }
}

/// Collects the locations of all values below this one.
fn walk(place: String, value: &Value, found: &mut Vec<String>) {
    let parts: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(name, part)| (name.clone(), part)).collect(),
        Value::Array(items) => items.iter().enumerate().map(|(n, part)| (n.to_string(), part)).collect(),
        _ => vec![],
    };
    for (name, part) in parts {
        let place = format!("{place}/{name}");
        walk(place.clone(), part, found);
        found.push(place);
    }
}

fn changed_text(text: &str, changes: &[Change]) -> Vec<u8> {
    let mut text = text.as_bytes().to_vec();
    for change in changes {
        match change {
            Change::Insert(at, bytes) => {
                let at = at.index(text.len() + 1);
                text.splice(at..at, bytes.iter().copied());
            }
            Change::Cut(at) => text.truncate(at.index(text.len() + 1)),
            Change::Double(at, end) => {
                let (at, end) = (at.index(text.len() + 1), end.index(text.len() + 1));
                let part = text[at.min(end)..at.max(end)].to_vec();
                text.splice(at..at, part);
            }
            _ => {}
        }
    }
    text
}

/// An operation, and a body that it accepts.
pub struct Operation {
    pub method: String,
    pub path: String,
    content_type: String,
    pub body: Value,
}

impl Operation {
    pub fn is_json(&self) -> bool {
        self.content_type == "application/json"
    }

    fn text(&self, changes: &[Change]) -> Vec<u8> {
        let text = match self.body.as_str().filter(|_| !self.is_json()) {
            Some(text) => text.to_owned(),
            None => {
                let mut draft = Draft { json: self.body.clone(), others: vec![] };
                changes.iter().for_each(|change| draft.apply(change));
                draft.text()
            }
        };
        changed_text(&text, changes)
    }

    /// Builds the request, with the credentials of a caller who may send it.
    pub fn request(&self, node: &Node, world: &World) -> RequestBuilder {
        let Operation { method, path, .. } = self;
        let request = if let Some(path) = path.strip_prefix("/admin/v1") {
            node.by_operator(method, path)
        } else if let Some(path) = path.strip_prefix("/api/v1") {
            node.by(&world.key, method, path)
        } else if path.starts_with("/admin/auth") {
            node.request(method, path).header("Origin", node.url()).header("Cookie", &world.operator.cookie)
        } else if path.starts_with("/client/api") {
            node.request(method, path).header("Origin", node.url()).header("Cookie", &world.users[2].cookie)
        } else {
            node.request(method, path)
        };
        request.header("Content-Type", &self.content_type)
    }
}

const STATEMENT: &str = "date,amount,currency,reference,text\n2026-01-31,1.00,EUR,INV-1,thanks\n2026-01-31,-2.00,EUR,INV-2,\n";

/// Addition of a shard. A shard cannot be removed, and each one costs connections of the node.
const ADDS_SHARDS: &str = "/admin/v1/shards";

/// Returns every POST and PUT with a body that is not an image, but for the addition of a shard, with the document's example
/// adapted to existing resources.
fn operations(things: &Things) -> Vec<Operation> {
    let mut found = vec![];
    for (_, document) in documents() {
        for (route, item) in document["paths"].as_object().unwrap().iter().filter(|(route, _)| *route != ADDS_SHARDS) {
            for (method, operation) in item.as_object().unwrap() {
                let content = operation["requestBody"]["content"].as_object().into_iter().flatten();
                for (content_type, media_type) in content.filter(|(content_type, _)| !content_type.starts_with("image/")) {
                    let mut body = media_type["example"].clone();
                    for (field, value) in body.as_object_mut().into_iter().flatten().filter(|(_, value)| value.is_i64()) {
                        let thing = field.strip_suffix("_id").map(|name| format!("{name}s").replace("ys", "ies"));
                        let id = thing.and_then(|thing| things.get(&*thing));
                        id.into_iter().for_each(|id| *value = json!(id));
                    }
                    let (method, path) = (method.to_uppercase(), routes::path(route, things));
                    found.push(Operation { method, path, content_type: content_type.clone(), body });
                }
            }
        }
    }
    found
}

/// Starts a node with one resource of each kind, and returns it with the operations.
pub async fn stage() -> (Node, World, Vec<Operation>) {
    let node = Node::sandbox().await;
    let mut world = routes::world(&node).await;
    let imported = node.by_operator("POST", "/reconciliation/statements").header("Content-Type", "text/csv").body(STATEMENT);
    let statement = node.send(imported).await.data(201);
    let category = node.operator("POST", "/categories", json!({"name": "Cards"})).await.data(201);
    let fund = format!("/wallets/{}/fund", world.things["wallets"]);
    let funding = node.operator("POST", &fund, json!({"amount": "1.00", "reference": "INV-1"})).await.data(201);
    let id = |value: &Value| value["id"].as_i64().unwrap();
    // An account that may be suspended, other than the caller's.
    let other = node.account("Other").await;
    world.things.extend([
        ("statements", id(&statement)),
        ("lines", 1),
        ("transactions", id(&funding)),
        ("categories", id(&category)),
        ("to_products", ledger::product(&node.ledger, "Successor").await.0),
        ("log", 1),
        ("accounts", other.account_id),
    ]);
    let operations = operations(&world.things);
    (node, world, operations)
}

#[test]
fn a_nearly_valid_body_breaks_nothing_and_a_refused_one_has_no_effect() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (node, world, operations) = runtime.block_on(stage());
    assert!(operations.len() > 30, "{}", operations.len());
    let send = |operation: &Operation, body: Vec<u8>| {
        runtime.block_on(async {
            let answer = node.send(operation.request(&node, &world).body(body)).await;
            (answer, node.head().await)
        })
    };
    for operation in operations.iter().filter(|operation| operation.is_json()) {
        let (answer, _) = send(operation, operation.text(&[]));
        let Operation { method, path, body, .. } = operation;
        // No made-up code of a second factor is right.
        if path.starts_with("/admin/auth/two-factor/") {
            continue;
        }
        assert!(answer.status < 500 && answer.status != 400, "{method} {path} takes {body}: {}", answer.text);
    }
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { Config::default().cases } else { 500 };
    let mut runner = TestRunner::new(Config { cases, max_shrink_iters: 500, ..Config::with_source_file(file!()) });
    let head = Cell::new(runtime.block_on(node.head()));
    let bodies = (any::<Index>(), prop::collection::vec(change(), 1..4));
    let outcome = runner.run(&bodies, |(operation, changes)| {
        let operation = operation.get(&operations);
        let body = operation.text(&changes);
        let (answer, after) = send(operation, body.clone());
        let before = head.replace(after);
        let what = format!("{} {} {}", operation.method, operation.path, body.escape_ascii());
        prop_assert!(answer.status < 500, "{}: {}", what, answer.text);
        prop_assert!(answer.status < 400 || before == after, "{} was refused but changed the log: {}", what, answer.text);
        Ok(())
    });
    outcome.unwrap();
}

proptest! {
    /// For any content, parsing a bank's CSV gives lines or an error, and never panics.
    #[test]
    fn no_statement_panics(changes in prop::collection::vec(change(), 1..6), text in any::<String>()) {
        let _ = from_csv(&String::from_utf8_lossy(&changed_text(STATEMENT, &changes)), &Columns::default(), |_| true);
        let _ = from_csv(&text, &Columns::default(), |_| true);
    }
}
