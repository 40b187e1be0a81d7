//! Profiles: services with the credentials of a client, in a settings file of the user. `login` writes them, and the client
//! commands read them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use reqwest::Url;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::client::{Caller, Client};
use super::{WrongUse, private};
use crate::config::{place, read_private};
use crate::secrets::seal::Secret;

/// URL of the service without a profile.
const DEFAULT_URL: &str = "http://127.0.0.1:8080";
/// Subdirectory of the user's configuration directory.
const DIRECTORY: &str = "rewards-ledger";
const FILE: &str = "client.toml";

/// A service, and the credentials of one client.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    pub url: String,
    pub api_key: String,
    #[serde(serialize_with = "write_secret", deserialize_with = "read_secret")]
    pub api_secret: Secret,
    /// Secret that signs requests; without it, they are not signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "write_optional", deserialize_with = "read_optional")]
    pub signing_secret: Option<Secret>,
}

/// The settings file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profiles {
    /// Profile that is used if none is named: that of the last login.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    #[serde(default)]
    pub profiles: BTreeMap<String, Profile>,
}

fn write_secret<S: Serializer>(secret: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(secret.expose())
}

fn read_secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
    String::deserialize(deserializer).map(Secret::new)
}

fn write_optional<S: Serializer>(secret: &Option<Secret>, serializer: S) -> Result<S::Ok, S::Error> {
    secret.as_ref().map(Secret::expose).serialize(serializer)
}

fn read_optional<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Secret>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.map(Secret::new))
}

/// Returns the directory of the user's settings: in `XDG_CONFIG_HOME`, or in `.config` of the home directory.
///
/// # Errors
/// If neither is known.
pub fn directory() -> anyhow::Result<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")));
    Ok(base.context("no directory for settings: set HOME or XDG_CONFIG_HOME")?.join(DIRECTORY))
}

impl Profiles {
    /// Reads the settings file. Returns no profiles if there is no file.
    ///
    /// # Errors
    /// If others can read the file, or it is damaged. The message repeats nothing of it, because any of it may be a secret.
    pub fn load() -> anyhow::Result<Profiles> {
        // Without a home directory there is nothing to read.
        let Ok(file) = directory().map(|directory| directory.join(FILE)) else { return Ok(Profiles::default()) };
        if !file.exists() {
            return Ok(Profiles::default());
        }
        let text = read_private(&file, "the settings of the client commands")?;
        toml::from_str(text.expose()).map_err(|error| {
            let (line, column) = place(text.expose(), error.span().map_or(0, |span| span.start));
            anyhow::anyhow!(
                "{}: line {line}, column {column} is wrong: mend it, or delete the file and log in again",
                file.display()
            )
        })
    }

    /// Writes the settings file, which only its owner can read.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn save(&self) -> anyhow::Result<PathBuf> {
        let file = directory()?.join(FILE);
        private::write(&file, &toml::to_string(self).context("cannot write the profiles")?)?;
        Ok(file)
    }

    /// Returns the name of the profile to use: the given one, or the current one.
    ///
    /// # Errors
    /// If there is none, or none of this name.
    pub fn name(&self, wanted: Option<&str>) -> anyhow::Result<String> {
        let name = wanted.or(self.current.as_deref()).context("there is no profile: see `rewards-ledger login --help`")?;
        if !self.profiles.contains_key(name) {
            bail!("there is no profile {name}: see `rewards-ledger profiles`");
        }
        Ok(name.to_owned())
    }
}

/// Arguments that name a service and a client of it.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Service and credentials")]
pub struct ClientArgs {
    /// URL of the service [default: that of the profile, else http://127.0.0.1:8080]
    #[arg(long, env = "LEDGER_URL", value_name = "URL")]
    pub url: Option<Url>,
    /// Profile to use, see `login` [default: that of the last login]
    #[arg(long, env = "LEDGER_PROFILE", value_name = "NAME")]
    pub profile: Option<String>,
    /// API key, in place of the profile's [default: none]
    #[arg(long, env = "LEDGER_API_KEY", value_name = "KEY", requires = "api_secret")]
    pub api_key: Option<String>,
    /// Secret of the API key [default: none]
    #[arg(long, env = "LEDGER_API_SECRET", value_name = "SECRET", value_parser = secret)]
    pub api_secret: Option<Secret>,
    /// Sign requests with this signing secret [default: not signed]
    #[arg(long, env = "LEDGER_SIGNING_SECRET", value_name = "SECRET", value_parser = secret)]
    pub signing_secret: Option<Secret>,
}

