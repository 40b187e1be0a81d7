//! `call METHOD PATH [BODY]`: a client call from the shell.

use std::io::{IsTerminal, Read};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use reqwest::header::HeaderName;
use reqwest::{Method, Url};
use serde_json::json;

use super::client::{Body, Caller, Client};
use super::output::{Output, with_progress};
use crate::secrets::seal::Private;

#[derive(Args, Debug)]
pub struct CallArgs {
    /// GET, POST, PUT or DELETE
    #[arg(value_parser = |text: &str| text.to_ascii_uppercase().parse::<Method>())]
    method: Method,
    /// Such as /api/v1/orders?limit=5
    path: String,
    /// The JSON body; - reads it from stdin
    body: Option<String>,
    /// Where the service is
    #[arg(long, env = "LEDGER_URL", value_name = "URL", default_value = "http://127.0.0.1:8080")]
    url: Url,
    /// The API key [default: none]
    #[arg(long, env = "LEDGER_API_KEY", value_name = "KEY", requires = "api_secret")]
    api_key: Option<String>,
    /// Its secret [default: none]
    #[arg(long, env = "LEDGER_API_SECRET", value_name = "SECRET", value_parser = private)]
    api_secret: Option<Private>,
    /// Sign the request with this secret [default: not signed]
    #[arg(long, env = "LEDGER_SIGNING_SECRET", value_name = "SECRET", value_parser = private)]
    signing_secret: Option<Private>,
    /// Makes a repeated POST harmless [default: none]
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Print the answer's headers too
    #[arg(short, long)]
    verbose: bool,
}

pub fn private(text: &str) -> Result<Private, std::convert::Infallible> {
    Ok(Private::new(text))
}

/// Makes the call. An answer of 400 or above is printed like any other, with the status 1.
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
    let reply = with_progress("waiting for the answer", client.send(args.method, &args.path, body, &key)).await?;

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
            // What arrived, byte for byte, for who reads on.
            None if !reply.body.is_empty() => output.verbatim(&reply.body)?,
            None => {}
        }
    }
    Ok(if status.as_u16() < 400 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
