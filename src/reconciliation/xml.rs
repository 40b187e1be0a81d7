//! XML as statements need it: elements by their local names, one entry of the document at a time.
//!
//! Whatever could make a small file large or refer to another is refused: document types, entities
//! of its own, depth. The size is the caller's to bound.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

/// How deep elements may stand in each other.
const MAX_DEPTH: usize = 40;
/// Elements of one entry: a batch of many payments is one entry.
const MAX_ELEMENTS: usize = 2_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum XmlError {
    #[error("is not well-formed XML")]
    Malformed,
    #[error("must not have a document type or entities of its own")]
    DocumentType,
    #[error("has elements too deep in each other")]
    TooDeep,
    #[error("has an entry of too many elements")]
    TooLarge,
}

/// An element with what stands in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Element {
    /// Without its prefix.
    pub name: String,
    /// Of itself, white space around it left out.
    pub text: String,
    /// Its attribute `Ccy`.
    pub currency: Option<String>,
    pub children: Vec<Element>,
}

impl Element {
    /// The first element on a path of names below it.
    pub fn at(&self, path: &[&str]) -> Option<&Element> {
        path.iter().try_fold(self, |element, name| element.children.iter().find(|child| child.name == *name))
    }

    /// The text of the first element on a path, if there is any.
    pub fn text_at(&self, path: &[&str]) -> Option<&str> {
        self.at(path).map(|element| element.text.as_str()).filter(|text| !text.is_empty())
    }

    pub fn all(&self, name: &str) -> impl Iterator<Item = &Element> {
        self.children.iter().filter(move |child| child.name == name)
    }
}

/// Reads a document whose elements lead along `path`, and hands the elements of these names that stand there over, each
/// with how many elements of the whole path there have been; others are passed by. Returns whether there was any of the
/// whole path.
pub fn each<E: From<XmlError>>(
    text: &str,
    path: &[&str],
    names: &[&str],
    mut found: impl FnMut(usize, Element) -> Result<(), E>,
) -> Result<bool, E> {
    let mut reader = Reader::from_str(text);
    reader.config_mut().expand_empty_elements = true;
    // The names of all open elements, and those of the entry in hand.
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
    fn elements_of_a_path_come_with_what_is_in_them() {
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
    fn what_is_hostile_is_refused() {
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
