//! `login`, `logout` and `profiles`: keep the credentials of a client in the user's settings file.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Args;
use reqwest::{StatusCode, Url};
use rewards_ledger_client::models::{ErrorCode, IssueCredential, Login};
use rewards_ledger_client::{Error, ListWalletsQuery};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::client::{Caller, Client, failure};
use super::output::{Output, with_progress};
use super::profiles::{Profile, Profiles, secret};
use crate::secrets::seal::Secret;

/// Time for a sandbox to start and to print itself. A first start downloads Postgres if none is installed.
const FILE_DEADLINE: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(100);

#[derive(Args, Debug)]
pub struct LoginArgs {
    /// Name of the profile [default: sandbox for a new sandbox, else default]
    #[arg(long, env = "LEDGER_PROFILE", value_name = "NAME")]
    profile: Option<String>,
    /// URL of the service [default: http://127.0.0.1:8080]
    #[arg(long, env = "LEDGER_URL", value_name = "URL")]
    url: Option<Url>,
    /// API key [default: asked for on a terminal]
    #[arg(long, env = "LEDGER_API_KEY", value_name = "KEY")]
    api_key: Option<String>,
    /// Secret of the API key [default: asked for on a terminal]
    #[arg(long, env = "LEDGER_API_SECRET", value_name = "SECRET", value_parser = secret)]
    api_secret: Option<Secret>,
    /// Signing secret, if the key requires signed requests [default: none]
    #[arg(long, env = "LEDGER_SIGNING_SECRET", value_name = "SECRET", value_parser = secret)]
    signing_secret: Option<Secret>,
    /// Log in as a user of the portal with the role owner, and create an API key for this machine
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["api_key", "api_secret", "signing_secret"])]
    email: Option<String>,
    /// File with the user's password on its first line; - reads from stdin [default: asked for on a terminal]
    #[arg(long, value_name = "FILE", requires = "email")]
    password_file: Option<PathBuf>,
    /// Code of the user's second factor [default: asked for on a terminal, if the user has one]
    #[arg(long, value_name = "CODE", requires = "email")]
    otp: Option<String>,
    /// File with the output of `serve --sandbox --json`, or of `admin credential issue --json`; waits until it is complete
    #[arg(long, value_name = "FILE", conflicts_with_all = ["api_key", "api_secret", "email"])]
    from: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub struct LogoutArgs {
    /// Profile to forget [default: that of the last login]
    #[arg(long, env = "LEDGER_PROFILE", value_name = "NAME")]
    profile: Option<String>,
}

#[derive(Args, Debug)]
pub struct ProfilesArgs {
    /// Use this profile from now on
    #[arg(long = "use", value_name = "NAME")]
    used: Option<String>,
}

/// Checks the credentials with the service, and stores them as a profile.
pub async fn login(args: LoginArgs, output: &Output) -> anyhow::Result<()> {
    let mut profiles = Profiles::load()?;
    let (profile, name) = match (&args.from, &args.email) {
        (Some(file), _) => {
            let read = with_progress("waiting for the file", of_file(&args, file)).await?;
            if let Some(warning) = openness(file) {
                anstream::eprintln!("warning: {warning}");
            }
            read
        }
        (None, Some(email)) => {
            // Before there is a key that could be lost.
            profiles.save()?;
            (of_user(&args, email).await?, "default")
        }
        (None, None) => (of_key(&args)?, "default"),
    };
    let name = args.profile.unwrap_or_else(|| name.to_owned());
    let (url, key, is_new) = (profile.url.clone(), key_prefix(&profile).to_owned(), args.email.is_some());
    let checked = check(&profile).await;
    if !is_new {
        checked?;
        let file = keep(&mut profiles, &name, profile)?;
        return logged_in(&name, &url, &key, &file, output);
    }
    // The service shows a new key only once, so it is kept whatever the check says.
    let file = match keep(&mut profiles, &name, profile.clone()) {
        Ok(file) => file,
        Err(error) => {
            show(&profile, output)?;
            return Err(error.context(
                "the new API key is printed above, because it is shown only once: keep it, or revoke it in the portal",
            ));
        }
    };
    checked.with_context(|| format!("the profile {name} has the new API key, but a request with it failed"))?;
    logged_in(&name, &url, &key, &file, output)
}

