//! Sections of a Markdown document that programs write, between two marker lines. The rest belongs to people.

/// Replaces the content between `<!-- begin: name -->` and `<!-- end: name -->`. Fails if the document lacks a marker.
pub fn replace(document: &str, name: &str, content: &str) -> Result<String, String> {
    let (begin, end) = (format!("<!-- begin: {name} -->\n"), format!("<!-- end: {name} -->\n"));
    let missing = |marker: &str| format!("the document has no line `{}`", marker.trim_end());
    let (before, rest) = document.split_once(&begin).ok_or_else(|| missing(&begin))?;
    let (_, after) = rest.split_once(&end).ok_or_else(|| missing(&end))?;
    Ok(format!("{before}{begin}\n{}\n\n{end}{after}", content.trim()))
}
