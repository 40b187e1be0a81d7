//! `call METHOD PATH [BODY]`: sends one request to the client API.

use std::io::{IsTerminal, Read};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use reqwest::header::HeaderName;
use reqwest::{Method, Url};
use serde_json::json;

use super::client::{Body, Caller, Client};
use super::output::{Output, with_progress};
use crate::secrets::seal::Secret;

#[derive(Args, Debug)]
pub struct CallArgs {
    /// HTTP method: GET, POST, PUT or DELETE
    #[arg(value_parser = |text: &str| text.to_ascii_uppercase().parse::<Method>())]
    method: Method,
    /// Path with query, for example /api/v1/orders?limit=5
    path: String,
    /// JSON body; - reads from stdin
    body: Option<String>,
    /// URL of the service
    #[arg(long, env = "LEDGER_URL", value_name = "URL", default_value = "http://127.0.0.1:8080")]
    url: Url,
    /// API key [default: none]
    #[arg(long, env = "LEDGER_API_KEY", value_name = "KEY", requires = "api_secret")]
    api_key: Option<String>,
    /// Secret of the API key [default: none]
    #[arg(long, env = "LEDGER_API_SECRET", value_name = "SECRET", value_parser = private)]
    api_secret: Option<Secret>,
    /// Sign the request with this signing secret [default: not signed]
    #[arg(long, env = "LEDGER_SIGNING_SECRET", value_name = "SECRET", value_parser = private)]
    signing_secret: Option<Secret>,
    /// Send this idempotency key with a POST, so that it can be repeated safely [default: random, with an API key]
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Also print the response headers
    #[arg(short, long)]
    verbose: bool,
}

pub fn private(text: &str) -> Result<Secret, std::convert::Infallible> {
    Ok(Secret::new(text))
}

/// Sends the request and prints the response. The exit status is 1 if the response status is 400 or above.
pub async fn run(args: CallArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let body = match args.body.as_deref() {
        Some("-") => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("cannot read the body from stdin")?;
            Some(Body::json(text))
        }
        body => body.map(Body::json),
    };
    let caller = args.api_key.zip(args.api_secret).map(|(api_key, api_secret)| Caller::Client {
        api_key,
        api_secret,
        signing_secret: args.signing_secret,
    });
    let client = Client::new(&args.url, caller)?;
    let key: Vec<(HeaderName, &str)> =
        args.idempotency_key.iter().map(|key| (HeaderName::from_static("idempotency-key"), key.as_str())).collect();
    let reply = with_progress("waiting for the response", client.send(args.method, &args.path, body, &key)).await?;

    let status = reply.status;
    let parsed = reply.json();
    if output.json {
        let headers =
            reply.headers.iter().map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into()));
        let headers: serde_json::Map<_, _> = headers.collect();
        output.json_line(&json!({"status": status.as_u16(), "headers": headers, "body": parsed.unwrap_or(reply.body.into())}))?;
    } else {
        output.line(super::events::by_outcome(status.is_success(), &status.to_string()))?;
        if args.verbose {
            for (name, value) in &reply.headers {
                output.line(format!("{name}: {}", String::from_utf8_lossy(value.as_bytes())))?;
            }
        }
        match parsed.filter(|_| std::io::stdout().is_terminal()) {
            Some(body) => output.line(format!("{body:#}"))?,
            // Byte for byte, for the program that reads our output.
            None if !reply.body.is_empty() => output.verbatim(&reply.body)?,
            None => {}
        }
    }
    Ok(if status.as_u16() < 400 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
