//! The documents: their links and paths lead to files, and the first ones stay short.

use std::path::Path;

use crate::support::repository;

/// Directories whose paths the documents name.
const ROOTS: [&str; 12] = [
    "src/",
    "events/",
    "projections/",
    "crates/",
    "clients/",
    "tests/",
    "benches/",
    "examples/",
    "docs/",
    "deploy/",
    "migrations/",
    ".ci/",
];
/// Directories whose documents link to others.
const LINKING: [&str; 10] = [
    "",
    "docs/",
    "docs/decisions/",
    "docs/guides/",
    "deploy/",
    "clients/",
    "clients/go/",
    "clients/python/",
    "clients/rust/",
    "clients/typescript/",
];
/// Documents whose paths must exist today, with all of `docs/` and of the crates. Decisions and the changelog name files of
/// their time.
const MAPS: [&str; 7] =
    ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "VERSIONING.md", "deploy/README.md", "deploy/runbook.md"];

/// Returns the documents of [`MAPS`], those in `docs/`, and each crate's README, as paths in the repository.
fn maps() -> Vec<String> {
    let crates = std::fs::read_dir(repository("crates")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let crates = crates.map(|name| format!("crates/{name}/README.md"));
    MAPS.map(str::to_owned).into_iter().chain(documents("docs/")).chain(documents("docs/guides/")).chain(crates).collect()
}

/// Returns every document in a directory, as paths in the repository.
fn documents(directory: &str) -> Vec<String> {
    let names = std::fs::read_dir(repository(directory)).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".md")).map(|name| format!("{directory}{name}")).collect()
}

fn read(document: &str) -> String {
    std::fs::read_to_string(repository(document)).unwrap()
}

/// Returns the targets of a document's links, without anchors.
fn links(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    targets.map(|target| target.split_once('#').map_or(target, |(file, _)| file)).filter(|file| !file.is_empty()).collect()
}

/// Returns the paths that a document names in backticks, with `{a,b}` expanded.
fn paths(text: &str) -> Vec<String> {
    let prose = text.split("```").step_by(2).flat_map(|part| part.split('`').skip(1).step_by(2));
    let named = prose.filter(|code| ROOTS.iter().any(|root| code.starts_with(root)) && !code.contains([' ', '<', '*', '…', '$']));
    named.flat_map(expanded).collect()
}

fn expanded(path: &str) -> Vec<String> {
    match path.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?))) {
        Some((before, (names, after))) => names.split(',').flat_map(|name| expanded(&format!("{before}{name}{after}"))).collect(),
        None => vec![path.to_owned()],
    }
}

#[test]
fn every_link_between_documents_leads_to_a_file() {
    let mut broken = vec![];
    for document in LINKING.into_iter().flat_map(documents) {
        let text = read(&document);
        let directory = Path::new(&document).parent().unwrap();
        let local = links(&text).into_iter().filter(|link| !link.contains("://") && !link.starts_with('/'));
        let lost = local.filter(|link| !repository(directory.join(link).to_str().unwrap()).exists());
        broken.extend(lost.map(|link| format!("{document}: {link}")));
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_path_that_a_map_names_exists() {
    let mut lost = vec![];
    for document in maps() {
        // A path in a crate's README starts at the crate or at the repository.
        let directory = Path::new(&document).parent().unwrap();
        let exists = |path: &String| repository(path).exists() || repository(directory.join(path).to_str().unwrap()).exists();
        let paths = paths(&read(&document)).into_iter().filter(|path| !exists(path));
        lost.extend(paths.map(|path| format!("{document}: {path}")));
    }
    assert!(lost.is_empty(), "{}", lost.join("\n"));
}

#[test]
fn every_test_that_security_and_reliability_name_exists() {
    let mut sources = String::new();
    let mut open = ["src", "tests", "crates"].map(repository).to_vec();
    while let Some(path) = open.pop() {
        match path.is_dir() {
            true => open.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path())),
            false if path.extension().is_some_and(|extension| extension == "rs") => {
                sources.push_str(&std::fs::read_to_string(path).unwrap());
            }
            false => {}
        }
    }
    let (security, reliability) = (read("SECURITY.md"), read("docs/reliability.md"));
    // The name of a test is a sentence.
    let codes = [&security, &reliability].into_iter().flat_map(|text| text.split('`').skip(1).step_by(2));
    let named = codes.filter(|code| code.matches('_').count() > 3);
    let named = named.filter(|code| code.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'));
    let (known, lost): (Vec<&str>, Vec<&str>) = named.partition(|name| sources.contains(&format!("fn {name}(")));
    assert!(lost.is_empty() && known.len() > 20, "{lost:?}");
}

#[test]
fn every_alert_links_to_its_section_of_the_runbook() {
    let (alerts, runbook) = (read("deploy/alerts.yml"), read("deploy/runbook.md"));
    let values =
        |key: &str| alerts.lines().filter_map(|line| line.trim().strip_prefix(key)).map(str::to_owned).collect::<Vec<_>>();
    let names = values("- alert: ");
    let links: Vec<_> = names.iter().map(|name| format!("deploy/runbook.md#{}", name.to_lowercase())).collect();
    assert!(names.len() > 10, "{names:?}");
    assert_eq!(values("runbook_url: "), links);
    let sections: Vec<_> =
        runbook.lines().filter_map(|line| line.strip_prefix("### ")).filter(|title| title.starts_with("Ledger")).collect();
    assert_eq!(sections, names, "sections of deploy/runbook.md and alerts, in the same order");
    let parts = runbook.split("\n### ").filter(|part| part.starts_with("Ledger"));
    let incomplete = parts.filter(|part| !["- **Means:**", "- **Look at:**", "- **Do:**"].iter().all(|item| part.contains(item)));
    assert_eq!(incomplete.count(), 0, "a section lacks what the alert means, what to look at, or what to do");
}

#[test]
fn every_link_to_a_section_leads_to_one() {
    let mut lost = vec![];
    for document in ["deploy/README.md", "deploy/runbook.md"] {
        let text = read(document);
        let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        for (file, anchor) in links.filter_map(|(target, _)| target.split_once('#')).filter(|(file, _)| !file.contains("://")) {
            let target = if file.is_empty() { text.clone() } else { read(&format!("deploy/{file}")) };
            if !anchors(&target).iter().any(|known| known == anchor) {
                lost.push(format!("{document}: {file}#{anchor}"));
            }
        }
    }
    assert!(lost.is_empty(), "{}", lost.join("\n"));
}

/// Returns the anchors of a document's headings.
fn anchors(text: &str) -> Vec<String> {
    let titles = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim().to_lowercase());
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    titles.map(|title| title.chars().filter(kept).collect::<String>().replace(' ', "-")).collect()
}

#[test]
fn the_first_documents_are_short() {
    for (document, most) in [("README.md", 150), ("ARCHITECTURE.md", 250)] {
        let lines = read(document).lines().count();
        assert!(lines <= most, "{document} has {lines} lines, more than {most}");
    }
}

#[test]
fn links_and_paths_are_found() {
    assert_eq!(anchors("# The `log`\ntext\n## Who, and why?"), ["the-log", "who-and-why"]);
    assert_eq!(links("[a](b.md), [c](d.md#e), [f](#g)"), ["b.md", "d.md"]);
    assert_eq!(paths("`src/{a,b}.rs` and `cargo` and `tests/x`"), ["src/a.rs", "src/b.rs", "tests/x"]);
    assert_eq!(paths("```sh\n`src/never.rs`\n```\n`src/c.rs`"), ["src/c.rs"]);
}
