//! Runs of `verify` and `rebuild`: their progress, their results, and the start and stop of a verification.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use poem::http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::parts::{is_admin, needs_admin};
use crate::pages::call::Refusal;
use crate::pages::outcome::{PageResult, redirect};
use crate::pages::parts::values::{badge, copyable, counted, facts, grouped, time, time_or_none, words};
use crate::pages::parts::{layout, table};
use crate::pages::site::Site;
use crate::pages::visit::Visit;

/// Path of the runs in the API.
const RUNS: &str = "/admin/v1/audit-runs";

/// A run, as `GET /admin/v1/audit-runs` returns it.
#[derive(Debug, Deserialize)]
struct Run {
    id: i64,
    projection: Option<String>,
    status: String,
    actor_name: Option<String>,
    actor_type: Option<String>,
    host: String,
    started_at: DateTime<Utc>,
    beat_at: DateTime<Utc>,
    ended_at: Option<DateTime<Utc>>,
    stage: Option<String>,
    shard_id: Option<i16>,
    done: Option<i64>,
    total: Option<i64>,
    found: i64,
    summary: Option<String>,
    differences: Vec<String>,
    differences_left_out: i64,
}

impl Run {
    fn name(&self) -> String {
        match &self.projection {
            Some(projection) => format!("Rebuild of {projection}"),
            None => "Verification".to_owned(),
        }
    }

    fn is_running(&self) -> bool {
        self.status == "running"
    }

    /// Returns whether an operator can stop the run. An interrupted one may still work where the database does not hear it.
    fn can_be_stopped(&self) -> bool {
        self.projection.is_none() && self.ended_at.is_none()
    }

    fn starter(&self) -> &str {
        match (&self.actor_name, &self.actor_type) {
            (Some(name), _) => name,
            (None, Some(_)) => "an operator",
            (None, None) => "a command",
        }
    }
}

pub fn add(site: Site) -> Site {
    site.get("/console/audit-runs", list)
        .post("/console/audit-runs", start)
        .get("/console/audit-runs/:id", one)
        .post("/console/audit-runs/:id/stop", stop)
}

async fn list(visit: Visit) -> PageResult {
    visit.operator()?;
    show(&visit, None).await
}

async fn show(visit: &Visit, refusal: Option<&Refusal>) -> PageResult {
    let runs = visit.list::<Run>(&format!("{RUNS}?{}", visit.query.only(&["page"])), "audit_runs").await?;
    let body = html! {
        (layout::live(visit))
        (layout::problem(refusal))
        p {
            "A verification compares every derived row with the log, and the log with its own rules. It runs beside the service, on one "
            "connection and one thread of the node that shows this page."
        }
        @if is_admin(visit) {
            @if runs.items.iter().any(Run::is_running) { p.quiet { "A run is in progress. The next one can start when it has ended." } }
            @else { form.card method="post" action="/console/audit-runs" { button { "Start a verification" } } }
        } @else { (needs_admin("start a verification")) }
        @if runs.items.iter().any(Run::is_running) { p.actions { (reload(visit.path())) } }
        @for run in runs.items.iter().filter(|run| run.is_running()) { div.card { h2 { (link(run)) } (progress(run)) } }
        h2 { "Runs of the last 90 days" }
        @if runs.items.is_empty() { (table::empty("Nothing was verified yet. A verification compares every table with the log.", None)) }
        @else { (rows(&runs.items)) (table::pager(&runs, "/console/audit-runs", &visit.query)) }
        h2 { "Rebuild tables" }
        p {
            "A rebuild derives tables again from the log and swaps them. Only the owner of the tables may do that, so it is a command. "
            "Its progress is shown here."
        }
        ul {
            li { (copyable("rewards-ledger rebuild orders")) " rebuilds one projection." }
            li { (copyable("rewards-ledger rebuild --all")) " rebuilds all of them." }
        }
    };
    let page = layout::page(visit, "Verify and rebuild", &body);
    Ok(match refusal {
        Some(refusal) => layout::refused(page, refusal),
        None => page,
    })
}

async fn start(visit: Visit) -> PageResult {
    visit.operator()?;
    match visit.change::<Value>(Method::POST, RUNS, &json!({})).await {
        Ok(run) => Ok(redirect(&format!("/console/audit-runs/{}?done=verifying", run["id"]))),
        // Another operator was faster.
        Err(refusal) if refusal.code == "E_CONFLICT" => show(&visit, Some(&refusal)).await,
        Err(refusal) => Err(refusal.into()),
    }
}

async fn one(visit: Visit) -> PageResult {
    visit.operator()?;
    let id = visit.id("id")?;
    show_one(&visit, id, None).await
}

async fn stop(visit: Visit) -> PageResult {
    visit.operator()?;
    let id = visit.id("id")?;
    match visit.change::<Value>(Method::DELETE, &format!("{RUNS}/{id}"), &json!({})).await {
        Ok(_) => Ok(redirect(&format!("/console/audit-runs/{id}?done=verification-stopped"))),
        // It has ended meanwhile.
        Err(refusal) if refusal.code == "E_CONFLICT" => show_one(&visit, id, Some(&refusal)).await,
        Err(refusal) => Err(refusal.into()),
    }
}

