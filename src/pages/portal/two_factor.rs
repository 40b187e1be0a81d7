//! The second factor of the signed-in user. An owner who must have one reaches these pages only.

use maud::{Markup, PreEscaped, html};
use poem::Response;
use poem::http::Method;
use qrcode::QrCode;
use qrcode::render::svg;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::pages::call::Refusal;
use crate::pages::form::{Form, Kind};
use crate::pages::outcome::{PageResult, redirect};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::layout;
use crate::pages::parts::values::{badge, copyable, facts};
use crate::pages::site::Site;
use crate::pages::visit::Visit;

/// Width and height of the QR code, in pixels of CSS.
const QR_SIZE: u32 = 240;

/// State of the second factor, as `GET /client/api/two-factor` returns it.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct TwoFactor {
    pub is_enabled: bool,
    recovery_codes_left: i64,
}

/// An enrolment that is not confirmed.
#[derive(Debug, Deserialize)]
struct Enrolment {
    secret: String,
    otpauth_url: String,
}

#[derive(Debug, Deserialize)]
struct Confirmed {
    recovery_codes: Vec<String>,
}

pub fn add(site: Site) -> Site {
    site.get(layout::ENROLMENT, show)
        .post("/portal/account/two-factor/begin", begin)
        .post("/portal/account/two-factor/confirm", confirm)
        .post("/portal/account/two-factor/disable", disable)
}

async fn show(visit: Visit) -> PageResult {
    visit.user()?;
    let state: TwoFactor = visit.get("/client/api/two-factor").await?;
    Ok(page(&visit, state, None))
}

fn page(visit: &Visit, state: TwoFactor, refusal: Option<&Refusal>) -> Response {
    let must_enrol = visit.user().is_ok_and(|user| user.must_enrol());
    let body = html! {
        (layout::problem(refusal))
        @if must_enrol && !state.is_enabled {
            p.notice.wait role="status" { "Your account requires two-factor authentication of its owners. Set it up to go on." }
        }
        p { "With two-factor authentication, each login takes your password and a code from an app on your telephone." }
        p { (badge(if state.is_enabled { "active" } else { "inactive" })) }
        @if state.is_enabled { (enabled(visit, state, refusal)) } @else {
            form method="post" action="/portal/account/two-factor/begin" { button { "Set up two-factor authentication" } }
        }
        @if !must_enrol { p.actions { a href="/portal/account" { "Back to your account" } } }
    };
    layout::page(visit, "Two-factor authentication", &body)
}

fn enabled(visit: &Visit, state: TwoFactor, refusal: Option<&Refusal>) -> Markup {
    let fields = Filled { form: &visit.form, refusal };
    html! {
        (facts(&[("Recovery codes left", html! { (state.recovery_codes_left) })]))
        details.card open[refusal.is_some()] {
            summary { "Switch two-factor authentication off" }
            form method="post" action="/portal/account/two-factor/disable" {
                p { "Your password alone then opens your login. To get new recovery codes, switch it off and set it up again." }
                (fields.input("otp", "Code", "text", "Six digits from the app, or a recovery code."))
                button.danger { "Switch off" }
            }
        }
    }
}

/// Begins an enrolment, and shows its secret. It is in this response alone, so no redirect follows.
async fn begin(visit: Visit) -> PageResult {
    visit.user()?;
    match visit.change::<Enrolment>(Method::POST, "/client/api/two-factor", &json!({})).await {
        Ok(enrolment) => Ok(enrolment_page(&visit, &enrolment, None)),
        Err(refusal) if refusal.is_correctable() => {
            let state = visit.get("/client/api/two-factor").await?;
            Ok(layout::refused(page(&visit, state, Some(&refusal)), &refusal))
        }
        Err(refusal) => Err(refusal.into()),
    }
}

