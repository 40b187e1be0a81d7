//! Fields into which people type: each one is stored as a hostile text, or takes no free text.

use std::collections::{BTreeMap, BTreeSet};

use super::actions::{Stage, table};
use super::crawl::post_forms;
use super::every_page::route_of;
use super::furnished::{OF_BOTH, OF_CONSOLE, OF_PORTAL, hostile};

/// Hostile texts that no page shows: the values of headers may be secrets of the receiver.
const UNSHOWN: [&str; 1] = ["header"];

/// Fields of forms, with the name of the hostile text that the furnished node stores in them.
const STORED: [(&str, &str, &str); 43] = [
    ("/portal/orders/bulk", "lines", "reference"),
    ("/portal/orders/{orders}/cancel", "reason", "cancellation"),
    ("/portal/payouts", "client_reference", "payout"),
    ("/portal/beneficiaries", "name", "beneficiary"),
    ("/portal/beneficiaries", "bank_code", "bank"),
    ("/portal/webhooks", "name", "webhook"),
    ("/portal/webhooks", "url", "url"),
    ("/portal/webhooks", "headers", "header"),
    ("/portal/webhooks/{webhooks}", "name", "webhook"),
    ("/portal/webhooks/{webhooks}", "url", "url"),
    ("/portal/webhooks/{webhooks}", "headers", "header"),
    ("/portal/api-keys", "name", "key"),
    ("/portal/team/invitations", "email", "invitation"),
    ("/console/products", "name", "product"),
    ("/console/products", "brand", "brand"),
    ("/console/products", "description", "description"),
    ("/console/products", "terms", "terms"),
    ("/console/products/{products}/edit", "name", "product"),
    ("/console/products/{products}/edit", "brand", "brand"),
    ("/console/products/{products}/edit", "description", "description"),
    ("/console/products/{products}/edit", "terms", "terms"),
    ("/console/products/{products}/vouchers", "supplier_reference", "invoice"),
    ("/console/products/{products}/vouchers/void", "vouchers", "VCH 4"),
    ("/console/products/{products}/vouchers/void", "reason", "void"),
    ("/console/products/{products}/vouchers/expiry", "vouchers", "VCH 4"),
    ("/console/products/{products}/vouchers/transfer", "vouchers", "VCH 5"),
    ("/console/products/{products}/vouchers/transfer", "reason", "transfer"),
    ("/console/products/{products}/supplier", "sku", "sku"),
    ("/console/categories", "name", "category"),
    ("/console/wallets/{wallets}/fund", "reference", "funding"),
    ("/console/wallets/{wallets}/fund", "note", "funding note"),
    ("/console/wallets/{wallets}/adjust", "reason", "adjustment"),
    ("/console/payouts/{another payout}/failed", "failure_reason", "failure"),
    ("/console/approvals/{another approval}/reject", "reason", "rejection"),
    ("/console/bank-statements", "account", "BANKACCOUNT"),
    ("/console/bank-statements/{bank-statements}/lines/{lines}/decide", "reason", "decision"),
    ("/console/bank-statements/{bank-statements}/lines/{lines}/revoke", "reason", "revocation"),
    ("/console/orders/{waiting}/cancel", "reason", "cancellation"),
    ("/console/operators", "email", "operator"),
    ("/console/operator-tokens", "name", "token"),
    ("/console/accounts", "name", "account"),
    ("/console/accounts/{accounts}/credentials", "name", "key"),
    ("/console/accounts/{accounts}/users", "email", "email"),
];

/// Fields that refuse free text: numbers, amounts, codes, and names of columns.
const NOT_FREE: [(&str, &str); 42] = [
    ("/portal/wallets/{wallets}/notice", "below"),
    ("/portal/webhooks/{off}/replays/count", "since"),
    ("/console/replays/count", "webhook_id"),
    ("/console/replays/count", "since"),
    ("/console/replays/count", "per_second"),
    ("/portal/payouts", "amount"),
    ("/portal/beneficiaries", "country"),
    ("/portal/beneficiaries", "currency"),
    ("/portal/beneficiaries", "account_number"),
    ("/portal/api-keys", "expires_at"),
    ("/portal/api-keys", "allowed_networks"),
    ("/console/products", "country"),
    ("/console/products", "currency"),
    ("/console/products", "denominations"),
    ("/console/products", "min_denomination"),
    ("/console/products", "max_denomination"),
    ("/console/products/{products}/edit", "country"),
    ("/console/products/{products}/edit", "denominations"),
    ("/console/products/{products}/edit", "min_denomination"),
    ("/console/products/{products}/edit", "max_denomination"),
    ("/console/products/{products}/vouchers", "cost"),
    ("/console/products/{products}/vouchers/transfer", "to_product_id"),
    ("/console/products/{products}/supplier", "supplier"),
    ("/console/products/{products}/discounts", "discount"),
    ("/console/wallets/{wallets}/fund", "amount"),
    ("/console/wallets/{wallets}/adjust", "amount"),
    ("/console/bank-statements", "date_column"),
    ("/console/bank-statements", "date_format"),
    ("/console/bank-statements", "amount_column"),
    ("/console/bank-statements", "currency_column"),
    ("/console/bank-statements", "reference_column"),
    ("/console/bank-statements", "direction_column"),
    ("/console/bank-statements", "text_column"),
    ("/console/bank-statements", "account_column"),
    ("/console/bank-statements", "currency"),
    ("/console/bank-statements/{bank-statements}/lines/{lines}/decide", "number"),
    ("/console/log/proof", "receipt"),
    ("/console/accounts/{accounts}/wallets", "currency"),
    ("/console/accounts/{accounts}/discounts", "discount"),
    ("/console/accounts/{accounts}/discounts", "product_id"),
    ("/console/accounts/{accounts}/discounts", "category_id"),
    ("/console/accounts/{accounts}/credentials", "allowed_networks"),
];