async fn show_one(visit: &Visit, id: i64, refusal: Option<&Refusal>) -> PageResult {
    let run: Run = visit.get(&format!("{RUNS}/{id}")).await?;
    let path = format!("/console/audit-runs/{id}");
    let body = html! {
        (layout::problem(refusal))
        @if run.is_running() { (layout::live(visit)) }
        (result(&run))
        @if is_admin(visit) && run.can_be_stopped() { (stopping(&run)) }
        (facts(&[
            ("Started", time(run.started_at)),
            ("Started by", html! { (run.starter()) }),
            ("Host", html! { (run.host) }),
            ("Last heartbeat", time(run.beat_at)),
            ("Ended", time_or_none(run.ended_at)),
            ("Differences", html! {
                @if run.differences.is_empty() { (grouped(&run.found.to_string())) }
                @else { a href="#differences" { (grouped(&run.found.to_string())) } }
            }),
        ]))
        @if !run.differences.is_empty() {
            h2 #differences { "Differences" }
            p.quiet {
                "Texts of rows and events are left out here. The command " code { "rewards-ledger verify" } " shows them."
                @if run.differences_left_out > 0 {
                    " These are the first " (run.differences.len()) " differences; " (grouped(&run.differences_left_out.to_string())) " more are left out."
                }
            }
            ul { @for difference in &run.differences { li { code { (difference) } } } }
        }
        p.actions {
            @if run.is_running() { (reload(&path)) }
            a href="/console/audit-runs" { "All runs" }
            a href="/console/log" { "Transparency log" }
        }
    };
    let page = layout::page(visit, &format!("{} {}", run.name(), run.id), &body);
    Ok(match refusal {
        Some(refusal) => layout::refused(page, refusal),
        None => page,
    })
}

/// Renders the form that stops a verification.
fn stopping(run: &Run) -> Markup {
    html! {
        details {
            summary { "Stop the verification" }
            form method="post" action={ "/console/audit-runs/" (run.id) "/stop" } {
                p { "It ends without a result, on whichever node or by whichever command it runs." }
                button.danger { "Stop it" }
            }
        }
    }
}

/// Renders a link for browsers without scripts.
fn reload(path: &str) -> Markup {
    html! { a.button.plain href=(path) data-reload { "Reload" } }
}

/// Renders the progress of a run, or its result.
fn result(run: &Run) -> Markup {
    let summary = run.summary.as_deref().unwrap_or_default();
    html! {
        @match run.status.as_str() {
            "running" => (progress(run)),
            "clean" => p.notice.good role="status" { "Nothing differs. " (summary) },
            "differences" => p.notice.bad role="status" { "Differences were found. " (summary) },
            "failed" => p.notice.bad role="status" { "The run has failed: " (summary) },
            "stopped" => p.notice.wait role="status" { "The verification was stopped before its end: " (summary) "." },
            _ => p.notice.bad role="status" {
                "Interrupted: there was no heartbeat for 30 seconds. The node or command has ended, or has lost the database."
            },
        }
    }
}

/// Renders the stage of a run. A stage whose extent is unknown has a bar without a value.
fn progress(run: &Run) -> Markup {
    html! {
        @match (&run.stage, run.done, run.total) {
            (Some(stage), Some(done), Some(total)) => {
                @let label = format!("{} of shard {}", words(stage), run.shard_id.unwrap_or_default());
                p { (label) ": " (grouped(&done.to_string())) @if total > done { " of " (grouped(&total.to_string())) } }
                @if total > 0 { progress aria-label=(label) value=(done.min(total)) max=(total) {} }
                @else { progress aria-label=(label) {} }
            }
            _ => { p { "The run has begun." } progress aria-label="The run has begun" {} }
        }
    }
}

fn link(run: &Run) -> Markup {
    html! { a href={ "/console/audit-runs/" (run.id) } { (run.name()) " " (run.id) } }
}

fn rows(runs: &[Run]) -> Markup {
    let columns = [
        ("Run", false),
        ("Started", false),
        ("Started by", false),
        ("Host", false),
        ("Ended", false),
        ("Differences", true),
        ("Status", false),
    ];
    let row = |run: &Run| {
        vec![
            link(run),
            time(run.started_at),
            html! { (run.starter()) },
            html! { (run.host) },
            time_or_none(run.ended_at),
            counted(run.found, &format!("/console/audit-runs/{}", run.id)),
            badge(&run.status),
        ]
    };
    table::table("Runs of verify and rebuild", &columns, &runs.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(status: &str) -> Run {
        let run = json!({"id": 7, "projection": null, "status": status, "actor_name": null, "actor_type": null,
            "host": "<b>", "started_at": "2026-01-31T12:00:00Z", "beat_at": "2026-01-31T12:00:01Z", "ended_at": null, "stage": "log",
            "shard_id": 1, "done": 2_000, "total": 3_000, "found": 0, "summary": "<i>", "differences": [], "differences_left_out": 0});
        serde_json::from_value(run).unwrap()
    }

    #[test]
    fn a_run_that_goes_on_shows_how_far_it_is() {
        let markup = result(&run("running")).0;
        assert!(markup.contains("value=\"2000\" max=\"3000\"") && markup.contains("Log of shard 1"), "{markup}");
        let unknown = Run { total: Some(0), ..run("running") };
        assert!(!result(&unknown).0.contains("max="));
    }

    #[test]
    fn a_run_that_has_ended_shows_no_progress() {
        for (status, text) in
            [("clean", "Nothing differs"), ("failed", "&lt;i&gt;"), ("stopped", "stopped"), ("interrupted", "Interrupted")]
        {
            let markup = result(&run(status)).0;
            assert!(markup.contains(text) && !markup.contains("<progress"), "{markup}");
        }
        assert!(rows(&[run("clean")]).0.contains("&lt;b&gt;"));
    }
}
