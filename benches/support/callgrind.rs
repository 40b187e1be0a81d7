//! Reads the profiles that Valgrind's callgrind writes.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, Result};

/// Instructions and calls by function.
#[derive(Debug, Default)]
pub struct Profile {
    /// Instructions of each function itself, without the functions that it calls.
    pub functions: BTreeMap<String, u64>,
    /// Number of calls of each function.
    pub called: BTreeMap<String, u64>,
    /// Instructions of each source file, with those that the compiler has inlined elsewhere. Without line tables, no file is known.
    pub files: BTreeMap<String, u64>,
}

impl Profile {
    pub fn instructions(&self) -> u64 {
        self.functions.values().sum()
    }

    /// Returns the instructions of the source files whose paths contain one of these texts. Returns nothing if the program has no
    /// line tables.
    pub fn instructions_in(&self, parts: &[&str]) -> Option<u64> {
        let of = |parts: &[&str]| {
            let found = self.files.iter().filter(|(name, _)| parts.iter().any(|part| name.contains(part)));
            found.map(|(_, instructions)| *instructions).sum::<u64>()
        };
        (of(&["src/ledger/"]) > 0).then(|| of(parts))
    }

    pub fn calls(&self, of: fn(&str) -> bool) -> u64 {
        self.called.iter().filter(|(name, _)| of(name)).map(|(_, calls)| calls).sum()
    }
}

/// Names of a file in callgrind's format. A name is written once, as `(7) name`, and later as `(7)`.
#[derive(Default)]
struct Names<'a>(HashMap<&'a str, &'a str>);

impl<'a> Names<'a> {
    fn read(&mut self, named: &'a str) -> Result<&'a str> {
        let (id, name) = named.split_once(')').context("a name without an id")?;
        match name.trim() {
            "" => self.0.get(id).copied().context("an unknown id"),
            name => {
                self.0.insert(id, name);
                Ok(name)
            }
        }
    }
}

/// Reads a file in callgrind's format.
pub fn parse(text: &str) -> Result<Profile> {
    let (mut functions, mut files) = (Names::default(), Names::default());
    let mut profile = Profile::default();
    let (mut function, mut callee, mut file, mut is_of_call) = (String::new(), String::new(), String::new(), false);
    for line in text.lines() {
        let (key, named) = line.split_once('=').unwrap_or_default();
        if matches!(key, "fn" | "cfn") {
            let name = functions.read(named)?.to_owned();
            if key == "cfn" { callee = name } else { function = name }
        } else if matches!(key, "fl" | "fi" | "fe" | "cfi" | "cfl") {
            let name = files.read(named)?;
            if !key.starts_with('c') {
                file = name.to_owned();
            }
        } else if let Some(calls) = line.strip_prefix("calls=") {
            let calls: u64 = calls.split(' ').next().unwrap_or_default().parse()?;
            *profile.called.entry(callee.clone()).or_default() += calls;
            // The next line has the cost of the function that is called.
            is_of_call = true;
        } else if line.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c)) {
            if !is_of_call && let Some(cost) = line.split(' ').nth(1) {
                let cost = cost.parse::<u64>()?;
                *profile.functions.entry(function.clone()).or_default() += cost;
                *profile.files.entry(file.clone()).or_default() += cost;
            }
            is_of_call = false;
        }
    }
    Ok(profile)
}

/// Whether a function of the allocator returns new memory.
pub fn is_allocation(name: &str) -> bool {
    let allocators = ["malloc", "calloc", "mi_malloc", "mi_malloc_aligned", "mi_zalloc", "mi_zalloc_aligned", "mi_calloc"];
    // Callgrind appends the depth of a recursion, as in `malloc'2`.
    allocators.contains(&name.split('\'').next().unwrap_or(name))
}

/// Returns the crate of a function: the first path segment of its name or of the type that it is implemented for. C has none.
pub fn crate_of(name: &str) -> &str {
    let path = name.trim_start_matches(|c: char| !c.is_alphanumeric() && c != '_');
    let path = ["dyn ", "mut ", "impl "].iter().fold(path, |path, word| path.strip_prefix(word).unwrap_or(path));
    match path.split_once("::") {
        Some((name, _)) if name.chars().all(|c| c.is_alphanumeric() || c == '_') => name,
        _ if path.starts_with("mi_") || path.starts_with("_mi_") => "mimalloc",
        _ if path.starts_with("aws_lc") => "aws-lc",
        _ if path.starts_with("mem") || path.starts_with("__mem") => "libc: copying and comparing memory",
        _ => "other",
    }
}
