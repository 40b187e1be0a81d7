//! Outcomes of a page: a response, or the reason why it does not render.

use poem::Response;
use poem::http::{StatusCode, header};

use super::call::Refusal;

/// Outcome of a page that does not render: a refusal of the API, or a redirect to the login.
#[derive(Debug)]
pub enum Stop {
    Refused(Refusal),
    /// Nobody is signed in. The response leads to this login page.
    SignIn(&'static str),
    NotFound,
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Stop {
        Stop::Refused(refusal)
    }
}

pub type PageResult = Result<Response, Stop>;

/// Leads the browser to another page with a GET (303).
pub fn redirect(to: &str) -> Response {
    Response::builder().status(StatusCode::SEE_OTHER).header(header::LOCATION, to).finish()
}

/// Sends a file to save, such as a CSV.
pub fn file(name: &str, content_type: &str, body: impl Into<poem::Body>) -> Response {
    let disposition = format!("attachment; filename=\"{name}\"");
    Response::builder().content_type(content_type).header(header::CONTENT_DISPOSITION, disposition).body(body)
}
