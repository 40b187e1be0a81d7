//! The structure that ARCHITECTURE.md draws, held against the sources. Modules import only along the arrows and in no
//! circle. Functions and files are short, and doc comments open with a noun phrase or a verb.

mod benchmarks;
mod features;
mod graph;
mod sources;

use std::collections::BTreeSet;

use graph::Graph;
use sources::{Module, crates};

use super::support::repository;

/// Longest function, in lines from its signature to its closing brace.
const MAX_FUNCTION: usize = 70;
/// Longest file, in lines.
const MAX_FILE: usize = 450;
/// Words that open a clause rather than a sentence. A doc comment opens with a noun phrase or a verb.
const OPENERS: [&str; 8] = ["What ", "Who ", "Whose ", "Which ", "How ", "Of ", "The same ", "Where "];

/// Functions that may be longer, as `file: name`.
const LONG_FUNCTIONS: [&str; 0] = [];
/// Files that may be longer: they are generated.
const LONG_FILES: [&str; 2] = ["clients/rust/src/models.rs", "clients/rust/src/operations.rs"];

#[test]
fn imports_follow_the_arrows_of_the_diagram() {
    let document = std::fs::read_to_string(repository("ARCHITECTURE.md")).unwrap();
    let drawn = graph::drawn(&document, "## Layers");
    assert_eq!(drawn.circles(), Vec::<Vec<String>>::new(), "the diagram itself has a circle");
    let mut wrong = vec![];
    let mut found = BTreeSet::new();
    for (layer, module) in crates().iter().flat_map(|package| package.layers()) {
        found.insert(layer.clone());
        for import in module.imports() {
            if import.layer != layer && !drawn.reaches(&layer, &import.layer) {
                wrong.push(format!("{layer} -> {}: {} imports {}", import.layer, module.file(), import.file));
            }
        }
    }
    assert!(wrong.is_empty(), "no arrow of ARCHITECTURE.md leads there:\n{}", wrong.join("\n"));
    let undrawn: Vec<&String> = found.iter().filter(|layer| !drawn.contains(layer)).collect();
    assert!(undrawn.is_empty(), "ARCHITECTURE.md does not draw {undrawn:?}");
    let gone: Vec<&String> = drawn.nodes().filter(|layer| !found.contains(*layer)).collect();
    assert!(gone.is_empty(), "ARCHITECTURE.md draws {gone:?}, which no longer exist");
}

#[test]
fn modules_that_stand_side_by_side_do_not_import_each_other_in_a_circle() {
    let circles: Vec<String> = crates().iter().flat_map(|package| package.circles()).collect();
    assert!(circles.is_empty(), "{}", circles.join("\n"));
}

#[test]
fn functions_and_files_are_short() {
    let mut long = vec![];
    for package in crates() {
        for module in &package.modules {
            let file = module.file();
            let lines = module.text.lines().count();
            if lines > MAX_FILE && !LONG_FILES.contains(&file) {
                long.push(format!("{file} has {lines} lines, more than {MAX_FILE}"));
            }
            for (name, lines) in module.functions() {
                if lines > MAX_FUNCTION && !LONG_FUNCTIONS.contains(&format!("{file}: {name}").as_str()) {
                    long.push(format!("{file}: {name} has {lines} lines, more than {MAX_FUNCTION}"));
                }
            }
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn doc_comments_open_with_a_noun_phrase_or_a_verb() {
    let mut wrong = vec![];
    let everything = crates().into_iter().flat_map(|package| package.modules).chain(sources::tests_and_benches());
    for module in everything {
        wrong.extend(openers(&module).into_iter().map(|(line, text)| format!("{}:{line}: {text}", module.file())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// First lines of doc comments that open with one of [`OPENERS`], with their line numbers.
fn openers(module: &Module) -> Vec<(usize, String)> {
    let doc = |line: &str| {
        let line = line.trim_start();
        line.strip_prefix("///").or(line.strip_prefix("//!")).map(|text| text.trim_start().to_owned())
    };
    let mut last: Option<String> = None;
    let mut found = vec![];
    for (number, line) in module.text.lines().enumerate() {
        let text = doc(line);
        let begins = last.as_ref().is_none_or(|last| last.is_empty());
        if let Some(text) = text.as_ref().filter(|text| begins && OPENERS.iter().any(|opener| text.starts_with(opener))) {
            found.push((number + 1, text.clone()));
        }
        last = text;
    }
    found
}

#[test]
fn a_circle_and_a_missing_arrow_are_found() {
    let graph = Graph::from_arrows([("a", "b"), ("b", "c"), ("c", "b"), ("d", "a")]);
    assert_eq!(graph.circles(), [["b", "c"]]);
    assert!(graph.reaches("d", "c") && !graph.reaches("c", "a"));
    let drawn = graph::drawn(
        "# X\n## Layers\n```mermaid\nflowchart TD\n  api[\"the API\"] & cli --> ledger & events\n```\n",
        "## Layers",
    );
    assert!(drawn.reaches("cli", "events") && drawn.reaches("api", "ledger") && !drawn.reaches("ledger", "events"));
}

#[test]
fn pages_know_no_table_and_no_writer() {
    let others = ["sqlx", "PgPool", "ledger_database", "ledger_projections", "crate::ledger::", "crate::ledger;"];
    let pages = crates().into_iter().flat_map(|package| package.modules);
    let pages: Vec<Module> = pages.filter(|module| module.file().starts_with("src/pages/")).collect();
    assert!(pages.len() > 50, "the pages are elsewhere");
    let named: Vec<String> = pages
        .iter()
        .flat_map(|module| {
            others.iter().filter(|name| module.text.contains(**name)).map(|name| format!("{}: {name}", module.file()))
        })
        .collect();
    assert!(named.is_empty(), "a page reads and changes through the API alone: {named:?}");
    let imports = pages.iter().flat_map(|module| module.imports().iter().map(move |import| (module.file(), import)));
    let imports: Vec<_> = imports.filter(|(_, import)| ["database", "ledger", "projections"].contains(&&*import.layer)).collect();
    assert!(imports.is_empty(), "{imports:?}");
}

#[test]
fn projections_do_not_read_the_log() {
    let is_log = |name: &str| matches!(name.trim_end_matches(|c: char| !c.is_alphanumeric()), "events" | "public.events");
    let projections = crates().into_iter().flat_map(|package| package.modules);
    let mut reading = vec![];
    for module in projections.filter(|module| module.file().starts_with("projections/")) {
        let words: Vec<&str> = module.text.split_whitespace().collect();
        let reads = words.windows(2).any(|pair| matches!(pair[0], "FROM" | "JOIN") && is_log(pair[1]));
        let calls = ["order_moves(", "order_changes("].iter().any(|function| module.text.contains(function));
        if reads || calls {
            reading.push(module.file().to_owned());
        }
    }
    assert!(reading.is_empty(), "the ledger's reader hands them their events: {reading:?}");
}