/// Reads a secret argument, which errors do not repeat.
pub fn secret(text: &str) -> Result<Secret, std::convert::Infallible> {
    Ok(Secret::new(text))
}

/// A service, and the credentials to use it with.
#[derive(Clone, Debug)]
pub struct Service {
    pub url: Url,
    /// Credentials, if there are any: some operations need none.
    pub caller: Option<Caller>,
}

impl ClientArgs {
    /// Returns the service and the credentials: those of the arguments, or else of the profile. The credentials of a profile
    /// go to no other URL than the profile's.
    ///
    /// # Errors
    /// If there is no such profile, its URL contradicts the argument, or the secret of a key comes without the key.
    pub fn service(self) -> anyhow::Result<Service> {
        let ClientArgs { url, profile, api_key, api_secret, signing_secret } = self;
        if api_secret.is_some() && api_key.is_none() {
            let problem = "--api-secret (LEDGER_API_SECRET) needs --api-key (LEDGER_API_KEY); leave both out to use a profile";
            return Err(WrongUse(problem.to_owned()).into());
        }
        let profiles = Profiles::load()?;
        let stored = match (&profile, &profiles.current) {
            (None, None) => None,
            _ => profiles.profiles.get(&profiles.name(profile.as_deref())?),
        };
        let stored_url = stored.map(|stored| Url::parse(&stored.url).context("the profile's URL is not a URL")).transpose()?;
        let is_elsewhere = url.is_some() && stored_url.is_some() && url != stored_url;
        if let (Some(name), true) = (&profile, is_elsewhere) {
            bail!("--url is not the URL of the profile {name}: leave one of them out");
        }
        let given = api_key.zip(api_secret);
        let caller = match (given, stored.filter(|_| !is_elsewhere)) {
            (Some((api_key, api_secret)), _) => Some(Caller::Client { api_key, api_secret, signing_secret }),
            (None, Some(stored)) => Some(Caller::Client {
                api_key: stored.api_key.clone(),
                api_secret: stored.api_secret.clone(),
                signing_secret: signing_secret.or_else(|| stored.signing_secret.clone()),
            }),
            (None, None) => None,
        };
        let url = url.or(stored_url).map_or_else(|| Url::parse(DEFAULT_URL), Ok)?;
        Ok(Service { url, caller })
    }
}

impl Service {
    pub fn client(&self) -> anyhow::Result<Client> {
        Client::new(&self.url, self.caller.clone())
    }

    /// Returns a client, for a command that needs credentials.
    ///
    /// # Errors
    /// If there are none.
    pub fn known_client(&self) -> anyhow::Result<Client> {
        if self.caller.is_none() {
            bail!("no credentials for {}: run `rewards-ledger login`, or give --api-key and --api-secret", self.url);
        }
        self.client()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn profiles_keep_their_secrets_in_the_file_and_show_them_nowhere() {
        let signing_secret = Some(Secret::new("sign-7d1f"));
        let profile =
            Profile { url: "http://a".into(), api_key: "k".into(), api_secret: Secret::new("api-5a0c"), signing_secret };
        let profiles = Profiles { current: Some("a b".into()), profiles: [("a b".to_owned(), profile)].into() };
        let text = toml::to_string(&profiles).unwrap();
        let read: Profiles = toml::from_str(&text).unwrap();
        let stored = &read.profiles["a b"];
        assert_eq!((stored.api_secret.expose(), read.current.as_deref()), ("api-5a0c", Some("a b")));
        assert_eq!(stored.signing_secret.as_ref().map(Secret::expose), Some("sign-7d1f"));
        let shown = format!("{profiles:?}");
        assert!(!shown.contains("5a0c") && !shown.contains("7d1f"), "{shown}");
        assert!(toml::from_str::<Profiles>("[profiles.a]\nurl = \"http://a\"\n").is_err(), "a field is missing");
    }
}