/// Stores a profile, and makes it the current one. Returns the settings file.
fn keep(profiles: &mut Profiles, name: &str, profile: Profile) -> anyhow::Result<PathBuf> {
    profiles.profiles.insert(name.to_owned(), profile);
    profiles.current = Some(name.to_owned());
    profiles.save()
}

/// Prints a key with its secret.
fn show(profile: &Profile, output: &Output) -> std::io::Result<()> {
    let (url, key, secret) = (&profile.url, &profile.api_key, profile.api_secret.expose());
    if output.json {
        return output.json_line(&json!({"url": url, "api_key": key, "api_secret": secret}));
    }
    output.line(format!("URL         {url}\nAPI key     {key}\nAPI secret  {secret}"))
}

fn logged_in(name: &str, url: &str, key: &str, file: &Path, output: &Output) -> anyhow::Result<()> {
    if output.json {
        return Ok(output.json_line(&json!({"profile": name, "url": url, "key_prefix": key, "file": file}))?);
    }
    Ok(output.line(format!("logged in to {url} with the key {key}…: profile {name} in {}", file.display()))?)
}

/// Forgets a profile. The API key itself stays valid.
pub fn logout(args: &LogoutArgs, output: &Output) -> anyhow::Result<()> {
    let mut profiles = Profiles::load()?;
    let name = profiles.name(args.profile.as_deref())?;
    let key = profiles.profiles.remove(&name).map(|profile| key_prefix(&profile).to_owned()).unwrap_or_default();
    if profiles.current.as_ref() == Some(&name) {
        profiles.current = None;
    }
    profiles.save()?;
    if output.json {
        return Ok(output.json_line(&json!({"profile": name, "key_prefix": key}))?);
    }
    Ok(output.line(format!("forgot the profile {name}; to end the key {key}…, revoke it in the portal"))?)
}

/// Lists the profiles without their secrets, or chooses one of them.
pub fn profiles(args: &ProfilesArgs, output: &Output) -> anyhow::Result<()> {
    let mut profiles = Profiles::load()?;
    if let Some(name) = &args.used {
        profiles.current = Some(profiles.name(Some(name.as_str()))?);
        profiles.save()?;
    }
    let rows = profiles.profiles.iter().map(|(name, profile)| {
        json!({
            "name": name, "url": profile.url, "key_prefix": key_prefix(profile), "is_signing": profile.signing_secret.is_some(),
            "is_current": profiles.current.as_ref() == Some(name),
        })
    });
    Ok(output.facts(&json!({"profiles": rows.collect::<Vec<_>>()}))?)
}

fn key_prefix(profile: &Profile) -> &str {
    profile.api_key.get(..8).unwrap_or_default()
}

/// Makes a profile of what another command printed. Waits until the file is complete. Returns the profile with its usual
/// name.
async fn of_file(args: &LoginArgs, file: &Path) -> anyhow::Result<(Profile, &'static str)> {
    let deadline = Instant::now() + FILE_DEADLINE;
    let printed: Value = loop {
        let text = match tokio::fs::read_to_string(file).await {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
        };
        match serde_json::from_str(&text) {
            Ok(printed) => break printed,
            Err(_) => ensure!(Instant::now() < deadline, "{} is not a JSON object", file.display()),
        }
        tokio::time::sleep(LOOK_EVERY).await;
    };
    let text = |name: &str| printed[name].as_str();
    let (Some(api_key), Some(api_secret)) = (text("api_key"), text("api_secret")) else {
        bail!("{} has no API key: a sandbox prints one when it is new, and the service when it issues one", file.display());
    };
    let profile = Profile {
        url: args.url.as_ref().map_or_else(|| text("url").map_or_else(|| url(None), str::to_owned), |given| url(Some(given))),
        api_key: api_key.to_owned(),
        api_secret: Secret::new(api_secret),
        signing_secret: args.signing_secret.clone().or_else(|| text("signing_secret").map(Secret::new)),
    };
    Ok((profile, if printed["is_new"] == true { "sandbox" } else { "default" }))
}

