//! Prints the tour: numbered sections of aligned lines, or one JSON object per line.

use std::io;

use owo_colors::OwoColorize;
use serde_json::{Value, json};
use webhook_client::receiver::Received;

use super::statement::DemoStatement;
use crate::cli::escape;
use crate::cli::events::{by_outcome, summary};
use crate::cli::output::{Output, shown};
use crate::ledger::reader::Stored;

#[derive(Debug)]
pub struct Printer {
    output: Output,
    sections: u32,
    is_finished: bool,
}

impl Printer {
    pub fn new(output: Output) -> Printer {
        Printer { output, sections: 0, is_finished: false }
    }

    /// Returns whether the tour has finished.
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }

    pub fn finish(&mut self) {
        self.is_finished = true;
    }

    pub fn section(&mut self, title: &str) -> io::Result<()> {
        self.sections += 1;
        if self.output.json {
            return self.output.json_line(&json!({"kind": "section", "number": self.sections, "title": title}));
        }
        self.output.line(format!("\n{} {}", self.sections.bold().blue(), title.bold()))
    }

    /// Prints a name and its value.
    pub fn fact(&self, name: &str, text: &str) -> io::Result<()> {
        if self.output.json {
            return self.output.json_line(&json!({"kind": "fact", "name": name, "text": text}));
        }
        self.output.line(format!("  {}  {text}", format!("{name:<10}").dimmed()))
    }

    /// Prints text for the user to copy.
    pub fn verbatim(&self, text: &str) -> io::Result<()> {
        if self.output.json {
            return self.output.json_line(&json!({"kind": "text", "text": text}));
        }
        self.output.line(format!("\n{text}"))
    }

    /// Prints a request that got a response: the caller, the method and path, the status, and the result.
    pub fn request(&self, who: &str, what: &str, status: u16, result: &str) -> io::Result<()> {
        if self.output.json {
            return self
                .output
                .json_line(&json!({"kind": "request", "by": who, "request": what, "status": status, "result": result}));
        }
        let status = by_outcome((200..300).contains(&status), &status.to_string());
        self.output.line(format!("  {}  {what:<40}  {status}  {result}", format!("{who:<10}").dimmed()))
    }

    pub fn event(&self, event: &Stored) -> io::Result<()> {
        if self.output.json {
            let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
            return self.output.json_line(&json!({
                "kind": "event", "position": event.position, "stream": event.stream_type, "stream_id": event.stream_id,
                "type": event.event_type, "data": data,
            }));
        }
        let position = format!("{:<4}", event.position);
        let stream = format!("{} {}", event.stream_type, event.stream_id);
        let name = format!("{:<25}", event.event_type);
        let summary = summary(event);
        let stream = if summary.is_empty() { stream } else { format!("{stream:<14}  {}", summary.dimmed()) };
        self.output.line(format!("  {}  {} {} {stream}", "log       ".dimmed(), position.bold(), name.cyan()))
    }

    pub fn webhook(&self, received: &Received, verdict: &Result<(), String>, is_repeated: bool) -> io::Result<()> {
        let event_type = received.event_type().unwrap_or("no event type");
        let body: Value = serde_json::from_slice(&received.body).unwrap_or_default();
        let data = &body["data"];
        let (subject, id) = match event_type.split_once('.') {
            Some(("payout", _)) => ("payout", &data["id"]),
            Some(("wallet", _)) => ("wallet", &data["wallet_id"]),
            _ => ("order", &data["id"]),
        };
        if self.output.json {
            let signature = verdict.as_ref().map_or_else(String::clone, |()| "verified".to_owned());
            return self.output.json_line(&json!({
                "kind": "webhook", "event_type": event_type, "event_id": received.event_id(),
                "order_id": (subject == "order").then_some(id), "status": data["status"], "signature": signature,
                "is_repeated": is_repeated,
            }));
        }
        let signature = match verdict {
            Ok(()) => by_outcome(true, "signature verified"),
            Err(why) => by_outcome(false, why),
        };
        let again = if is_repeated { "  again" } else { "" };
        let subject = format!("{subject} {id}");
        let status = shown(&data["status"]);
        self.output.line(format!(
            "  {}       {} {subject:<14}  {signature}  {}{again}",
            "webhook   ".dimmed(),
            format!("{:<25}", escape::value(event_type)).magenta(),
            status.dimmed()
        ))
    }

    pub fn statement(&self, statement: &DemoStatement) -> io::Result<()> {
        if self.output.json {
            return self.output.json_line(&statement.as_json());
        }
        let head =
            format!("  {:>5}  {:<8}{:<14}{:>10}{:>15}  {}", "id", "type", "category", "amount", "balance after", "reference");
        self.output.line(head.dimmed())?;
        for row in &statement.movements {
            let (id, kind, category) = (row.id, &row.direction, &row.category);
            let (amount, after, reference) =
                (row.amount.to_string(), row.balance_after.to_string(), escape::value(&row.reference));
            self.output.line(format!("  {id:>5}  {kind:<8}{category:<14}{amount:>10}{after:>15}  {reference}"))?;
        }
        self.output.line("")?;
        let wallet = format!("balance of wallet {}", statement.wallet_id);
        for (sign, name, amount) in [
            (" ", "opening balance", statement.opening_balance),
            ("+", "credits", statement.total_credits),
            ("-", "debits", statement.total_debits),
            ("+", "refunds", statement.total_refunds),
            ("=", "closing balance", statement.closing_balance),
            (" ", wallet.as_str(), statement.wallet_balance),
        ] {
            self.output.line(format!("  {sign} {name:<24}{:>11} {}", amount.to_string(), statement.currency))?;
        }
        match statement.check() {
            Ok(()) => self.output.line(format!("\n  {}", by_outcome(true, "reconciled to the cent"))),
            Err(why) => self.output.line(format!("\n  {}", by_outcome(false, &why.to_string()))),
        }
    }
}
