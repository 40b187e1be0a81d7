//! The matches of a statement as a workbook.

use super::report::WORKBOOK;
use crate::pages::outcome::{PageResult, file};
use crate::pages::site::Site;
use crate::pages::visit::Visit;

/// Fields of the query that are those of the API.
const FILTERS: [&str; 3] = ["status", "days", "amount"];

pub fn add(site: Site) -> Site {
    site.get("/console/bank-statements/:id/matches.xlsx", download)
}

async fn download(visit: Visit) -> PageResult {
    visit.operator()?;
    let id = visit.id("id")?;
    let path = format!("/admin/v1/reconciliation/statements/{id}?{}", visit.query.only(&FILTERS));
    let workbook = visit.bytes(&path, WORKBOOK).await?.into_bytes();
    Ok(file(&format!("matches-{id}.xlsx"), WORKBOOK, workbook))
}
