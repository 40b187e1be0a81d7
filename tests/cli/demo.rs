//! The demo, as a new user runs it first.

use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::{directory, err, out, outbox_shows, program, run};
use crate::support::program::DEADLINE;

#[tokio::test]
async fn the_demo_prints_its_tour_and_exits_with_success() {
    let directory = directory();
    let demo = run(program(directory.path()).args(["demo", "--exit"])).await;
    let told = out(&demo);
    assert!(demo.status.success(), "{told}{}", err(&demo));
    assert_eq!(err(&demo), "", "no log lines are printed in between");
    assert!(!told.contains('\u{1b}'), "no colours in a pipe");
    for event in ["OrderPlaced", "OrderDelivered", "OrderPartiallyDelivered", "OrderDelayed", "OrderCancelled", "WalletRefunded"]
    {
        assert!(told.contains(event), "{event} is not in {told}");
    }
    assert_eq!(told.matches("  signature verified  ").count(), 13, "{told}");
    for line in [
        "opening balance                0.00 USD",
        "credits                      500.00 USD",
        "refunds                       97.50 USD",
    ] {
        assert!(told.contains(line), "{line} is not in {told}");
    }
    assert!(told.contains("reconciled to the cent"), "{told}");
}

#[tokio::test]
async fn the_demo_as_json_prints_one_object_per_line() {
    let directory = directory();
    let demo = run(program(directory.path()).args(["demo", "--exit", "--json"])).await;
    assert!(demo.status.success(), "{}", err(&demo));
    let told = out(&demo);
    let lines: Vec<serde_json::Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |kind: &str| lines.iter().filter(|line| line["kind"] == kind).count();
    assert_eq!((of("section"), of("webhook"), of("statement")), (8, 13, 1));
    let statement = lines.iter().find(|line| line["kind"] == "statement").unwrap();
    assert_eq!(statement["is_reconciled"], true);
    assert_eq!(statement["closing_balance"], statement["balance"]);
    let positions: Vec<i64> =
        lines.iter().filter(|line| line["kind"] == "event").map(|line| line["position"].as_i64().unwrap()).collect();
    assert_eq!(positions, (1..).take(positions.len()).collect::<Vec<_>>(), "every position, in order");
}

#[tokio::test]
async fn the_demo_keeps_running_and_the_command_that_it_prints_works() {
    let directory = directory();
    let mut demo = program(directory.path()).arg("demo").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    let mut told = String::new();
    let invited = tokio::time::timeout(DEADLINE, async {
        while !told.contains("The signature is valid for five minutes.") {
            told.push_str(&lines.next_line().await.unwrap().unwrap_or_else(|| panic!("it ended: {told}")));
            told.push('\n');
        }
    });
    invited.await.unwrap_or_else(|_| panic!("the demo did not print its command in time: {told}"));

    let page = told.lines().find_map(|line| line.trim().strip_prefix("API page")).expect("an API page").trim();
    let shown = reqwest::get(page).await.unwrap();
    assert_eq!(shown.status(), 200);
    assert!(shown.text().await.unwrap().contains("<html"), "{page}");

    the_links_sign_in_and_lead_to_the_story(&told).await;

    // Parsed as a shell does: a URL and headers, in single quotes.
    let curl = told.split_once("curl '").expect("a curl").1;
    let mut quoted = curl.split('\'').step_by(2).map(str::to_owned).collect::<Vec<_>>();
    quoted.truncate(1 + curl.split("\n\n").next().unwrap().matches("-H '").count());
    let mut request = reqwest::Client::new().get(quoted.remove(0));
    for header in &quoted {
        let (name, value) = header.split_once(": ").unwrap_or_else(|| panic!("no header: {header}"));
        request = request.header(name, value);
    }
    assert!(quoted.iter().any(|header| header.to_lowercase().starts_with("x-signature: t=")), "{quoted:?}");
    let answer = request.send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let answer: serde_json::Value = answer.json().await.unwrap();
    assert_eq!(answer["success"], true, "{answer}");

    kill(Pid::from_raw(demo.id().unwrap().try_into().unwrap()), Signal::SIGTERM).unwrap();
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    assert!(tokio::time::timeout(DEADLINE, demo.wait()).await.expect("in time").unwrap().success());
}

