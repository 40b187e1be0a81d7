//! Differential tests: prices, refunds, balances, request signatures and Merkle roots over generated input, computed by this
//! program and by independent implementations in Python (`differential.py`).
//!
//! Each run has another seed. A failure names it; `DIFFERENTIAL_SEED=<seed>` repeats the run.

use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use chrono::DateTime;
use ledger_events::price::{price, refund_due};
use ledger_events::wallet::{self, Direction, Purpose, WalletCommand, WalletEvent, WalletOpened};
use ledger_events::{AccountId, Moment, Money, OrderId, Percent, TransactionId, WalletId};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rewards_ledger::access::request_signature::{canonical_string, sign};
use rust_decimal::Decimal;
use serde_json::{Value, json};
use transparency_log::merkle::{Frontier, leaf_hash};
use uuid::Uuid;

const SCRIPT: &str = include_str!("differential.py");
/// Number of cases of each kind.
const CASES: usize = 3_000;
/// Number of trees. Each has hundreds of leaves.
const TREES: usize = 100;

/// Returns what Python computes for every case, or `None` if there is no Python.
fn by_python(cases: &Value) -> Option<Value> {
    let mut command = Command::new("python3");
    command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            assert!(std::env::var_os("CI").is_none(), "python3 is needed");
            eprintln!("SKIPPED: nothing was compared with Python, for there is none here");
            return None;
        }
        Err(error) => panic!("python3: {error}"),
    };
    // It reads everything before it writes anything.
    child.stdin.take().unwrap().write_all(cases.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "python3");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// Generates cases of a kind, and compares this program's result for each with Python's.
fn compare(kind: &str, count: usize, generate: impl Fn(&mut StdRng) -> Value, compute: impl Fn(&Value) -> Value) {
    let seed = std::env::var("DIFFERENTIAL_SEED").ok().map_or_else(rand::random, |seed| seed.parse().unwrap());
    let mut random = StdRng::seed_from_u64(seed);
    let cases: Vec<Value> = (0..count).map(|_| generate(&mut random)).collect();
    let Some(expected) = by_python(&json!({ kind: cases })) else { return };
    let expected = expected[kind].as_array().unwrap();
    assert_eq!(expected.len(), cases.len());
    for (case, expected) in cases.iter().zip(expected) {
        assert_eq!(&compute(case), expected, "{case} with DIFFERENTIAL_SEED={seed}");
    }
}

/// Draws an amount in cents: mostly a usual one, and sometimes one near the limit.
fn amount(random: &mut StdRng) -> i64 {
    match random.random_range(0..8) {
        0 => random.random_range(999_999_999_999_000_000..=999_999_999_999_999_999),
        1 => random.random_range(0..10),
        _ => random.random_range(1..100_000_000),
    }
}

fn number(case: &Value, field: &str) -> i64 {
    case[field].as_i64().unwrap()
}

fn money(cents: i64) -> Money {
    Money::from_cents(cents).unwrap()
}

fn cents(money: Money) -> i64 {
    i64::try_from((money.decimal() * Decimal::ONE_HUNDRED).trunc().mantissa()).unwrap()
}

#[test]
fn prices_are_those_of_python() {
    let generate = |random: &mut StdRng| {
        let (quantity, discount) = (random.random_range(1..100_000), random.random_range(0..10_000));
        json!({"denomination": amount(random), "quantity": quantity, "discount": discount})
    };
    compare("price", CASES, generate, |case| {
        let discount = Percent::try_from(money(number(case, "discount"))).unwrap();
        let quantity = i32::try_from(number(case, "quantity")).unwrap();
        match price(money(number(case, "denomination")), quantity, discount) {
            Ok(price) => json!([cents(price.face_value), cents(price.discount_amount), cents(price.amount)]),
            Err(_) => Value::Null,
        }
    });
}

#[test]
fn refunds_are_those_of_python() {
    let generate = |random: &mut StdRng| {
        let quantity = random.random_range(1..100_000);
        json!({"amount": amount(random), "quantity": quantity, "delivered": random.random_range(0..=quantity)})
    };
    compare("refund", CASES, generate, |case| {
        let count = |field| i32::try_from(number(case, field)).unwrap();
        json!(cents(refund_due(money(number(case, "amount")), count("delivered"), count("quantity")).unwrap()))
    });
}