/// Returns a warning about a file with secrets that other users can read. Whoever wrote it decides whether that is a mistake.
fn openness(file: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let mode = std::fs::metadata(file).ok().filter(std::fs::Metadata::is_file)?.mode() & 0o777;
    let shown = file.display();
    (mode & 0o077 != 0).then(|| format!("{shown} holds secrets, and is open to other users (mode {mode:04o}): chmod 600 {shown}"))
}

fn of_key(args: &LoginArgs) -> anyhow::Result<Profile> {
    let api_key = args.api_key.clone().map_or_else(|| asked("API key", plain), Ok)?;
    let api_secret = args.api_secret.clone().map_or_else(|| asked("API secret", hidden), Ok)?;
    Ok(Profile { url: url(args.url.as_ref()), api_key, api_secret, signing_secret: args.signing_secret.clone() })
}

/// Logs in as a user, creates an API key for this machine, and ends the session.
async fn of_user(args: &LoginArgs, email: &str) -> anyhow::Result<Profile> {
    let url = url(args.url.as_ref());
    let password = match &args.password_file {
        Some(file) => super::admin::password(file)?,
        None => asked("Password", hidden)?,
    };
    let base = Url::parse(&url)?;
    let anyone = Client::new(&base, None)?;
    let mut login = Login { otp: args.otp.as_deref().map(Into::into), ..Login::new(email, password.expose()) };
    let mut tokens = anyone.calls().log_in(&login).await;
    let is_asked = tokens.as_ref().is_err_and(|error| error.code() == Some(&ErrorCode::TwoFactorRequired));
    if is_asked && args.otp.is_none() && std::io::stdin().is_terminal() {
        login.otp = Some(asked("Code of the second factor", plain)?.into());
        tokens = anyone.calls().log_in(&login).await;
    }
    let token = Secret::new(tokens.map_err(failure)?.access_token.expose());
    // A user's access token is sent like an operator's token.
    let user = Client::new(&base, Some(Caller::Operator(token)))?;
    let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_default();
    let name: String = format!("rewards-ledger login on {host}").chars().take(100).collect();
    let issued = user.calls().create_api_key(&IssueCredential::new(name)).await;
    if let Err(error) = user.calls().log_out().await {
        // The key is worth more than a session that ends by itself.
        anstream::eprintln!(
            "warning: cannot end the session, which ends within 7 days: {}",
            super::escape::value(&format!("{:#}", failure(error)))
        );
    }
    let issued = issued.map_err(failure).context("cannot create an API key")?;
    let api_secret = Secret::new(issued.api_secret.expose());
    Ok(Profile { url, api_key: issued.api_key, api_secret, signing_secret: None })
}

/// Makes a request with the credentials. A key whose scopes do not include reading is right, too.
async fn check(profile: &Profile) -> anyhow::Result<()> {
    let (api_key, api_secret) = (profile.api_key.clone(), profile.api_secret.clone());
    let caller = Caller::Client { api_key, api_secret, signing_secret: profile.signing_secret.clone() };
    let client = Client::new(&Url::parse(&profile.url)?, Some(caller))?;
    match client.calls().list_wallets(&ListWalletsQuery { limit: Some(1), ..Default::default() }).reply().await {
        Err(Error::Api(refusal)) if refusal.status == StatusCode::FORBIDDEN => Ok(()),
        checked => checked.map(drop).map_err(failure),
    }
}

fn url(given: Option<&Url>) -> String {
    given.map_or("http://127.0.0.1:8080", |url| url.as_str().trim_end_matches('/')).to_owned()
}

/// Asks for a value on the terminal.
fn asked<T>(what: &str, ask: impl Fn(&str) -> std::io::Result<T>) -> anyhow::Result<T> {
    if !std::io::stdin().is_terminal() {
        bail!("no {}: see `rewards-ledger login --help`", what.to_lowercase());
    }
    ask(what).with_context(|| format!("cannot read the {what}"))
}

fn plain(prompt: &str) -> std::io::Result<String> {
    anstream::eprint!("{prompt}: ");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(line.trim().to_owned())
}

/// Reads a line that the terminal does not show.
fn hidden(prompt: &str) -> std::io::Result<Secret> {
    rpassword::prompt_password(format!("{prompt}: ")).map(Secret::new)
}