/// Follows the links that sign in with one click, and finds the demo's story behind them.
async fn the_links_sign_in_and_lead_to_the_story(told: &str) {
    let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let stories: [(&str, &str, &[&str]); 2] = [
        ("portal", "/portal/orders", &["good\">Delivered<", "wait\">Delayed<", "bad\">Cancelled<"]),
        ("console", "/console/approvals", &["Funding", "25\u{202f}000.00"]),
    ];
    for (pages, page, texts) in stories {
        let link = told.lines().find_map(|line| line.trim().strip_prefix(pages)?.trim().strip_prefix("http")).expect(pages);
        let link = format!("http{link}");
        let wrong = http.get(format!("{link}x")).send().await.unwrap();
        assert_eq!((wrong.status().as_u16(), wrong.headers().get("set-cookie")), (404, None), "{link}x");
        let entered = http.get(&link).send().await.unwrap();
        let (status, headers) = (entered.status().as_u16(), entered.headers().clone());
        assert_eq!((status, headers["location"].to_str().unwrap()), (303, &*format!("/{pages}")), "{link}");
        let cookie = headers["set-cookie"].to_str().unwrap().split(';').next().unwrap();
        let base = link.split_once(&format!("/{pages}/demo")).unwrap().0;
        let mut shown = vec![(format!("/{pages}"), &["Sign out"][..]), (page.to_owned(), texts)];
        if pages == "portal" {
            shown.push(("/portal/outbox".to_owned(), &["<h1>Outbox</h1>"][..]));
        }
        for (path, texts) in shown {
            let shown = http.get(format!("{base}{path}")).header("Cookie", cookie).send().await.unwrap();
            assert_eq!(shown.status(), 200, "{path}");
            let shown = shown.text().await.unwrap();
            let missing: Vec<_> = texts.iter().filter(|text| !shown.contains(**text)).collect();
            assert!(missing.is_empty(), "{path} does not show {missing:?}: {shown}");
        }
        if pages == "portal" {
            the_catalogue_shows_a_picture_of_each_product(&http, base, cookie).await;
            an_invitation_appears_in_the_outbox(&http, base, cookie).await;
        } else {
            the_console_shows_the_bank_statement_and_the_discount(&http, base, cookie).await;
        }
    }
}

/// Finds the pictures of the four products in the catalogue.
async fn the_catalogue_shows_a_picture_of_each_product(http: &reqwest::Client, base: &str, cookie: &str) {
    let get = async |path: &str| http.get(format!("{base}{path}")).header("Cookie", cookie).send().await.unwrap();
    let catalogue = get("/portal/products").await.text().await.unwrap();
    let pictures = catalogue.split("<img class=\"product\" src=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
    let pictures: Vec<&str> = pictures.collect();
    assert_eq!(pictures.len(), 4, "{catalogue}");
    for picture in pictures {
        let shown = get(picture).await;
        let (status, kind) = (shown.status().as_u16(), shown.headers()["content-type"].to_str().unwrap().to_owned());
        assert_eq!((status, kind.as_str()), (200, "image/png"), "{picture}");
        assert!(shown.bytes().await.unwrap().starts_with(b"\x89PNG"), "{picture}");
    }
}

/// Returns the first link of a page to something below a path.
fn first_link<'a>(page: &'a str, path: &str) -> &'a str {
    let mut links = page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
    links.find(|link| link.starts_with(path)).unwrap_or_else(|| panic!("no link to {path}: {page}"))
}

/// Finds the bank statement, with a line that is matched and one that a person decides, and the discount on a product.
async fn the_console_shows_the_bank_statement_and_the_discount(http: &reqwest::Client, base: &str, cookie: &str) {
    let read = async |path: &str| {
        let shown = http.get(format!("{base}{path}")).header("Cookie", cookie).send().await.unwrap();
        assert_eq!(shown.status(), 200, "{path}");
        shown.text().await.unwrap()
    };
    let statements = read("/console/bank-statements").await;
    let path = first_link(&statements, "/console/bank-statements/");
    let statement = read(path).await;
    for (status, text) in [("MATCHED", "Monthly budget"), ("AMBIGUOUS", "Payment of an invoice")] {
        assert!(statement.contains(&format!("href=\"{path}?status={status}\">1</a>")), "{status}: {statement}");
        let lines = read(&format!("{path}?status={status}")).await;
        assert!(lines.contains(text), "{status}: {lines}");
    }

    let accounts = read("/console/accounts").await;
    let discounts = read(&format!("{}/discounts", first_link(&accounts, "/console/accounts/"))).await;
    assert!(discounts.contains("5.00 %"), "{discounts}");
    let product = read(first_link(&discounts, "/console/products/")).await;
    assert!(product.contains("Book Card"), "{product}");
}

/// Invites somebody as the portal's user, and finds the mail on the page of sent mails.
async fn an_invitation_appears_in_the_outbox(http: &reqwest::Client, base: &str, cookie: &str) {
    let invitation = http.post(format!("{base}/portal/team/invitations")).header("Cookie", cookie).header("Origin", base);
    let invitation = invitation.header("Content-Type", "application/x-www-form-urlencoded");
    let invited = invitation.body("email=ada@example.com&role=viewer").send().await.unwrap();
    let (status, headers) = (invited.status().as_u16(), invited.headers().clone());
    assert_eq!(status, 303, "{}", invited.text().await.unwrap());
    assert_eq!(headers["location"], "/portal/team?done=invited");
    outbox_shows(base, cookie, &["ada@example.com", "Invitation to ", "/portal/accept-invitation?token="]).await;
}
