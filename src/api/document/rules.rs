//! Rules for request bodies beyond the type of each field: combinations of fields, and values from a list.

use serde_json::{Value, json};

use crate::api::reference;

/// Adds the rules for the schema with this name, if there are any. All of them concern operators' requests.
pub fn add(name: &str, schema: &mut Value) {
    let absent = json!({"type": "null"});
    match name {
        "ChangeOperator" | "ChangeProduct" | "ChangeUser" => schema["minProperties"] = json!(1),
        "OpenWallet" => schema["properties"]["currency"]["enum"] = json!(reference::currencies_of_wallets()),
        "SettlePayout" => {
            schema["anyOf"] =
                json!([{"properties": {"status": {"const": "FAILED"}}}, {"properties": {"failure_reason": absent}}]);
        }
        "StartReplay" => {
            let (missed, time, position) = (json!({"const": "missed"}), json!({"type": "string"}), json!({"type": "integer"}));
            schema["anyOf"] = json!([
                {"properties": {"since": time, "from_position": absent}, "required": ["since"]},
                {"properties": {"since": absent, "from_position": position}, "required": ["from_position"]},
                {"properties": {"since": absent, "from_position": absent, "kind": missed}},
            ]);
        }
        _ => {}
    }
}
