//! Sign-ins of the portal and of the console: the cookies of a session, and the page to which a login leads.

use poem::Response;
use poem::http::{HeaderValue, StatusCode, header};
use serde_json::Value;

use super::call::{Answered, Refusal};
use super::form::Form;
use super::outcome::{PageResult, redirect};
use super::parts::layout;
use super::visit::Visit;

/// Logs in through an operation of the API, and passes its cookies on. The page that a form shows again after a refusal is
/// `again`.
pub async fn log_in(
    visit: Visit,
    operation: &'static str,
    body: &Value,
    start: &'static str,
    again: impl FnOnce(&Visit, &Form, &Refusal) -> Response,
) -> PageResult {
    let (filled, to) = (visit.form.clone(), target(start, &visit.form));
    let (response, visit) = visit.forward(operation, body).await;
    let cookies = cookies(&response);
    match Answered::read(response).await {
        Ok(_) => Ok(with_cookies(redirect(&to), cookies)),
        Err(refusal) if refusal.is_correctable() || refusal.status == StatusCode::UNAUTHORIZED => {
            Ok(layout::refused(again(&visit, &filled, &refusal), &refusal))
        }
        Err(refusal) => Err(refusal.into()),
    }
}

/// Logs out through an operation of the API, and deletes the cookies.
pub async fn log_out(visit: Visit, operation: &'static str, then: &str) -> PageResult {
    let (response, _) = visit.forward(operation, &Value::Object(serde_json::Map::new())).await;
    let cookies = cookies(&response);
    Answered::read(response).await?;
    Ok(with_cookies(redirect(then), cookies))
}

fn cookies(response: &Response) -> Vec<HeaderValue> {
    response.headers().get_all(header::SET_COOKIE).iter().cloned().collect()
}

fn with_cookies(mut response: Response, cookies: Vec<HeaderValue>) -> Response {
    cookies.into_iter().for_each(|cookie| _ = response.headers_mut().append(header::SET_COOKIE, cookie));
    response
}

/// Returns the page below `start` that a form or query asks to be led to. Anything else leads to `start`.
pub fn target(start: &str, form: &Form) -> String {
    let to = form.value("to");
    let is_own = to.strip_prefix(start).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']));
    if is_own && !to.contains(['\\', '\r', '\n']) { to.to_owned() } else { start.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_only_to_pages_of_its_own() {
        for (to, expected) in [
            ("/portal/orders?status=DELAYED", "/portal/orders?status=DELAYED"),
            ("/portal", "/portal"),
            ("https://elsewhere.example/portal/", "/portal"),
            ("//elsewhere.example/", "/portal"),
            ("/portal/\\elsewhere.example", "/portal"),
            ("/portalx", "/portal"),
            ("/console", "/portal"),
            ("/api/v1/orders", "/portal"),
            ("", "/portal"),
        ] {
            let form = Form::from_pairs(vec![("to".to_owned(), to.to_owned())]);
            assert_eq!(target("/portal", &form), expected, "{to}");
        }
    }
}
