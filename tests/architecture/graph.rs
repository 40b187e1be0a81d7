//! Directed graphs of names.

use std::collections::{BTreeMap, BTreeSet};

/// A directed graph; an edge means "imports".
#[derive(Debug, Default)]
pub struct Graph {
    edges: BTreeMap<String, BTreeSet<String>>,
}

impl Graph {
    pub fn from_arrows<'a>(arrows: impl IntoIterator<Item = (&'a str, &'a str)>) -> Graph {
        let mut graph = Graph::default();
        for (from, to) in arrows {
            graph.add(from, to);
        }
        graph
    }

    pub fn add(&mut self, from: &str, to: &str) {
        self.edges.entry(to.to_owned()).or_default();
        self.edges.entry(from.to_owned()).or_default().insert(to.to_owned());
    }

    pub fn nodes(&self) -> impl Iterator<Item = &String> {
        self.edges.keys()
    }

    pub fn contains(&self, node: &str) -> bool {
        self.edges.contains_key(node)
    }

    /// Returns whether a path of one or more edges leads from one node to another.
    pub fn reaches(&self, from: &str, to: &str) -> bool {
        self.reachable(from).contains(to)
    }

    /// Groups of nodes that reach each other, each group and all of them sorted.
    pub fn circles(&self) -> Vec<Vec<String>> {
        let reachable: BTreeMap<&String, BTreeSet<&str>> = self.edges.keys().map(|node| (node, self.reachable(node))).collect();
        let mut circles: Vec<Vec<String>> = vec![];
        for (node, reached) in &reachable {
            if reached.contains(node.as_str()) && !circles.iter().flatten().any(|known| known == *node) {
                let together = reached.iter().filter(|other| reachable[&(**other).to_owned()].contains(node.as_str()));
                circles.push(together.map(|other| (*other).to_owned()).collect());
            }
        }
        circles
    }

    fn reachable<'a>(&'a self, from: &'a str) -> BTreeSet<&'a str> {
        let mut reached = BTreeSet::new();
        let mut open: Vec<&str> = vec![from];
        while let Some(node) = open.pop() {
            let next = self.edges.get(node).into_iter().flatten().map(String::as_str);
            open.extend(next.filter(|next| reached.insert(*next)));
        }
        reached
    }
}

/// The Mermaid flowchart under a heading of a document: lines of the form `a & b["label"] --> c & d`.
pub fn drawn(document: &str, heading: &str) -> Graph {
    let section = document.split_once(heading).expect("the heading").1;
    let chart = section.split_once("```mermaid").expect("a diagram").1.split_once("```").expect("its end").0;
    let names = |side: &str| -> Vec<String> {
        side.split('&').map(|name| name.split(['[', '(']).next().unwrap_or_default().trim().to_owned()).collect()
    };
    let mut graph = Graph::default();
    for (from, to) in chart.lines().filter_map(|line| line.split_once("-->")) {
        for from in names(from) {
            for to in names(to) {
                graph.add(&from, &to);
            }
        }
    }
    graph
}
