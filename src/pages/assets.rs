//! The style sheet and the script of all pages. Their addresses contain a hash of their content, so browsers keep them.

use std::sync::LazyLock;

use poem::Response;
use poem::http::header;
use sha2::{Digest, Sha256};

const STYLE: &str = include_str!("assets/style.css");
const SCRIPT: &str = include_str!("assets/script.js");
const ICON: &str = include_str!("assets/icon.svg");

/// Address of the style sheet.
pub static STYLE_URL: LazyLock<String> = LazyLock::new(|| address("style.css", STYLE));
/// Address of the script.
pub static SCRIPT_URL: LazyLock<String> = LazyLock::new(|| address("script.js", SCRIPT));
/// Address of the icon.
pub static ICON_URL: LazyLock<String> = LazyLock::new(|| address("icon.svg", ICON));

fn address(name: &str, content: &str) -> String {
    let hash = hex::encode(&Sha256::digest(content)[..8]);
    format!("/assets/{hash}/{name}")
}

/// Route of an asset, with its response.
type Asset = (&'static str, fn() -> Response);

/// Routes of the assets, with their responses. Every version of an address answers with the present content.
pub const ALL: [Asset; 3] = [
    ("/assets/:version/style.css", || asset("text/css; charset=utf-8", STYLE)),
    ("/assets/:version/script.js", || asset("text/javascript; charset=utf-8", SCRIPT)),
    ("/assets/:version/icon.svg", || asset("image/svg+xml", ICON)),
];

fn asset(content_type: &str, content: &'static str) -> Response {
    let caching = "public, max-age=31536000, immutable";
    Response::builder().content_type(content_type).header(header::CACHE_CONTROL, caching).body(content)
}
