//! Problems that the readers of a request body find, each at the path of its field.

use std::borrow::Cow;

use super::error::Messages;

/// Result of reading a value.
pub type Read<T> = Result<T, Problems>;

/// Problems with a value or its parts, each with a path relative to the value.
#[derive(Debug, Default)]
pub struct Problems(Vec<(String, Cow<'static, str>)>);

impl Problems {
    /// Maximum number of problems in a response. Without it, a bad upload would report one or more per row.
    const MAX: usize = 50;

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= Self::MAX
    }

    pub(super) fn has(&self, path: &str) -> bool {
        let inside = |at: &str| at.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['[', '.']));
        self.0.iter().any(|(at, _)| inside(at))
    }

    pub(super) fn add(&mut self, path: &str, what: impl Into<Cow<'static, str>>) {
        if !self.is_full() {
            // A field name can be as long as the body. The response must not be.
            self.0.push((path.chars().take(100).collect(), what.into()));
        }
    }

    pub(super) fn extend(&mut self, more: Problems) {
        for (path, what) in more.0 {
            self.add(&path, what);
        }
    }

    /// Returns the problems with `place` prepended to their paths.
    pub(super) fn under(mut self, place: &str) -> Self {
        for (path, _) in &mut self.0 {
            path.insert_str(0, place);
        }
        self
    }

    pub(super) fn into_messages(self) -> Messages {
        let mut messages = Messages::new();
        for (path, what) in self.0 {
            messages.entry(path).or_default().push(what.into_owned());
        }
        messages
    }
}

impl<T: Into<Cow<'static, str>>> From<T> for Problems {
    fn from(what: T) -> Self {
        Self(vec![(String::new(), what.into())])
    }
}
