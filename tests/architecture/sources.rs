//! The workspace's sources: packages, modules, and what they import.

use std::collections::BTreeMap;
use std::path::Path;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::graph::Graph;
use crate::support::repository;

/// A package of the workspace, with every module of its library or program but those of its unit tests.
#[derive(Debug)]
pub struct Package {
    /// The name in the diagram: the directory's, or none for the service itself, whose modules are drawn.
    name: Option<String>,
    pub modules: Vec<Module>,
}

#[derive(Debug)]
pub struct Module {
    /// Names from the package's root down; empty for the root.
    path: Vec<String>,
    file: String,
    pub text: String,
    /// Targets in the same package by module path, and others by the package's name.
    imports: Vec<Import>,
}

/// Another layer of the diagram that a module imports, with a file of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    pub layer: String,
    pub file: String,
    path: Vec<String>,
}

/// Every package of the workspace.
pub fn crates() -> Vec<Package> {
    let mut roots = vec![(None, "src".to_owned())];
    for name in ["events", "projections"] {
        roots.push((Some(name.to_owned()), format!("{name}/src")));
    }
    roots.push((Some("rewards-ledger-client".to_owned()), "clients/rust/src".to_owned()));
    for name in names_in("crates") {
        roots.push((Some(name.clone()), format!("crates/{name}/src")));
    }
    let named = roots.iter().filter_map(|(name, root)| name.clone().map(|name| (library(root), name)));
    let libraries: BTreeMap<String, String> = named.collect();
    roots.into_iter().map(|(name, root)| Package::read(name, &root, &libraries)).collect()
}

/// The name under which other packages import the package with these sources.
fn library(root: &str) -> String {
    let manifest = read(&format!("{}/Cargo.toml", root.trim_end_matches("/src")));
    let name = manifest.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
    name.unwrap_or_else(|| panic!("{root}: the package has no name")).replace('-', "_")
}

/// The tests and benches of the service, for what is asked of every text.
pub fn tests_and_benches() -> Vec<Module> {
    let files = ["tests", "benches"].into_iter().flat_map(files);
    files.map(|file| Module { path: vec![], text: read(&file), file, imports: vec![] }).collect()
}

impl Package {
    fn read(name: Option<String>, root: &str, libraries: &BTreeMap<String, String>) -> Package {
        let mut modules: Vec<Module> = files(root).into_iter().map(|file| Module::new(root, file)).collect();
        modules.retain(|module| !module.path.iter().any(|name| name == "tests"));
        let known: BTreeMap<Vec<String>, String> =
            modules.iter().map(|module| (module.path.clone(), module.file.clone())).collect();
        for module in &mut modules {
            let parsed = syn::parse_file(&module.text).unwrap_or_else(|error| panic!("{}: {error}", module.file));
            let mut paths = Paths::default();
            paths.visit_file(&parsed);
            let imports = paths.0.iter().filter_map(|path| resolve(path, &module.path, name.as_deref(), &known, libraries));
            module.imports = imports.collect();
        }
        Package { name, modules }
    }

    /// The modules, each under the name of its layer in the diagram.
    pub fn layers(&self) -> impl Iterator<Item = (String, &Module)> {
        let of = |module: &Module| match &self.name {
            Some(name) => Some(name.clone()),
            None => module.path.first().cloned(), // the service's root declares the others
        };
        self.modules.iter().filter_map(move |module| Some((of(module)?, module)))
    }

    /// Modules of one parent that import each other in a circle, with the files that do.
    pub fn circles(&self) -> Vec<String> {
        let mut levels: BTreeMap<&[String], (Graph, Vec<String>)> = BTreeMap::new();
        for module in &self.modules {
            for import in &module.imports {
                let common = module.path.iter().zip(&import.path).take_while(|(a, b)| a == b).count();
                if let (Some(from), Some(to)) = (module.path.get(common), import.path.get(common)) {
                    let (graph, files) = levels.entry(&module.path[..common]).or_default();
                    graph.add(from, to);
                    files.push(format!("{from} -> {to}: {} imports {}", module.file, import.file));
                }
            }
        }
        let mut found = vec![];
        for (parent, (graph, files)) in levels {
            for circle in graph.circles() {
                let is_part = |file: &&String| {
                    let (from, rest) = file.split_once(" -> ").unwrap_or_default();
                    let to = rest.split(':').next().unwrap_or_default();
                    [from, to].iter().all(|name| circle.iter().any(|part| part == name))
                };
                let files: Vec<&str> = files.iter().filter(is_part).map(String::as_str).collect();
                let package = self.name.as_deref().unwrap_or("src");
                found.push(format!("{package}::{}: {circle:?}\n    {}", parent.join("::"), files.join("\n    ")));
            }
        }
        found
    }
}