/// Fields that count only together with other values, by the name of the field.
///
/// The columns of the direction and of the message are optional: a name that the file does not have counts as none, and is not
/// stored. So the form is refused for its date format, and shows the name again.
const ONLY_WITH: [(&str, &[(&str, &str)]); 5] = [
    ("min_denomination", &[("denomination_type", "RANGE"), ("max_denomination", "50")]),
    ("max_denomination", &[("denomination_type", "RANGE"), ("min_denomination", "5")]),
    ("number", &[("decision", "FUNDING")]),
    ("direction_column", &[("date_format", NO_FORMAT)]),
    ("text_column", &[("date_format", NO_FORMAT)]),
];
const NO_FORMAT: &str = "no format";

/// Checks that every field for text of these pages has a row.
pub fn are_known(pages: &BTreeMap<String, String>) {
    let paths: BTreeSet<String> = table().into_iter().map(|action| action.path.to_owned()).collect();
    let is_known = |path: &str, name: &str| {
        STORED.iter().any(|(stored, field, _)| (*stored, *field) == (path, name)) || NOT_FREE.contains(&(path, name))
    };
    let mut unknown = BTreeSet::new();
    for form in pages.values().flat_map(|page| post_forms(page)) {
        let path = route_of(&paths, &form.action).unwrap();
        unknown.extend(form.texts().into_iter().filter(|name| !is_known(path, name)).map(|name| (path.clone(), name)));
    }
    assert_eq!(
        unknown,
        BTreeSet::new(),
        "store a hostile text in each of these fields in furnished.rs, or say that it takes none"
    );
}

#[test]
fn each_stored_text_has_a_name() {
    let names = || OF_BOTH.iter().chain(&OF_PORTAL).chain(&OF_CONSOLE).chain(&UNSHOWN);
    let unnamed: Vec<_> = STORED.iter().filter(|(_, _, name)| !names().any(|known| known == name)).collect();
    assert!(unnamed.is_empty(), "{unnamed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_to_a_form_shows_what_was_typed_escaped() {
    let (stage, actions) = (Stage::set().await, table());
    for (path, field, name) in STORED {
        let action = actions.iter().find(|action| action.path == path).unwrap_or_else(|| panic!("{path} is no form"));
        let (callers, least) = stage.callers(action);
        let form = stage.form_with(action, &[(field, &hostile(name))]).header("Cookie", callers[least]);
        let answer = form.header("Origin", stage.node().url()).send().await.unwrap();
        let (status, page) = (answer.status().as_u16(), answer.text().await.unwrap());
        assert!(status < 500, "{path}, {field}: {status}");
        assert!(!page.to_lowercase().contains("<img data-injected"), "{path}, {field}: {page}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_that_take_no_free_text_refuse_it_and_show_it_escaped() {
    let (stage, actions) = (Stage::set().await, table());
    let mut wrong = vec![];
    for (path, field) in NOT_FREE {
        let action = actions.iter().find(|action| action.path == path).unwrap_or_else(|| panic!("{path} is no form"));
        let (callers, least) = stage.callers(action);
        let text = hostile(field);
        let others = ONLY_WITH.iter().find(|(name, _)| *name == field).map_or(&[][..], |(_, others)| *others);
        let changed = [&[(field, &*text)][..], others].concat();
        let form = stage.form_with(action, &changed).header("Cookie", callers[least]).header("Origin", stage.node().url());
        let answer = form.send().await.unwrap();
        let (status, page) = (answer.status().as_u16(), answer.text().await.unwrap());
        let shows_the_form = page.contains(&format!(" name=\"{field}\"")) && page.contains(&format!("{field}&quot;"));
        // A form that is refused for another field names the problem there.
        let refused = others.iter().find(|(_, value)| *value == NO_FORMAT).map_or(field, |(other, _)| *other);
        let is_named = page.contains(&format!("id=\"{refused}-problem\""));
        // Some forms send codes in capitals.
        if !(400..500).contains(&status) || !shows_the_form || !is_named || page.to_lowercase().contains("<img") {
            wrong.push(format!("{path}, {field}: {status}, shows the form: {shows_the_form}, names the problem: {is_named}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