/// Confirms an enrolment, and shows the recovery codes. They are in this response alone, so no redirect follows.
async fn confirm(visit: Visit) -> PageResult {
    visit.user()?;
    let body = visit.form.json(&[("otp", Kind::Text)]);
    match visit.change::<Confirmed>(Method::POST, "/client/api/two-factor/confirm", &body).await {
        Ok(confirmed) => Ok(recovery_codes(&visit, &confirmed.recovery_codes)),
        Err(refusal) if refusal.is_correctable() => {
            Ok(layout::refused(enrolment_page(&visit, &enrolment_of(&visit.form), Some(&refusal)), &refusal))
        }
        Err(refusal) => Err(refusal.into()),
    }
}

/// Reads the enrolment that the form repeats, because the API shows it only once.
fn enrolment_of(form: &Form) -> Enrolment {
    Enrolment { secret: form.value("secret").to_owned(), otpauth_url: form.value("otpauth_url").to_owned() }
}

async fn disable(visit: Visit) -> PageResult {
    visit.user()?;
    let body = visit.form.json(&[("otp", Kind::Text)]);
    match visit.change::<Value>(Method::DELETE, "/client/api/two-factor", &body).await {
        Ok(_) => Ok(redirect(&format!("{}?done=two-factor-off", layout::ENROLMENT))),
        Err(refusal) if refusal.is_correctable() => {
            let state = visit.get("/client/api/two-factor").await?;
            Ok(layout::refused(page(&visit, state, Some(&refusal)), &refusal))
        }
        Err(refusal) => Err(refusal.into()),
    }
}

fn enrolment_page(visit: &Visit, enrolment: &Enrolment, refusal: Option<&Refusal>) -> Response {
    let fields = Filled { form: &visit.form, refusal };
    let body = html! {
        (layout::problem(refusal))
        ol {
            li { "Install an authenticator app on your telephone, if you have none." }
            li { "Scan this picture with the app, or type the key into it." }
            li { "Type the code that the app shows." }
        }
        div.grid {
            div.card { (qr(&enrolment.otpauth_url)) }
            div.card {
                (facts(&[("Key", copyable(&enrolment.secret))]))
                form method="post" action="/portal/account/two-factor/confirm" {
                    input type="hidden" name="secret" value=(enrolment.secret);
                    input type="hidden" name="otpauth_url" value=(enrolment.otpauth_url);
                    (fields.input("otp", "Code", "text", "Six digits from the app."))
                    button { "Confirm" }
                }
            }
        }
    };
    layout::page(visit, "Set up two-factor authentication", &body)
}

/// Draws a text as a QR code. A text that is too long for one leaves only the key to type.
fn qr(text: &str) -> Markup {
    let Ok(code) = QrCode::new(text) else { return html! { p { "The key has to be typed." } } };
    let colours = (svg::Color("#000"), svg::Color("#fff"));
    let drawn = code.render().min_dimensions(QR_SIZE, QR_SIZE).dark_color(colours.0).light_color(colours.1).build();
    // Geometry alone: the text is in it only as squares. HTML takes no XML declaration.
    let picture = drawn.split_once("?>").map_or(&*drawn, |(_, picture)| picture);
    html! { div role="img" aria-label="QR code of the key" { (PreEscaped(picture)) } }
}

fn recovery_codes(visit: &Visit, codes: &[String]) -> Response {
    let body = html! {
        p.notice.good role="status" { "Two-factor authentication is on. Your other sessions have ended." }
        p.notice.wait { "Store these codes where your telephone is not. They are gone when you leave this page." }
        p { "Each code replaces the app once, if you lose it." }
        ul.card { @for code in codes { li { code { (code) } } } }
        p { a.button href="/portal/account" { "I have stored the codes" } }
    };
    layout::page(visit, "Your recovery codes", &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_qr_code_is_a_picture_without_styles_scripts_or_text() {
        let markup = qr("otpauth://totp/a:b?secret=GEZDGNBVGY3TQOJQ&issuer=<script>").0;
        assert!(markup.contains("<svg") && markup.contains("viewBox") && markup.contains("role=\"img\""), "{markup}");
        for text in ["<?xml", "style", "script", "otpauth", "GEZDGNBV"] {
            assert!(!markup.contains(text), "{text}");
        }
        assert!(!qr(&"x".repeat(5_000)).0.contains("<svg"));
    }
}
