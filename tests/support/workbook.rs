//! Workbooks (Office Open XML) that the service renders, read back as texts.

use std::io::{Cursor, Read};

/// A sheet with its cells as texts, row by row. Empty cells are empty texts.
#[derive(Debug)]
pub struct Sheet {
    pub name: String,
    pub rows: Vec<Vec<String>>,
}

impl Sheet {
    /// Returns the cells of one column below its heading.
    pub fn column(&self, heading: &str) -> Vec<&str> {
        let column = self.rows[0].iter().position(|cell| cell == heading);
        let column = column.unwrap_or_else(|| panic!("{} has no column {heading}: {:?}", self.name, self.rows[0]));
        self.rows[1..].iter().map(|row| row.get(column).map_or("", |cell| cell)).collect()
    }
}

/// Returns the texts between two others.
fn between<'a>(text: &'a str, opening: &'a str, closing: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(opening).skip(1).filter_map(move |rest| Some(rest.split_once(closing)?.0))
}

fn decoded(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

/// Returns the value of an attribute at the beginning of an element.
fn attribute<'a>(element: &'a str, name: &'a str) -> Option<&'a str> {
    let tag = element.split('>').next()?;
    tag.split_once(&*format!("{name}=\""))?.1.split('"').next()
}

/// Returns the number of the column of a cell such as `AB7`, from 0.
fn column(cell: &str) -> usize {
    let letters = cell.bytes().take_while(u8::is_ascii_uppercase);
    letters.fold(0, |number, letter| number * 26 + usize::from(letter - b'A') + 1) - 1
}

/// Reads the sheets of a workbook, in their order. No cell may be a formula.
pub fn sheets(bytes: &[u8]) -> Vec<Sheet> {
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).unwrap();
    let mut part = |name: &str| {
        let mut text = String::new();
        archive.by_name(name).unwrap().read_to_string(&mut text).unwrap();
        text
    };
    let strings = part("xl/sharedStrings.xml");
    let text = |item| between(item, "<t", "</t>").map(|text| decoded(text.split_once('>').unwrap().1)).collect::<String>();
    let strings: Vec<String> = between(&strings, "<si>", "</si>").map(text).collect();
    let book = part("xl/workbook.xml");
    let names = between(&book, "<sheet ", "/>").map(|sheet| decoded(attribute(sheet, "name").unwrap()));
    let read = |(number, name): (usize, String)| {
        let content = part(&format!("xl/worksheets/sheet{number}.xml"));
        assert!(!content.contains("<f>"), "{name} has a formula");
        let mut rows = vec![];
        for row in between(&content, "<row ", "</row>") {
            let mut cells = vec![];
            for cell in between(row, "<c ", "</c>") {
                let value = between(cell, "<v>", "</v>").next().unwrap();
                let value = match attribute(cell, " t") {
                    Some("s") => strings[value.parse::<usize>().unwrap()].clone(),
                    _ => value.to_owned(),
                };
                cells.resize(column(attribute(cell, "r").unwrap()), String::new());
                cells.push(value);
            }
            rows.push(cells);
        }
        Sheet { name, rows }
    };
    (1..).zip(names).map(read).collect()
}
