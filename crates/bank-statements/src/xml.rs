//! XML reader for bank statements: returns elements by their local names, one entry of the document at a time.
//!
//! Rejects everything that could expand a small file or refer to another one: document types, custom entities and deep
//! nesting. The caller limits the size.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

/// Deepest nesting of elements.
const MAX_DEPTH: usize = 40;
/// Largest number of elements in an entry. A batch of many payments is a single entry.
const MAX_ELEMENTS: usize = 2_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum XmlError {
    /// The text is not XML.
    #[error("is not well-formed XML")]
    Malformed,
    /// The document could expand, or refer to another one.
    #[error("must not have a document type or custom entities")]
    DocumentType,
    /// Elements are nested deeper than 40 levels.
    #[error("has elements that are nested too deep")]
    TooDeep,
    /// An entry has more than two million elements.
    #[error("has an entry with too many elements")]
    TooLarge,
}

/// An element with its text and children.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Element {
    /// Local name, without the namespace prefix.
    pub name: String,
    /// Text directly in the element, without surrounding white space.
    pub text: String,
    /// Value of the attribute `Ccy`.
    pub currency: Option<String>,
    pub children: Vec<Element>,
}

impl Element {
    /// Returns the first element at a path of names below this one.
    pub fn at(&self, path: &[&str]) -> Option<&Element> {
        path.iter().try_fold(self, |element, name| element.children.iter().find(|child| child.name == *name))
    }

    /// Returns the text of the first element at a path, or none if it is empty.
    pub fn text_at(&self, path: &[&str]) -> Option<&str> {
        self.at(path).map(|element| element.text.as_str()).filter(|text| !text.is_empty())
    }

    pub fn all(&self, name: &str) -> impl Iterator<Item = &Element> {
        self.children.iter().filter(move |child| child.name == name)
    }
}

/// Reads a document and finds the elements at `path`. Calls `found` for each of their children with one of these names,
/// together with the number of elements at `path` so far. Skips all other elements. Returns whether any element at `path`
/// exists.
pub fn each<E: From<XmlError>>(
    text: &str,
    path: &[&str],
    names: &[&str],
    mut found: impl FnMut(usize, Element) -> Result<(), E>,
) -> Result<bool, E> {
    let mut reader = Reader::from_str(text);
    reader.config_mut().expand_empty_elements = true;
    // Names of all open elements, and the open elements of the current entry.
    let (mut open, mut entry): (Vec<String>, Vec<Element>) = (vec![], vec![]);
    let (mut elements, mut parents) = (0, 0);
    loop {
        match reader.read_event().map_err(|_| XmlError::Malformed)? {
            Event::Start(start) => {
                if open.len() >= MAX_DEPTH {
                    return Err(XmlError::TooDeep.into());
                }
                open.push(start.local_name().as_ref().to_owned());
                let is_on_path = open.iter().zip(path).all(|(name, wanted)| name == wanted);
                parents += usize::from(is_on_path && open.len() == path.len());
                let begins =
                    is_on_path && open.len() == path.len() + 1 && open.last().is_some_and(|n| names.contains(&n.as_str()));
                if begins || !entry.is_empty() {
                    elements = if begins { 1 } else { elements + 1 };
                    if elements > MAX_ELEMENTS {
                        return Err(XmlError::TooLarge.into());
                    }
                    entry.push(element(&start)?);
                }
            }
            Event::End(_) => {
                open.pop();
                if let Some(mut ended) = entry.pop() {
                    ended.text = ended.text.trim().to_owned();
                    match entry.last_mut() {
                        Some(parent) => parent.children.push(ended),
                        None => found(parents, ended)?,
                    }
                }
            }
            Event::Text(text) => append(&mut entry, &text.xml10_content()),
            Event::CData(text) => append(&mut entry, &text.xml10_content()),
            Event::GeneralRef(reference) => {
                let character = match reference.resolve_char_ref().map_err(|_| XmlError::Malformed)? {
                    Some(character) => character,
                    None => match &*reference.xml10_content() {
                        "amp" => '&',
                        "lt" => '<',
                        "gt" => '>',
                        "apos" => '\'',
                        "quot" => '"',
                        _ => return Err(XmlError::DocumentType.into()),
                    },
                };
                append(&mut entry, character.encode_utf8(&mut [0; 4]));
            }
            Event::DocType(_) => return Err(XmlError::DocumentType.into()),
            Event::Eof if open.is_empty() => return Ok(parents > 0),
            Event::Eof => return Err(XmlError::Malformed.into()),
            Event::Empty(_) | Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
        }
    }
}

fn element(start: &BytesStart<'_>) -> Result<Element, XmlError> {
    let currency = start.try_get_attribute("Ccy").map_err(|_| XmlError::Malformed)?;
    Ok(Element {
        name: start.local_name().as_ref().to_owned(),
        currency: currency.map(|attribute| attribute.value.into_owned()),
        ..Element::default()
    })
}

fn append(entry: &mut [Element], text: &str) {
    if let Some(element) = entry.last_mut() {
        element.text.push_str(text);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn read(text: &str) -> Result<(Vec<Element>, bool), XmlError> {
        let mut found = vec![];
        let is_there = each(text, &["a", "b"], &["c"], |_, element| {
            found.push(element);
            Ok::<_, XmlError>(())
        })?;
        Ok((found, is_there))
    }

    #[test]
    fn elements_at_a_path_include_their_content() {
        let text = r#"<?xml version="1.0"?><x:a xmlns:x="urn:x"><b><c><Amt Ccy="EUR"> 1.00 </Amt><t>a &amp; b &#228;</t></c><d/><c/></b></x:a>"#;
        let (found, is_there) = read(text).unwrap();
        assert!(is_there);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].text_at(&["Amt"]), found[0].at(&["Amt"]).unwrap().currency.as_deref()), (Some("1.00"), Some("EUR")));
        assert_eq!(found[0].text_at(&["t"]), Some("a & b ä"));
        assert_eq!(read("<a><b></b></a>").unwrap(), (vec![], true));
        assert_eq!(read("<html><b/></html>").unwrap(), (vec![], false));
    }

    #[test]
    fn hostile_documents_are_refused() {
        let bomb = r#"<!DOCTYPE a [<!ENTITY x "xxxxxxxx"><!ENTITY y "&x;&x;">]><a><b><c>&y;</c></b></a>"#;
        let outside = r#"<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>"#;
        let deep = format!("{}{}", "<a>".repeat(100), "</a>".repeat(100));
        for (text, error) in [
            (bomb, XmlError::DocumentType),
            (outside, XmlError::DocumentType),
            ("<a><b><c>&x;</c></b></a>", XmlError::DocumentType),
            (&deep, XmlError::TooDeep),
            ("<a><b><c></b></a>", XmlError::Malformed),
            ("<a><b>", XmlError::Malformed),
            ("<a", XmlError::Malformed),
        ] {
            assert_eq!(read(text), Err(error), "{text}");
        }
    }
}