impl Module {
    fn new(root: &str, file: String) -> Module {
        let path = file.trim_start_matches(root).trim_start_matches('/').trim_end_matches(".rs");
        let mut path: Vec<String> = path.split('/').map(str::to_owned).collect();
        if path.last().is_some_and(|name| name == "mod") || path == ["lib"] || path == ["main"] {
            path.pop();
        }
        Module { path, text: read(&file), file, imports: vec![] }
    }

    pub fn file(&self) -> &str {
        &self.file
    }

    pub fn imports(&self) -> &[Import] {
        &self.imports
    }

    /// The functions with a body, each with its length in lines.
    pub fn functions(&self) -> Vec<(String, usize)> {
        let parsed = syn::parse_file(&self.text).unwrap_or_else(|error| panic!("{}: {error}", self.file));
        let mut functions = Functions::default();
        functions.visit_file(&parsed);
        functions.0
    }
}

/// The module that a path leads to from another one, if it is in this workspace.
fn resolve(
    path: &[String],
    from: &[String],
    package: Option<&str>,
    known: &BTreeMap<Vec<String>, String>,
    libraries: &BTreeMap<String, String>,
) -> Option<Import> {
    let (first, rest) = path.split_first()?;
    let ups = path.iter().take_while(|name| *name == "super").count();
    let mut target = match first.as_str() {
        "crate" => vec![],
        "self" => from.to_vec(),
        "super" => from[..from.len().saturating_sub(ups)].to_vec(),
        _ => {
            // A child, another package of the workspace, or an external crate.
            let child: Vec<String> = from.iter().chain([first]).cloned().collect();
            if !known.contains_key(&child) {
                let other = libraries.get(first)?;
                return Some(Import { layer: other.clone(), file: other.clone(), path: vec![] });
            }
            from.to_vec()
        }
    };
    let rest = match first.as_str() {
        "super" => &path[ups..],
        "crate" | "self" => rest,
        _ => path,
    };
    for name in rest {
        target.push(name.clone());
        if !known.contains_key(&target) {
            target.pop();
            break;
        }
    }
    let file = known.get(&target)?.clone();
    let layer = package.map(str::to_owned).or_else(|| target.first().cloned())?;
    (target != from).then_some(Import { layer, file, path: target })
}

/// Paths that a file names, those in `use` declarations expanded.
#[derive(Default)]
struct Paths(Vec<Vec<String>>);

impl Paths {
    fn add_tree(&mut self, tree: &syn::UseTree, mut before: Vec<String>) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.add_tree(&path.tree, before);
            }
            syn::UseTree::Name(name) => {
                before.push(name.ident.to_string());
                self.0.push(before);
            }
            syn::UseTree::Rename(name) => {
                before.push(name.ident.to_string());
                self.0.push(before);
            }
            syn::UseTree::Glob(_) => self.0.push(before),
            syn::UseTree::Group(group) => group.items.iter().for_each(|item| self.add_tree(item, before.clone())),
        }
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.add_tree(&item.tree, vec![]);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            self.0.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }
}

#[derive(Default)]
struct Functions(Vec<(String, usize)>);

impl Functions {
    fn add(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let lines = block.span().end().line - signature.span().start().line + 1;
        self.0.push((signature.ident.to_string(), lines));
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.add(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.add(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg") && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    })
}

/// Rust files in a directory of the repository and below, sorted.
fn files(directory: &str) -> Vec<String> {
    let mut found = vec![];
    for name in names_in(directory) {
        let path = format!("{directory}/{name}");
        if repository(&path).is_dir() {
            found.extend(files(&path));
        } else if Path::new(&path).extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

fn names_in(directory: &str) -> Vec<String> {
    let entries = std::fs::read_dir(repository(directory)).unwrap_or_else(|error| panic!("{directory}: {error}"));
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn read(file: &str) -> String {
    std::fs::read_to_string(repository(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}
