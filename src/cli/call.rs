//! `call METHOD PATH [BODY]`: sends one request to the client API.

use std::io::{IsTerminal, Read};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use reqwest::Method;
use reqwest::header::HeaderName;
use serde_json::json;

use super::client::{Body, Reply};
use super::events::by_outcome;
use super::output::{Output, with_progress};
use super::profiles::ClientArgs;

#[derive(Args, Debug)]
pub struct CallArgs {
    /// HTTP method: GET, POST, PUT or DELETE
    #[arg(value_parser = |text: &str| text.to_ascii_uppercase().parse::<Method>())]
    method: Method,
    /// Path with query, for example /api/v1/orders?limit=5
    path: String,
    /// JSON body; - reads from stdin
    body: Option<String>,
    /// Send this idempotency key with a POST, so that it can be repeated safely [default: random, with an API key]
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Also print the status and the headers of the response
    #[arg(short, long)]
    include: bool,
    #[command(flatten)]
    client: ClientArgs,
}

/// Sends the request and prints the body of the response. The exit status is 1 if the response status is 400 or above.
pub async fn run(args: CallArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let body = match args.body.as_deref() {
        Some("-") => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("cannot read the body from stdin")?;
            Some(Body::json(text))
        }
        body => body.map(Body::json),
    };
    let client = args.client.service()?.client()?;
    let key: Vec<(HeaderName, &str)> =
        args.idempotency_key.iter().map(|key| (HeaderName::from_static("idempotency-key"), key.as_str())).collect();
    let reply = with_progress("waiting for the response", client.send(args.method, &args.path, body, &key)).await?;
    print(&reply, args.include, output)?;
    let is_refused = reply.status.as_u16() >= 400;
    if is_refused && !args.include && !output.json {
        anstream::eprintln!("error: the service answered {}", reply.status);
    }
    Ok(if is_refused { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn print(reply: &Reply, includes_head: bool, output: &Output) -> std::io::Result<()> {
    let parsed = reply.json();
    if output.json {
        let headers =
            reply.headers.iter().map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into()));
        let headers: serde_json::Map<_, _> = headers.collect();
        let body = parsed.unwrap_or_else(|| reply.body.as_str().into());
        return output.json_line(&json!({"status": reply.status.as_u16(), "headers": headers, "body": body}));
    }
    if includes_head {
        output.line(by_outcome(reply.status.is_success(), &reply.status.to_string()))?;
        for (name, value) in &reply.headers {
            output.line(format!("{name}: {}", String::from_utf8_lossy(value.as_bytes())))?;
        }
        output.line("")?;
    }
    match parsed.filter(|_| std::io::stdout().is_terminal()) {
        Some(body) => output.line(format!("{body:#}")),
        // Byte for byte, for the program that reads our output.
        None if !reply.body.is_empty() => output.verbatim(&reply.body),
        None => Ok(()),
    }
}