#[test]
fn balances_are_those_of_python() {
    const KINDS: [&str; 5] = ["fund", "pay", "refund", "credit", "debit"];
    let generate = |random: &mut StdRng| {
        let movements: Vec<_> = (0..20).map(|_| (KINDS[random.random_range(0..KINDS.len())], amount(random))).collect();
        json!({ "movements": movements })
    };
    compare("wallet", CASES / 10, generate, |case| {
        let movements = case["movements"].as_array().unwrap();
        let movements = movements.iter().map(|movement| (movement[0].as_str().unwrap(), movement[1].as_i64().unwrap()));
        let (balance, accepted) = fold(movements);
        json!([cents(balance), accepted])
    });
}

/// Decides each movement on the wallet that the earlier ones leave. Returns the balance, and which of them were accepted.
fn fold<'a>(movements: impl Iterator<Item = (&'a str, i64)>) -> (Money, Vec<bool>) {
    let at = |version| Moment { position: version, event_id: Uuid::nil(), version, recorded_at: DateTime::UNIX_EPOCH };
    let opened = WalletEvent::from(WalletOpened { account_id: AccountId(1), currency: "EUR".parse().unwrap() });
    let mut state = wallet::evolve(None, WalletId(1), &opened, &at(1)).unwrap();
    let mut accepted = vec![];
    for (version, (kind, cents)) in (2..).zip(movements) {
        let (amount, purpose, reference) = (money(cents), Purpose::Order(OrderId(1)), String::new());
        let adjust = |direction| WalletCommand::Adjust { direction, amount, reason_hash: String::new() };
        let command = match kind {
            "fund" => WalletCommand::Fund { amount, reference, note_hash: None },
            "pay" => WalletCommand::Pay { amount, purpose, reference },
            "refund" => WalletCommand::Refund { amount, purpose, reference },
            "credit" => adjust(Direction::Credit),
            _ => adjust(Direction::Debit),
        };
        let event = wallet::decide(&state, TransactionId(version), command);
        accepted.push(event.is_ok());
        if let Ok(event) = event {
            state = wallet::evolve(Some(state), WalletId(1), &event, &at(version)).unwrap();
        }
    }
    (state.balance, accepted)
}

#[test]
fn request_signatures_are_those_of_python() {
    const METHODS: [&str; 5] = ["GET", "post", "PUT", "Patch", "DELETE"];
    const CHARACTERS: [char; 14] = ['a', 'b', 'A', '=', '&', '-', '%', '+', '/', '.', '~', '0', 'é', '𝄞'];
    let text = |random: &mut StdRng, most: usize| -> String {
        (0..random.random_range(0..most)).map(|_| CHARACTERS[random.random_range(0..CHARACTERS.len())]).collect()
    };
    let generate = |random: &mut StdRng| {
        let body: Vec<u8> = (0..random.random_range(0..40)).map(|_| random.random()).collect();
        json!({
            "method": METHODS[random.random_range(0..METHODS.len())],
            "path": format!("/{}", text(random, 12)),
            "query": text(random, 24),
            "body": BASE64_STANDARD.encode(body),
            "timestamp": random.random_range(0..4_000_000_000_i64),
            "secret": text(random, 90),
        })
    };
    compare("signature", CASES, generate, |case| {
        let text = |field: &str| case[field].as_str().unwrap();
        let body = BASE64_STANDARD.decode(text("body")).unwrap();
        let canonical = canonical_string(text("method"), text("path"), Some(text("query")), &body, number(case, "timestamp"));
        let signature = sign(text("secret"), &canonical);
        json!([canonical, signature])
    });
}

#[test]
fn merkle_roots_are_those_of_python() {
    let generate = |random: &mut StdRng| {
        let leaf = |random: &mut StdRng| -> Vec<u8> { (0..random.random_range(0..20)).map(|_| random.random()).collect() };
        let leaves: Vec<String> = (0..random.random_range(0..600)).map(|_| BASE64_STANDARD.encode(leaf(random))).collect();
        json!({ "leaves": leaves })
    };
    compare("tree", TREES, generate, |case| {
        let mut frontier = Frontier::default();
        for leaf in case["leaves"].as_array().unwrap() {
            frontier.append(leaf_hash(&BASE64_STANDARD.decode(leaf.as_str().unwrap()).unwrap()));
        }
        json!(hex::encode(frontier.root()))
    });
}
