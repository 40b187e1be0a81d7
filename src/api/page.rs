//! Pagination: the page of a list that a request asks for.

use super::error::{ApiError, Code};

/// Highest page number accepted. No list has that many pages.
pub const MAX_PAGE: u64 = 1_000_000_000_000;

/// One page of a list: `page` counts from 1, and `limit` is the maximum number of items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    pub page: u64,
    pub limit: u64,
}

impl Page {
    /// Returns the page for the query parameters `page` and `limit`. Both may be absent.
    ///
    /// # Errors
    /// 400 `E_VALIDATION_FAILURE`, naming each parameter that is out of range.
    pub fn of(page: Option<i64>, limit: Option<i64>, default_limit: u64, max_limit: u64) -> Result<Self, ApiError> {
        let page = u64::try_from(page.unwrap_or(1)).unwrap_or(0);
        let limit = limit.map_or(default_limit, |limit| u64::try_from(limit).unwrap_or(0));
        let mut refused = ApiError::new(Code::ValidationFailure);
        let limit_is_good = (1..=max_limit).contains(&limit);
        if !limit_is_good {
            refused = refused.field("limit", format!("must be between 1 and {max_limit}"));
        }
        if !(1..=MAX_PAGE).contains(&page) {
            refused = refused.field("page", format!("must be between 1 and {MAX_PAGE}"));
        }
        if refused.messages.is_some() { Err(refused) } else { Ok(Self { page, limit }) }
    }

    /// Returns the number of items before the page.
    pub fn offset(self) -> u64 {
        (self.page - 1) * self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_defaults_and_bounds() {
        let page = |page, limit| Page::of(page, limit, 20, 100);
        assert_eq!(page(None, None), Ok(Page { page: 1, limit: 20 }));
        assert_eq!(page(Some(3), Some(100)).map(Page::offset), Ok(200));
        for (number, limit, wrong) in [
            (Some(0), None, vec!["page"]),
            (Some(-1), Some(20), vec!["page"]),
            (Some(i64::MAX), Some(100), vec!["page"]),
            (None, Some(0), vec!["limit"]),
            (None, Some(101), vec!["limit"]),
            (None, Some(i64::MIN), vec!["limit"]),
            (Some(0), Some(101), vec!["limit", "page"]),
        ] {
            let error = page(number, limit).unwrap_err();
            assert_eq!(error.code, Code::ValidationFailure);
            let names: Vec<_> = error.messages.unwrap().into_keys().collect();
            assert_eq!(names, wrong, "{number:?} {limit:?}");
        }
    }
}
