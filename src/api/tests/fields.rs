//! Tests of each body reader, and of reporting all errors at once.

use rust_decimal::Decimal;
use serde_json::json;

use super::everything::{Everything, Kind, field, read};
use crate::api::error::{ApiError, Code};
use crate::api::fields::parse;

/// Returns path and message of the only problem of a body.
fn problem(result: Result<Everything, ApiError>) -> (String, String) {
    let error = result.unwrap_err();
    assert_eq!(error.code, Code::ValidationFailure);
    let messages = error.messages.unwrap();
    assert_eq!(messages.len(), 1, "{messages:?}");
    let (path, what) = messages.into_iter().next().unwrap();
    (path, what.join("; "))
}

fn said(name: &str, json: &str) -> String {
    let (path, what) = problem(field(name, json));
    assert_eq!(path, name, "{json}");
    what
}

#[test]
fn text_that_is_not_json_is_malformed() {
    let deep = format!(r#"{{"id":1,"metadata":{}{}}}"#, "[".repeat(40), "]".repeat(40));
    let bottomless = "[".repeat(100_000);
    for body in [
        "",
        " ",
        "{",
        "{\"id\":1",
        "{\"id\":1}}",
        "{\"id\":1} x",
        "{'id':1}",
        "{\"id\":01}",
        "[1",
        "{\"id\":NaN}",
        "{\"id\":1,}",
        "nul",
        "{\"id\": \"\\x\"}",
        "\u{feff}{\"id\":1}",
        &deep,
        &bottomless,
    ] {
        let error = read(body).unwrap_err();
        assert_eq!(error, ApiError::new(Code::MalformedJson), "{:.60}", body);
    }
    let error = parse::<Everything>(b"{\"id\":\"\xff\"}").unwrap_err();
    assert_eq!(error.code, Code::MalformedJson);
}

#[test]
fn json_that_is_not_an_object_is_refused_as_such() {
    for body in ["[]", "1", "\"a\"", "null", "true", " [1, 2] "] {
        assert_eq!(problem(read(body)), ("body".into(), "must be a JSON object".into()));
    }
}

#[test]
fn all_problems_are_reported_at_once() {
    let body = r#"{"id":0,"name":7,"vouchers":[{"card_number":"a"},{"pin":"","x":1},3],"extra":null,"id2":1}"#;
    let messages = read(body).unwrap_err().messages.unwrap();
    assert_eq!(
        json!(messages),
        json!({
            "id": ["must be between 1 and 1000"],
            "name": ["must be a string"],
            "vouchers[1].card_number": ["is required"],
            "vouchers[1].pin": ["must not be empty"],
            "vouchers[1].x": ["is not a known field"],
            "vouchers[2]": ["must be an object"],
            "extra": ["is not a known field"],
            "id2": ["is not a known field"],
        })
    );
}

#[test]
fn the_number_of_reported_problems_is_limited() {
    let names: Vec<String> = (0..9000).map(|n| format!("\"{}{n}\":1", "x".repeat(500))).collect();
    let messages = read(&format!("{{{}}}", names.join(","))).unwrap_err().messages.unwrap();
    assert!(messages.keys().all(|name| name.len() <= 100), "a long name is cut");
    let names: Vec<String> = (0..9000).map(|n| format!("\"x{n}\":1")).collect();
    let messages = read(&format!("{{{}}}", names.join(","))).unwrap_err().messages.unwrap();
    assert_eq!(messages.len(), 50);
}

#[test]
fn a_field_given_twice_is_refused_at_any_depth() {
    let twice = "is given more than once".to_owned();
    assert_eq!(problem(read(r#"{"id":1,"id":1}"#)), ("id".into(), twice.clone()));
    assert_eq!(problem(read(r#"{"id":1,"\u0069d":1,"id":1}"#)), ("id".into(), twice.clone()));
    assert_eq!(
        problem(field("vouchers", r#"[{"card_number":"a","card_number":"b"}]"#)),
        ("vouchers[0].card_number".into(), twice.clone())
    );
    assert_eq!(problem(field("metadata", r#"{"a":[1,{"b":1,"b":1}]}"#)), ("metadata.a[1].b".into(), twice));
}

#[test]
fn absent_and_null_differ_only_where_asked() {
    assert_eq!(problem(read("{}")), ("id".into(), "is required".into()));
    assert_eq!(problem(read(r#"{"id":null}"#)), ("id".into(), "is required".into()));
    assert_eq!(read(r#"{"id":1}"#).unwrap(), Everything { id: 1, ..Default::default() });
    assert_eq!(field("name", "null").unwrap().name, None);
    assert_eq!(field("url", "null").unwrap().url, Some(None));
    assert_eq!(field("url", "\"u\"").unwrap().url, Some(Some("u".into())));
}

#[test]
fn integers_are_whole_and_in_range() {
    let id = |json| read(&format!(r#"{{"id":{json}}}"#));
    for (json, exact) in [("1000", 1000), ("1.0", 1), ("1e2", 100), ("1E0", 1), ("2.50e1", 25), ("100e-2", 1)] {
        assert_eq!(id(json).unwrap().id, exact, "{json}");
    }
    for json in ["\"1\"", "true", "[]", "{}", "1.5", "1e-1", "1.0000001"] {
        assert_eq!(problem(id(json)).1, "must be an integer", "{json}");
    }
    for json in [
        "0",
        "-1",
        "-0",
        "0.0",
        "0e999999999",
        "1001",
        "1e4",
        "1e400000000",
        "1e9999999999",
        "9223372036854775808",
        "-99999999999999999999999999",
        "-999999999999999999999999999999999999999999",
    ] {
        assert_eq!(problem(id(json)).1, "must be between 1 and 1000", "{json}");
    }
}

#[test]
fn numbers_are_exact_decimals() {
    let number = |json| field("denomination", json).map(|all| all.denomination.unwrap().0);
    for (json, exact) in [
        ("25", "25"),
        ("25.5", "25.5"),
        ("25.50", "25.50"),
        ("0.1", "0.1"),
        ("1e2", "100"),
        ("1E+2", "100"),
        ("2.5e1", "25"),
        ("255e-1", "25.5"),
        ("0", "0"),
        ("-0", "0"),
        ("9007199254740993", "9007199254740993"),
        ("1e28", "10000000000000000000000000000"),
    ] {
        assert_eq!(number(json).unwrap(), exact.parse::<Decimal>().unwrap(), "{json}");
    }
    for json in ["0.001", "1e-3", "25.125", "1.000", "1e-999999999"] {
        assert_eq!(said("denomination", json), "must have at most 2 decimals", "{json}");
    }
    let huge = "9".repeat(100_000);
    for json in ["-0.01", "1e29", "1e999999999", "1e99999999999999", "-1e400", "1e-99999999999", &huge] {
        assert_eq!(said("denomination", json), "must be at least 0", "{json:.30}");
    }
    for json in ["\"25\"", "true", "[1]", "{}"] {
        assert_eq!(said("denomination", json), "must be a number", "{json}");
    }
}

#[test]
fn money_is_a_string_or_a_number() {
    let amount = |json| field("amount", json).unwrap().amount.unwrap().0;
    for (json, exact) in [("\"100.00\"", "100"), ("\"-1.5\"", "-1.5"), ("100.25", "100.25"), ("1e2", "100")] {
        assert_eq!(amount(json), exact.parse::<Decimal>().unwrap(), "{json}");
    }
    for json in ["\"\"", "\"1e2\"", "\"+1\"", "\" 1\"", "\"1,00\"", "\".5\"", "\"1.\"", "\"١\"", "true", "[]", "\"NaN\""] {
        assert_eq!(said("amount", json), "must be an amount such as \"100.00\"", "{json}");
    }
    assert_eq!(said("amount", "\"1.005\""), "must have at most 2 decimals");
    assert_eq!(said("amount", &format!("\"{}\"", "9".repeat(40))), format!("must be at least {}", Decimal::MIN));
}

#[test]
fn strings_are_counted_in_characters_and_clean() {
    assert_eq!(field("name", "\"äöü€😀\"").unwrap().name.unwrap(), "äöü€😀");
    assert_eq!(field("name", "\"\\ud83d\\ude00\"").unwrap().name.unwrap(), "😀");
    assert_eq!(field("note", "\"a\\nb\"").unwrap().note.unwrap(), "a\nb");
    assert_eq!(field("note", "\"\"").unwrap().note.unwrap(), "");
    assert_eq!(said("name", "\"äöü€😀x\""), "must be 1 to 5 characters long, is 6");
    assert_eq!(said("name", "\"\""), "must not be empty");
    assert_eq!(said("name", "\"a\\nb\""), "must not contain control characters");
    assert_eq!(said("name", "\"a\\u007f\""), "must not contain control characters");
    assert_eq!(said("note", "\"a\\u0000\""), "must not contain the character NUL");
    assert_eq!(said("note", "\"\\ud83d\""), "is not valid Unicode");
    assert_eq!(said("note", "\"\\ude00\\ud83d\""), "is not valid Unicode");
    assert_eq!(said("note", "7"), "must be a string");
}

#[test]
fn booleans_enums_dates_and_times_are_checked() {
    assert_eq!(field("active", "true").unwrap().active, Some(true));
    assert_eq!(said("active", "1"), "must be true or false");
    assert_eq!(said("active", "\"true\""), "must be true or false");
    assert_eq!(field("kind", "\"DEBIT\"").unwrap().kind, Some(Kind::Debit));
    assert_eq!(said("kind", "\"debit\""), "must be one of CREDIT, DEBIT");
    assert_eq!(field("day", "\"2024-02-29\"").unwrap().day.unwrap().to_string(), "2024-02-29");
    for json in ["\"2023-02-29\"", "\"2024-2-29\"", "\"2024-02-29T00:00:00Z\"", "\"+024-02-29\"", "20240229"] {
        assert_eq!(said("day", json), "must be a date such as 2026-01-31", "{json}");
    }
    let at = field("at", "\"2026-01-31T12:00:00+02:00\"").unwrap().at.unwrap();
    assert_eq!(at.to_rfc3339(), "2026-01-31T10:00:00+00:00");
    for json in ["\"2026-01-31\"", "\"2026-01-31T12:00:00\"", "\"x\"", "1"] {
        assert_eq!(said("at", json), "must be a time such as 2026-01-31T12:00:00Z", "{json}");
    }
}

#[test]
fn lists_have_bounds_and_paths() {
    assert_eq!(field("events", r#"["a", "b"]"#).unwrap().events.unwrap(), ["a", "b"]);
    assert_eq!(said("events", "[]"), "must have 1 to 3 entries, has 0");
    assert_eq!(said("events", r#"["a","b","c","d"]"#), "must have 1 to 3 entries, has 4");
    assert_eq!(said("events", "{}"), "must be a list");
    assert_eq!(problem(field("events", r#"["a",null]"#)), ("events[1]".into(), "must be a string".into()));
}

#[test]
fn free_form_json_is_stored_canonically() {
    let metadata = |json| field("metadata", json).unwrap().metadata.unwrap().0;
    assert_eq!(metadata(r#"{ "b" : [1.10, 1e2, {}], "a":"\u0041\n", "é":null }"#), r#"{"a":"A\n","b":[1.10,1e2,{}],"é":null}"#);
    assert_eq!(metadata("{}"), "{}");
    assert_eq!(said("metadata", "[]"), "must be an object");
    assert_eq!(said("metadata", &format!(r#"{{"a":"{}"}}"#, "x".repeat(33))), "must be at most 40 bytes of JSON");
    assert!(field("metadata", &format!(r#"{{"a":"{}"}}"#, "x".repeat(32))).is_ok());
    for (json, path, what) in [
        (r#"{"a":["\u0000"]}"#, "metadata.a[0]", "must not contain the character NUL"),
        (r#"{"\u0000":1}"#, "metadata", "must not contain the character NUL"),
        (r#"{"a":"\ud800"}"#, "metadata.a", "is not valid Unicode"),
        (r#"{"\ud800":1}"#, "metadata", "is not valid Unicode"),
        (r#"{"a":1e400}"#, "metadata.a", "is a number out of range"),
    ] {
        assert_eq!(problem(field("metadata", json)), (path.into(), what.into()), "{json}");
    }
}
