//! Forms that the pages offer: each one to the roles that may send it.

use std::collections::{BTreeMap, BTreeSet};

use super::actions::{Action, Who, table};
use super::crawl::post_forms;
use super::every_page::route_of;

/// Forms that no link leads to: the answer of another form offers them, or a state in which no furnished thing is. A viewer may
/// check a bulk order, but is not asked to.
const OF_ANSWERS: [&str; 16] = [
    "/portal/orders",
    "/portal/orders/bulk",
    "/portal/orders/bulk/place",
    "/portal/orders/bulk/results.csv",
    "/portal/webhooks/{off}/replays",
    "/portal/account/sessions/{sessions of a viewer}/end",
    "/portal/account/two-factor/confirm",
    "/portal/account/two-factor/disable",
    "/console/audit-runs/{a run}/stop",
    "/console/approvals/{own approval}/withdraw",
    "/console/replays",
    "/console/operations/shards/{a shard}/drain",
    "/console/operators/{operators}/two-factor",
    "/console/account/two-factor/confirm",
    "/console/account/two-factor/remove",
    "/console/account/sessions/{sessions of an auditor}/end",
];

/// Checks that these pages, which a person of this role reads, offer no form that the role may not send. `role` is the place of
/// the role among those of its kind.
fn offers_only_what_the_role_may(pages: &BTreeMap<String, String>, role: usize) -> BTreeSet<&'static str> {
    let rows: BTreeMap<String, Action> = table().into_iter().map(|action| (action.path.to_owned(), action)).collect();
    let paths: BTreeSet<String> = rows.keys().cloned().collect();
    let mut offered = BTreeSet::new();
    for (page, text) in pages {
        for form in post_forms(text) {
            let row = &rows[route_of(&paths, &form.action).unwrap_or_else(|| panic!("{page}: {} is no action", form.action))];
            let may = match row.who {
                Who::Anyone => true,
                Who::User(least) | Who::Operator(least) => role >= least,
            };
            assert!(may, "{page} offers {} to the role {role}", row.path);
            offered.insert(row.path);
        }
    }
    offered
}

/// Checks the pages of the three roles of one kind, from the lowest to the highest: each form is offered to the lowest role that
/// may send it, and to no lower one.
pub fn are_right(pages: &[BTreeMap<String, String>], is_own: impl Fn(Who) -> Option<usize>) {
    let offered: Vec<_> = pages.iter().enumerate().map(|(role, pages)| offers_only_what_the_role_may(pages, role)).collect();
    let own = table().into_iter().filter_map(|action| Some((action.path, is_own(action.who)?)));
    let (found, hidden): (Vec<_>, Vec<_>) = own.partition(|(path, least)| offered[*least].contains(path));
    let hidden: Vec<_> = hidden.into_iter().filter(|(path, _)| !OF_ANSWERS.contains(path)).collect();
    assert_eq!(hidden, Vec::<(&str, usize)>::new(), "no page offers these forms to the lowest role that may send them");
    let listed: Vec<_> = found.into_iter().filter(|(path, _)| OF_ANSWERS.contains(path)).collect();
    assert_eq!(listed, Vec::<(&str, usize)>::new(), "pages offer these forms: drop them from the list");
}
