//! Categories of the catalogue.

use ledger_events::catalogue::Category;

use super::{Stream, projected};

impl Stream for Category {
    type Index = ();
    type Query<'a> = ();

    const NAME: &'static str = "category";
    const SEQUENCE: Option<&'static str> = Some("category_ids");

    projected!(written);
}
