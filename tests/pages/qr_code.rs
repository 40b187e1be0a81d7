//! The QR code of the second factor: a decoder that is not ours reads the key in it.

use super::crawl::attributes;
use crate::support::node::Node;

/// A dark rectangle of the picture: left, top, width and height, in pixels.
type Dark = [usize; 4];

/// Returns the width of the picture, and its dark rectangles. Each is drawn as `M1 2h3v4H1V2`.
fn drawn(page: &str) -> (usize, Vec<Dark>) {
    let picture = page.split("aria-label=\"QR code of the key\"").nth(1).unwrap().split("</svg>").next().unwrap();
    let width = attributes(picture, "width")[0].parse().unwrap();
    let path = attributes(picture, "d").remove(0);
    let dark = path.split('M').skip(1).map(|part| {
        let numbers: Vec<usize> =
            part.split(|c: char| !c.is_ascii_digit()).filter(|text| !text.is_empty()).map(|text| text.parse().unwrap()).collect();
        let [left, top, width, height, back_left, back_top] = numbers[..] else { panic!("{part}") };
        assert_eq!((left, top), (back_left, back_top), "{part}");
        [left, top, width, height]
    });
    (width, dark.collect())
}

/// Decodes the QR code of a page.
fn decoded(page: &str) -> String {
    let (width, dark) = drawn(page);
    let is_dark = |x: usize, y: usize| {
        let covers = |[left, top, width, height]: &Dark| (*left..left + width).contains(&x) && (*top..top + height).contains(&y);
        dark.iter().any(covers)
    };
    let mut picture = rqrr::PreparedImage::prepare_from_bitmap(width, width, is_dark);
    let codes = picture.detect_grids();
    assert_eq!(codes.len(), 1);
    codes[0].decode().unwrap().1
}

#[tokio::test(flavor = "multi_thread")]
async fn the_qr_code_of_the_second_factor_holds_the_url_with_the_key_of_the_page() {
    let node = Node::start().await;
    let account = node.account("Acme").await.account_id;
    let owner = node.user(account, "owner").await;
    let form = node.request("POST", "/portal/account/two-factor/begin").header("Cookie", &owner.cookie);
    let form = form.header("Origin", node.url()).header("Content-Type", "application/x-www-form-urlencoded");
    let answer = form.send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    let page = answer.text().await.unwrap();
    let key = page.split("<dl class=\"facts\">").nth(1).unwrap().split("<code>").nth(1).unwrap().split("</code>").next().unwrap();
    let url: url::Url = decoded(&page).parse().unwrap();
    assert_eq!((url.scheme(), url.host_str()), ("otpauth", Some("totp")));
    let secret = url.query_pairs().find(|(name, _)| name == "secret").map(|(_, secret)| secret.into_owned());
    assert_eq!(secret.as_deref(), Some(key));
    assert!(key.len() >= 26, "{key} has less than 128 bits");
    assert!(url.path().ends_with(&*owner.email.replace('@', "%40")), "{url} does not name {}", owner.email);
}
