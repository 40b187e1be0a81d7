//! A real OpenID provider in a process of its own, and a browser that follows redirects and keeps cookies.

use std::collections::HashMap;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use url::Url;

use super::node::{Node, OPEN_ID_CLIENT};
use super::program::DEADLINE;
use super::repository;

/// Directory with the npm package `oidc-provider`, which `.ci/tools` installs.
const DIRECTORY: &str = "OIDC_PROVIDER";

/// An OpenID provider. It ends when this value is dropped.
pub struct Provider {
    pub issuer: String,
    commands: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    _process: Child,
}

impl Provider {
    /// Starts a provider. Returns `None` if it is not installed.
    pub async fn start() -> Option<Provider> {
        let Some(directory) = std::env::var_os(DIRECTORY) else {
            assert!(std::env::var_os("CI").is_none(), "{DIRECTORY} is needed");
            eprintln!("SKIPPED: nobody has signed in through OpenID Connect, for {DIRECTORY} names no provider");
            return None;
        };
        let mut process = Command::new("node");
        process.arg(repository("tests/support/open_id/provider.mjs")).args([OPEN_ID_CLIENT.0, OPEN_ID_CLIENT.1]);
        process.env(DIRECTORY, directory).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = process.kill_on_drop(true).spawn().expect("node runs");
        let mut answers = BufReader::new(process.stdout.take().unwrap()).lines();
        let issuer = tokio::time::timeout(DEADLINE, answers.next_line()).await.expect("in time").unwrap();
        let issuer = issuer.expect("the provider prints its issuer");
        Some(Provider { issuer, commands: process.stdin.take().unwrap(), answers, _process: process })
    }

    /// Starts a node whose operators sign in with this provider.
    pub async fn node(&mut self) -> Node {
        let node = Node::with_provider(&self.issuer).await;
        self.command(json!({"redirect_uri": format!("{}/console/oidc/callback", node.url())})).await;
        node
    }

    /// Signs everybody in as this account from now on.
    pub async fn account(&mut self, account: Value) {
        self.command(json!({"account": account})).await;
    }

    /// Replaces the signing keys.
    pub async fn rotate_keys(&mut self) {
        self.command(json!({"keys": "new"})).await;
    }

    async fn command(&mut self, command: Value) {
        self.commands.write_all(format!("{command}\n").as_bytes()).await.unwrap();
        let done = tokio::time::timeout(DEADLINE, self.answers.next_line()).await.expect("in time").unwrap();
        assert_eq!(done.as_deref(), Some("done"));
    }
}

/// A page, with the URL where the browser has found it.
#[derive(Debug)]
pub struct Page {
    pub url: Url,
    pub status: u16,
    pub text: String,
}

/// A browser with its cookies by origin.
pub struct Browser {
    http: reqwest::Client,
    cookies: HashMap<String, HashMap<String, String>>,
}

impl Browser {
    pub fn new() -> Browser {
        let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        Browser { http, cookies: HashMap::new() }
    }

    /// Opens a URL and follows all redirects.
    pub async fn open(&mut self, url: &str) -> Page {
        let mut url = Url::parse(url).unwrap();
        for _ in 0..12 {
            match self.step(&url).await {
                (_, Some(next)) => url = next,
                (page, None) => return page,
            }
        }
        panic!("too many redirects: {url}");
    }

    /// Follows redirects from this URL until one leads to a path, and returns its target without opening it.
    pub async fn open_until(&mut self, url: &str, path: &str) -> Url {
        let mut url = Url::parse(url).unwrap();
        while url.path() != path {
            url = self.step(&url).await.1.expect("a redirect");
        }
        url
    }

    /// Returns the `Cookie` header for a URL.
    pub fn cookie_header(&self, url: &str) -> String {
        let origin = Url::parse(url).unwrap().origin().ascii_serialization();
        let cookies = self.cookies.get(&origin).into_iter().flatten();
        cookies.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("; ")
    }

    /// Opens a URL. Returns the page, and the target of its redirect.
    async fn step(&mut self, url: &Url) -> (Page, Option<Url>) {
        let answer = self.http.get(url.clone()).header("Cookie", self.cookie_header(url.as_str())).send().await.unwrap();
        let jar = self.cookies.entry(url.origin().ascii_serialization()).or_default();
        for cookie in answer.headers().get_all("set-cookie") {
            let (name, value) = cookie.to_str().unwrap().split(';').next().unwrap().split_once('=').unwrap();
            match value {
                "" => _ = jar.remove(name),
                value => _ = jar.insert(name.to_owned(), value.to_owned()),
            }
        }
        let next = answer.headers().get("location").map(|to| url.join(to.to_str().unwrap()).unwrap());
        let status = answer.status().as_u16();
        (Page { url: url.clone(), status, text: answer.text().await.unwrap() }, next)
    }
}
