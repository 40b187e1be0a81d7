//! A page of another site that sends every form of the pages, in the browser of people who are signed in.

use poem::listener::TcpAcceptor;
use poem::web::Html;
use poem::{Route, Server, get, handler};
use serde_json::json;

use super::actions::{Content, Stage, table};
use super::console::sign_in;
use super::in_browser;
use super::portal_orders::enter;
use crate::support::browser::Browser;

#[handler]
fn page() -> Html<&'static str> {
    Html("<!DOCTYPE html><title>Elsewhere</title>")
}

/// Starts the other site. Returns its address: a browser treats `localhost` as another site than 127.0.0.1.
async fn elsewhere() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TcpAcceptor::from_tokio(listener).unwrap();
    tokio::spawn(Server::new_with_acceptor(acceptor).run(Route::new().at("/", get(page))));
    format!("http://localhost:{port}/")
}

/// Sends a form from the page that is open. Returns the address and the status of the answer.
async fn send(browser: &Browser, to: &str, content: Content, filled: &str) -> (String, i64) {
    let (fields, file) = match content {
        Content::Fields(_) => (filled, ""),
        Content::File(field, _) => ("", field),
        Content::Picture => ("", "image"),
    };
    let form = json!({"to": to, "fields": fields, "file": file, "content": filled});
    let script = "const form = document.createElement('form'), add = (name, kind) => {
            const input = form.appendChild(document.createElement('input'));
            return Object.assign(input, { name, type: kind });
        };
        Object.assign(form, { method: 'post', action: sent.to });
        new URLSearchParams(sent.fields).forEach((value, name) => { add(name, 'hidden').value = value; });
        if (sent.file) {
            form.enctype = 'multipart/form-data';
            const files = new DataTransfer();
            files.items.add(new File([sent.content], 'file'));
            add(sent.file, 'file').files = files.files;
        }
        document.documentElement.id = 'before';
        document.body.append(form);
        form.submit();";
    browser.run(&format!("const sent = {form}; {script}")).await;
    browser.find("//html[not(@id='before')]//main//h1").await;
    let at = "return [location.href, performance.getEntriesByType('navigation')[0].responseStatus]";
    let at = browser.run(at).await;
    (at[0].as_str().unwrap().to_owned(), at[1].as_i64().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_form_of_a_foreign_page_changes_anything() {
    let stage = Stage::set().await;
    let foreign = elsewhere().await;
    in_browser((1440, 1_600), true, |browser| async move {
        let (node, people) = (stage.node(), &stage.furnished);
        enter(&browser, node, people.owner(), "/portal/login").await;
        browser.find("//h1[text()='Overview']").await;
        browser.open(&format!("{}/console/login", node.url())).await;
        sign_in(&browser, &people.admin().email, "").await;
        browser.find("//h1[text()='Overview']").await;
        let before = stage.fingerprints().await;
        for action in table() {
            browser.open(&foreign).await;
            let to = format!("{}{}", node.url(), stage.filled(action.path));
            let filled = match action.content {
                Content::Fields(text) | Content::File(_, text) => stage.filled(text),
                Content::Picture => String::new(),
            };
            let (at, status) = send(&browser, &to, action.content, &filled).await;
            assert_eq!((at, status), (to, 403), "{}", action.path);
        }
        let after = stage.fingerprints().await;
        let changed: Vec<&String> = after.keys().filter(|table| before[*table] != after[*table]).collect();
        assert_eq!(changed, Vec::<&String>::new());
        // A form of an own page takes effect.
        browser.open(&format!("{}/console/categories", node.url())).await;
        let to = format!("{}/console/categories", node.url());
        let (at, status) = send(&browser, &to, Content::Fields(""), "name=Games").await;
        assert!(at.contains("/console/categories?done=") && status == 200, "{at} {status}");
        assert_ne!(stage.fingerprints().await["public.events"], after["public.events"]);
    })
    .await;
}
