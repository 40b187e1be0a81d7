//! `docs/benchmarks.md`, which the benchmarks write: how they replace a section, that each one has a section, and that
//! the plots are there.

#[path = "../../benches/support/section.rs"]
mod section;

use std::collections::BTreeSet;

use crate::support::repository;

const DOCUMENT: &str =
    "# Figures\n<!-- begin: orders -->\nold\n<!-- end: orders -->\nby hand\n<!-- begin: lists -->\n<!-- end: lists -->\n";

#[test]
fn a_benchmark_replaces_its_section_and_nothing_else() {
    let replaced = section::replace(DOCUMENT, "orders", "\n| new |\n\n").unwrap();
    let expected = DOCUMENT.replace("-->\nold\n<!--", "-->\n\n| new |\n\n<!--");
    assert_eq!(replaced, expected);
    assert_eq!(section::replace(&replaced, "orders", "| new |").unwrap(), expected, "a second run changes nothing");
    let filled = section::replace(&replaced, "lists", "pages").unwrap();
    assert!(filled.contains("| new |") && filled.contains("by hand\n<!-- begin: lists -->\n\npages\n\n<!-- end: lists -->\n"));
}

#[test]
fn a_document_without_a_marker_is_refused() {
    assert_eq!(section::replace(DOCUMENT, "totals", "").unwrap_err(), "the document has no line `<!-- begin: totals -->`");
    let open = DOCUMENT.replace("<!-- end: lists -->\n", "");
    assert_eq!(section::replace(&open, "lists", "").unwrap_err(), "the document has no line `<!-- end: lists -->`");
}

#[test]
fn every_benchmark_has_a_section_and_every_plot_is_shown() {
    let document = std::fs::read_to_string(repository("docs/benchmarks.md")).unwrap();
    let names = |directory: &str, extension: &str| -> BTreeSet<String> {
        let files =
            std::fs::read_dir(repository(directory)).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        files.filter_map(|file| file.strip_suffix(extension).map(str::to_owned)).collect()
    };
    for bench in names("benches", ".rs") {
        section::replace(&document, &bench, "").unwrap_or_else(|error| panic!("docs/benchmarks.md: {error}"));
        assert!(
            document.contains(&format!("`cargo bench --bench {bench}`")),
            "docs/benchmarks.md does not say how to run {bench}"
        );
    }
    let shown = document.split("](benchmarks/").skip(1).filter_map(|rest| rest.split_once(".svg)"));
    let shown: BTreeSet<String> = shown.map(|(name, _)| name.to_owned()).collect();
    assert_eq!(shown, names("docs/benchmarks", ".svg"));
}
