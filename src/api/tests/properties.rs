//! Properties of reading arbitrary bodies: nothing panics, and no value changes.

use proptest::prelude::*;
use rust_decimal::Decimal;
use serde_json::{Value, json};

use super::everything::{Everything, field, read};
use crate::api::error::Code;
use crate::api::fields::{Fields, FromFields, parse};
use crate::api::readers::{integer, json_object};
use crate::api::scalars::JsonObject;

/// Generates JSON values of every type. Some of their names are known to the reader.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        Just(Value::from("2026-01-31")),
        Just(Value::from("100.00")),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        let name = prop_oneof![
            ".{0,4}",
            prop::sample::select(vec![
                "id",
                "denomination",
                "amount",
                "name",
                "note",
                "active",
                "kind",
                "events",
                "vouchers",
                "metadata",
                "day",
                "at",
                "url",
                "card_number",
                "pin",
            ])
            .prop_map(str::to_owned),
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name, inner, 0..6).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse::<Everything>(&bytes);
    }

    #[test]
    fn no_near_json_panics(text in r#"[\[\]{}",:\\0-9eE.+\-truefalsn ud0]{0,60}"#) {
        let refused = read(&text).unwrap_err();
        let json = serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok();
        prop_assert_eq!(refused.code == Code::MalformedJson, !json, "{}", text);
    }

    #[test]
    fn no_json_panics(value in any_json()) {
        if let Err(error) = read(&value.to_string()) {
            prop_assert_eq!(error.code, Code::ValidationFailure);
            prop_assert!(!error.messages.unwrap().is_empty());
        }
    }

    #[test]
    fn canonical_json_keeps_the_value_and_is_stable(value in any_json()) {
        let body = json!({"id": 1, "metadata": {"any": value}}).to_string();
        #[derive(Default)]
        struct Free(JsonObject);
        impl FromFields for Free {
            fn from_fields(fields: &mut Fields<'_>) -> Self {
                let _: i64 = fields.required("id", integer(1..=1));
                Self(fields.required("metadata", json_object(1 << 20)))
            }
        }
        // Only text with NUL is refused.
        let Ok(Free(once)) = parse(body.as_bytes()) else {
            prop_assert!(body.contains("\\u0000"));
            return Ok(());
        };
        let same: Value = serde_json::from_str(&once.0).unwrap();
        let sent: Value = serde_json::from_str(&body).unwrap();
        prop_assert_eq!(&same, &sent["metadata"]);
        let Free(twice) = parse(format!("{{\"id\":1,\"metadata\":{}}}", once.0).as_bytes()).unwrap();
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn decimals_are_exact(units in any::<i64>(), scale in 0u32..=2) {
        let exact = Decimal::new(units, scale);
        let read = field("amount", &exact.to_string()).unwrap().amount.unwrap();
        prop_assert_eq!(read.0, exact);
        let read = field("amount", &format!("\"{exact}\"")).unwrap().amount.unwrap();
        prop_assert_eq!(read.0, exact);
    }
}
